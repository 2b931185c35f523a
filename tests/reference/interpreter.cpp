#include "reference/interpreter.h"

#include <cmath>
#include <stdexcept>

#include "reference/kernels.h"

namespace weft::reference {
namespace {

std::vector<std::int64_t> positions_in(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> list;
  for (const Range& range : ranges)
    for (std::int64_t at = range.begin; at < range.end; ++at) list.push_back(at);
  return list;
}

}  // namespace

std::vector<Block> parts_of(const Layout& layout, const Mesh& mesh) {
  std::vector<Block> parts;
  for (int position = 0; position < mesh.size(); ++position) {
    std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> dims;
    for (const DimLayout& dim : layout.dims) {
      std::int64_t extent = 1;
      for (const Factor& factor : dim) extent *= factor.size;
      dims.emplace_back(extent, positions_in(held_ranges(dim, mesh, position)));
    }
    parts.emplace_back(std::move(dims));
  }
  return parts;
}

const std::vector<Block>& Interpreter::read(BufferId id, int micro_batch) {
  const Buffer& buffer = program_.buffers[id];
  const auto found = values_.find(buffer.storage);
  if (found != values_.end()) return found->second;
  const bool leaf =
      buffer.kind == BufferKind::Input || buffer.kind == BufferKind::Parameter || buffer.kind == BufferKind::State;
  if (!leaf)
    throw std::runtime_error("buffer " + std::to_string(id.index()) + " of " + graph_.name(buffer.tensor) +
                             " is read before it is written");
  std::vector<Block> parts = parts_of(buffer.layout, program_.meshes[buffer.layout.mesh]);
  const Block value = leaf_(buffer.tensor, micro_batch);
  for (Block& part : parts) part.copy_from(value);
  return values_[buffer.storage] = std::move(parts);
}

void Interpreter::write(BufferId id, std::vector<Block> parts) {
  const Buffer& buffer = program_.buffers[id];
  const std::vector<Block> expected = parts_of(buffer.layout, program_.meshes[buffer.layout.mesh]);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].held() != expected[i].held())
      throw std::runtime_error("buffer of " + graph_.name(buffer.tensor) + " is not laid out as the program says: " +
                               print(buffer.layout, program_.meshes[buffer.layout.mesh]));
  values_[buffer.storage] = std::move(parts);
}

void Interpreter::compute(const Compute& compute, const Mesh& mesh) {
  const Signature& signature = graph_.signature(compute.op);
  std::vector<std::vector<Block>> outputs(compute.outputs.size());
  for (int position = 0; position < mesh.size(); ++position) {
    const AxisSlices slices = axis_slices(signature, compute.sharding, mesh, position);
    std::vector<Block> inputs, made;
    for (BufferId input : compute.inputs)
      inputs.push_back(read(input, micro_batch_)[static_cast<std::size_t>(position)]);
    for (const Operand& output : signature.outputs) made.emplace_back(signature, output, slices);
    run_kernel(signature, slices, inputs, made);
    for (std::size_t i = 0; i < made.size(); ++i) outputs[i].push_back(std::move(made[i]));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) write(compute.outputs[i], std::move(outputs[i]));
}

void Interpreter::communicate(const Communicate& communicate, const Mesh& mesh) {
  for (std::size_t b = 0; b < communicate.inputs.size(); ++b) {
    const std::vector<Block>& in = read(communicate.inputs[b], micro_batch_);
    std::vector<Block> out = parts_of(program_.buffers[communicate.outputs[b]].layout, mesh);
    const bool sums = communicate.collective == Collective::AllReduce ||
                      communicate.collective == Collective::ReduceScatter ||
                      communicate.collective == Collective::HaloSum;
    for (int position = 0; position < mesh.size(); ++position) {
      const std::vector<int> members = communicate.collective == Collective::Slice
                                           ? std::vector<int>{position}
                                           : mesh.group(position, MeshAxes{1} << communicate.mesh_axis);
      Block& target = out[static_cast<std::size_t>(position)];
      std::vector<double>& values = target.values();
      target.for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
        bool found = false;
        double total = 0;
        for (int member : members) {
          const Block& source = in[static_cast<std::size_t>(member)];
          if (!source.holds(at)) continue;
          const double value = source.at(at);
          if (!found || !sums) {
            if (!found) total = value;
          } else {
            switch (communicate.reducer) {
              case Reducer::Sum:
                total += value;
                break;
              case Reducer::Max:
                total = std::max(total, value);
                break;
              case Reducer::LogSumExp:
                total = std::max(total, value) + std::log1p(std::exp(-std::fabs(total - value)));
                break;
              case Reducer::SoftmaxMerge:
                throw std::runtime_error("a softmax merge needs its weights");
            }
          }
          found = true;
        }
        if (!found) throw std::runtime_error("a collective does not find an element it must deliver");
        values[offset] = total;
      });
    }
    write(communicate.outputs[b], std::move(out));
  }
}

void Interpreter::play(const std::vector<InstructionId>& body, int micro_batch, int micro_batches) {
  micro_batch_ = micro_batch;
  for (InstructionId id : body) {
    const Instruction& instruction = program_.instructions[id];
    if (instruction.guard == Guard::FirstMicroBatch && micro_batch != 0) continue;
    if (instruction.guard == Guard::LastMicroBatch && micro_batch + 1 != micro_batches) continue;
    const Mesh& mesh = program_.meshes[instruction.mesh];
    if (const auto* compute_instruction = std::get_if<Compute>(&instruction.what)) compute(*compute_instruction, mesh);
    if (const auto* communicate_instruction = std::get_if<Communicate>(&instruction.what))
      communicate(*communicate_instruction, mesh);
  }
}

void Interpreter::run(int micro_batches) {
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    // Only what is kept from step to step survives a micro-batch.
    std::erase_if(values_, [&](const auto& entry) {
      const BufferKind kind = program_.buffers[entry.first].kind;
      return kind != BufferKind::Parameter && kind != BufferKind::State;
    });
    play(program_.stages[0].forward, micro_batch, micro_batches);
    play(program_.stages[0].backward, micro_batch, micro_batches);
  }
  play(program_.step, micro_batches - 1, micro_batches);
}

Block Interpreter::whole(BufferId id) const {
  const Buffer& buffer = program_.buffers[id];
  const Mesh& mesh = program_.meshes[buffer.layout.mesh];
  const std::vector<Block>& parts = values_.at(buffer.storage);
  const Shape& shape = graph_.tensors()[buffer.tensor].type.shape;
  MeshAxes partial = 0;
  for (std::size_t axis = 0; axis < buffer.layout.partial.size(); ++axis)
    if (buffer.layout.partial[axis]) partial |= MeshAxes{1} << axis;

  // Contributions add up along the partial axes; the sums of all groups that hold an element must agree.
  std::vector<Block> sums = parts;
  Block result(shape), seen(shape);
  for (int position = 0; position < mesh.size(); ++position) {
    const int leader = mesh.group_leader(position, partial);
    if (leader == position) continue;
    std::vector<double>& sum = sums[static_cast<std::size_t>(leader)].values();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[static_cast<std::size_t>(position)].values()[i];
  }
  for (int position = 0; position < mesh.size(); ++position) {
    if (mesh.group_leader(position, partial) != position) continue;
    const Block& part = sums[static_cast<std::size_t>(position)];
    part.for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
      const double value = part.values()[offset];
      if (seen.at(at) != 0 && !(std::fabs(result.at(at) - value) <= 1e-9 * std::max(1.0, std::fabs(value))))
        throw std::runtime_error("replicas of " + graph_.name(buffer.tensor) + " differ");
      result.at(at) = value;
      seen.at(at) = 1;
    });
  }
  for (double held : seen.values())
    if (held == 0) throw std::runtime_error("nobody holds a part of " + graph_.name(buffer.tensor));
  return result;
}

}  // namespace weft::reference
