#include "reference/run_graph.h"

#include <functional>
#include <map>

#include "reference/kernels.h"

namespace weft::reference {

namespace {

bool has_local_operand(const Signature& signature) {
  for (int i = 0; i < signature.operand_count(); ++i)
    if (!signature.operand(i).local.empty()) return true;
  return false;
}

}  // namespace

IdVec<TensorId, Block> run_graph(const Graph& graph, const std::function<void(TensorId, Block&)>& leaf,
                                 const Shards& shards) {
  IdVec<TensorId, Block> values;
  for (TensorId id : graph.tensors().ids()) {
    values.push_back(Block(graph.tensors()[id].type.shape));
    if (!graph.tensors()[id].producer.valid()) leaf(id, values[id]);
  }
  std::map<std::pair<TensorId, std::size_t>, Block> local;  // by shard
  for (OpId op : graph.ops().ids()) {
    const Signature& signature = graph.signature(op);
    std::vector<Block> inputs;
    for (TensorId input : graph.inputs(op)) inputs.push_back(values[input]);
    if (!shards || !has_local_operand(signature)) {
      std::vector<Block> outputs = run_whole(signature, inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) values[graph.outputs(op)[i]] = std::move(outputs[i]);
      continue;
    }
    const std::vector<AxisSlices> parts = shards(op);
    for (std::size_t shard = 0; shard < parts.size(); ++shard) {
      std::vector<Block> outputs;
      for (const Operand& output : signature.outputs) outputs.emplace_back(signature, output, parts[shard]);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        if (const auto own = local.find({graph.inputs(op)[i], shard}); own != local.end()) inputs[i] = own->second;
      run_kernel(signature, parts[shard], inputs, outputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const TensorId id = graph.outputs(op)[i];
        if (!signature.outputs[i].local.empty())
          local.insert_or_assign({id, shard}, outputs[i]);
        else
          outputs[i].for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
            values[id].at(at) += outputs[i].values()[offset];
          });
      }
    }
  }
  return values;
}

}  // namespace weft::reference
