#include "reference/run_graph.h"

#include "reference/kernels.h"

namespace weft::reference {

IdVec<TensorId, Block> run_graph(const Graph& graph, const std::function<void(TensorId, Block&)>& leaf) {
  IdVec<TensorId, Block> values;
  for (TensorId id : graph.tensors().ids()) {
    values.push_back(Block(graph.tensors()[id].type.shape));
    if (!graph.tensors()[id].producer.valid()) leaf(id, values[id]);
  }
  for (OpId op : graph.ops().ids()) {
    std::vector<Block> inputs;
    for (TensorId input : graph.inputs(op)) inputs.push_back(values[input]);
    std::vector<Block> outputs = run_whole(graph.signature(op), inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) values[graph.outputs(op)[i]] = std::move(outputs[i]);
  }
  return values;
}

}  // namespace weft::reference
