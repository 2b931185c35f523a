#include "compile/buckets.h"

#include <map>
#include <tuple>

namespace weft {
namespace {

// What makes two steps alike, and two gradients: the same steps one after the other (reduced over one mesh axis, then
// another).
using StepKey = std::tuple<MeshId, Collective, int, Reducer, DType>;
using Key = std::vector<StepKey>;

struct Bucket {
  std::size_t last = 0;  // position in the body of its last step
  std::int64_t bytes = 0;
  std::vector<Communicate> steps = {};  // joined, in order
};

// The steps of one gradient: neighbours in the body, each reading what the one before wrote.
struct Chain {
  Key key = {};
  std::size_t last = 0;
  std::int64_t bytes = 0;
  std::vector<const Communicate*> steps = {};
};

}  // namespace

void bucket_gradients(Program& program, const Graph& graph, Bytes bytes) {
  for (StageProgram& stage : program.stages) {
    std::vector<InstructionId>& body = stage.backward;
    const auto step_at = [&](std::size_t i) -> const Communicate* {
      const Instruction& instruction = program.instructions[body[i]];
      return instruction.guard == Guard::LastMicroBatch ? std::get_if<Communicate>(&instruction.what) : nullptr;
    };
    std::map<Key, Bucket> open;
    std::vector<Bucket> closed;
    std::vector<char> joined(body.size(), 0);
    for (std::size_t i = 0; i < body.size(); ++i) {
      Chain chain;
      for (; i < body.size(); ++i) {
        const Communicate* step = step_at(i);
        if (!step || (!chain.steps.empty() && chain.steps.back()->outputs[0] != step->inputs[0])) break;
        const Buffer& input = program.buffers[step->inputs[0]];
        const DType dtype = graph.tensors()[input.tensor].type.dtype;
        chain.key.emplace_back(program.instructions[body[i]].mesh, step->collective, step->mesh_axis, step->reducer,
                               dtype);
        if (chain.steps.empty())
          chain.bytes = bytes_of(dtype, largest_local_elements(input.layout, program.meshes[input.layout.mesh]));
        chain.steps.push_back(step);
        chain.last = i;
        joined[i] = 1;
      }
      if (chain.steps.empty()) continue;
      --i;  // the loop steps over it
      Bucket& bucket = open[chain.key];
      bucket.steps.resize(chain.steps.size());
      bucket.last = chain.last;
      bucket.bytes += chain.bytes;
      for (std::size_t s = 0; s < chain.steps.size(); ++s) {
        Communicate& all = bucket.steps[s];
        const Communicate& one = *chain.steps[s];
        all.collective = one.collective;
        all.mesh_axis = one.mesh_axis;
        all.reducer = one.reducer;
        all.inputs.push_back(one.inputs[0]);
        all.outputs.push_back(one.outputs[0]);
      }
      if (bucket.bytes >= bytes.value) {
        closed.push_back(std::move(bucket));
        open.erase(chain.key);
      }
    }
    for (auto& [key, bucket] : open) closed.push_back(std::move(bucket));

    std::vector<Bucket*> ends(body.size(), nullptr);
    for (Bucket& bucket : closed) ends[bucket.last] = &bucket;
    std::vector<InstructionId> result;
    result.reserve(body.size());
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (!joined[i]) result.push_back(body[i]);
      if (!ends[i]) continue;
      const Instruction last = program.instructions[body[i]];
      for (Communicate& step : ends[i]->steps)
        result.push_back(program.instructions.push_back({last.mesh, last.guard, last.weight_part, std::move(step)}));
    }
    body = std::move(result);
  }
}

}  // namespace weft
