#include "forecast/memory.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "forecast/scratch.h"
#include "graph/routing.h"
#include "price/communications.h"

namespace weft {

namespace {

bool is_kept(BufferKind kind) { return outlives_micro_batches(kind); }

bool is_uneven(const Layout& layout) {
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim)
      for (const Cut& cut : factor.cuts)
        if (!cut.shares.empty()) return true;
  return false;
}

}  // namespace

std::string without_numbers(std::string_view name) {
  std::string pattern;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string_view word = name.substr(at, end - at);
    if (!pattern.empty()) pattern += '.';
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
    pattern += number ? std::string_view("*") : word;
    at = end + 1;
  }
  return pattern;
}

std::vector<MemoryClass> memory_classes(const CompiledStrategy& compiled, const Cluster& cluster,
                                        const std::vector<DeviceId>& ranks) {
  const Program& program = compiled.program;
  const IdVec<MeshId, std::int32_t> rank_of = ranks_of_meshes(program, compiled.schedule);
  // Mesh axes along which some buffer has uneven parts, with their shares.
  IdVec<MeshId, std::set<std::tuple<int, int, Shares>>> uneven(program.meshes.size());
  for (const Buffer& buffer : program.buffers)
    for (const DimLayout& dim : buffer.layout.dims)
      for (const Factor& factor : dim)
        for (const Cut& cut : factor.cuts)
          if (!cut.shares.empty()) uneven[buffer.layout.mesh].emplace(cut.mesh_axis, cut.rotate, cut.shares);

  std::map<DeviceId, std::vector<std::uint64_t>> keys;
  std::map<DeviceId, std::vector<MeshId>> meshes;
  for (MeshId id : program.meshes.ids()) {
    if (id == program.world) continue;
    const Mesh& mesh = program.meshes[id];
    for (int position = 0; position < mesh.size(); ++position) {
      const DeviceId device = mesh.devices()[static_cast<std::size_t>(position)];
      meshes[device].push_back(id);
      std::vector<std::uint64_t>& key = keys[device];
      key.push_back(id.index());
      for (const auto& [axis, rotate, shares] : uneven[id]) {
        const auto parts = static_cast<int>(shares.size());
        const int part = ((mesh.coordinate(position, axis) - rotate) % parts + parts) % parts;
        key.push_back(static_cast<std::uint64_t>(shares[static_cast<std::size_t>(part)]));
      }
    }
  }
  std::map<std::pair<std::vector<std::uint64_t>, const DeviceSpec*>, std::size_t> known;
  const auto issued =
      std::make_shared<const std::vector<std::vector<IssuedBody>>>(issue_order(program, compiled.schedule));
  std::vector<MemoryClass> classes;
  for (DeviceId device : ranks) {
    const auto [found, fresh] = known.try_emplace({keys[device], &cluster.spec(device)}, classes.size());
    if (fresh) {
      MemoryClass& made = classes.emplace_back(MemoryClass{meshes[device], {}, 0, issued});
      for (MeshId id : made.meshes)
        if (rank_of[id] >= 0) made.rank = rank_of[id];
    }
    classes[found->second].devices.push_back(device);
  }
  return classes;
}

MemoryOfClass::MemoryOfClass(const CompiledStrategy& compiled, const TrainingGraph& training,
                             const SoftwareStack& stack, const MemoryClass& of)
    : compiled_(compiled),
      training_(training),
      stack_(stack),
      class_(of),
      issued_((*of.issued)[static_cast<std::size_t>(of.rank)]),
      saved_(compiled.program.buffers.size(), 0),
      made_in_sums_(made_in_sums(compiled.program, training.graph)),
      gradient_(training.graph.tensors().size(), 0),
      bytes_(compiled.program.buffers.size(), -1) {
  const Program& program = compiled.program;
  const Schedule& schedule = compiled.schedule;
  for (const auto& [parameter, sum] : training.accumulated) gradient_[training.graph.tensors()[sum].storage] = 1;
  find_passing_gradients();
  // The storage of a saved view is saved, whatever its own kind.
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == BufferKind::Saved) saved_[buffer.memory] = 1;

  IdVec<MeshId, char> own(program.meshes.size(), 0);
  for (MeshId id : of.meshes) own[id] = 1;
  own[program.world] = 1;
  const IdVec<TensorId, double> narrow = narrow_copies(program, training.graph, stack_);
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.memory != id || buffer.on_host || !keeps(id) || !own[buffer.layout.mesh]) continue;
    Bytes& kind = buffer.kind == BufferKind::Parameter ? kept_.parameters
                  : kind_of(id) == "buffers"           ? kept_.buffers
                  : gradient_[buffer.tensor]           ? kept_.gradients
                                                       : kept_.optimizer;
    kind += bytes_of_buffer(id);
    kept_buffers_.push_back(id);
    if (buffer.kind == BufferKind::Parameter)
      kept_.parameters.value +=
          static_cast<std::int64_t>(static_cast<double>(bytes_of_buffer(id).value * 8 /
                                                        bits_of(training.graph.tensors()[buffer.tensor].type.dtype)) *
                                    narrow[buffer.tensor]);
  }

  // The optimizer step follows the last micro-batch.
  std::vector<std::vector<std::size_t>> of_micro_batch(static_cast<std::size_t>(schedule.micro_batches));
  for (const IssuedBody& each : issued_) {
    const auto [found, fresh] = index_.try_emplace({each.body, each.part}, bodies_.size());
    if (fresh) {
      std::vector<InstructionId>& body = bodies_.emplace_back();
      for (InstructionId id : body_at(program, each.body))
        if (const Instruction& instruction = program.instructions[id];
            own[instruction.mesh] && in_part(each.part, instruction.weight_part))
          body.push_back(id);
    }
    of_micro_batch[static_cast<std::size_t>(each.micro_batch)].push_back(body_of_play_.size());
    body_of_play_.push_back(found->second);
  }

  plays_.resize(body_of_play_.size());
  std::map<std::vector<std::size_t>, std::size_t> like;  // bodies with their guards → first such micro-batch
  for (std::size_t m = 0; m < of_micro_batch.size(); ++m) {
    std::vector<std::size_t> bodies;
    for (std::size_t play : of_micro_batch[m])
      bodies.push_back(4 * body_of_play_[play] + (is_first(play) ? 1 : 0) + (is_last(play) ? 2 : 0));
    const auto [found, fresh] = like.try_emplace(std::move(bodies), m);
    if (fresh) {
      play_micro_batch(of_micro_batch[m]);
    } else {
      for (std::size_t i = 0; i < of_micro_batch[m].size(); ++i)
        plays_[of_micro_batch[m][i]] = plays_[of_micro_batch[found->second][i]];
    }
  }
}

bool MemoryOfClass::keeps(BufferId root) const {
  return is_kept(compiled_.program.buffers[root].kind) && passing_[root] == 0;
}

// Gradients that the backward pass allocates and the step gives back: of one micro-batch, and not in buckets to be
// reduced.
void MemoryOfClass::find_passing_gradients() {
  const Program& program = compiled_.program;
  passing_.resize(program.buffers.size(), 0);
  if (stack_.held_gradients.value || compiled_.schedule.micro_batches > 1) return;
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    passing_[id] = buffer.memory == id && buffer.kind == BufferKind::State && gradient_[buffer.tensor];
  }
  for (const Instruction& instruction : program.instructions)
    if (std::holds_alternative<Communicate>(instruction.what))
      for (BufferId id : reads_of(program, instruction)) passing_[program.buffers[id].memory] = 0;
}

const std::vector<InstructionId>& MemoryOfClass::instructions(std::size_t play) const {
  return bodies_[body_of_play_[play]];
}

Bytes MemoryOfClass::bytes_of_buffer(BufferId id) const {
  if (!smaller_ && bytes_[id] >= 0) return {bytes_[id]};
  const Program& program = smaller_ ? *compiled_.last : compiled_.program;
  const Buffer& buffer = program.buffers[id];
  const Mesh& mesh = program.meshes[buffer.layout.mesh];
  std::int64_t elements = 1;
  if (is_uneven(buffer.layout)) {
    for (std::int64_t size : local_shape(buffer.layout, mesh, mesh.position_of(class_.devices.front())))
      elements *= size;
  } else {
    elements = largest_local_elements(buffer.layout, mesh);
  }
  std::int64_t bytes = bytes_of(stored_type(program, training_.graph, id), elements);
  if (saved_[buffer.memory]) bytes += elements * beside_per_element(training_.graph, buffer.tensor, stack_);
  if (buffer.narrow)
    bytes += static_cast<std::int64_t>(static_cast<double>(elements) * scale_bytes_of(stack_.recipe.value));
  if (!smaller_) bytes_[id] = bytes;
  return {bytes};
}

// Weights and gradients that lie in one flat buffer are cut as that: only its end is padded, and nothing is copied.
bool MemoryOfClass::is_flat(const Communicate& communicate) const {
  const IdVec<TensorId, Tensor>& tensors = training_.graph.tensors();
  const TensorId storage = tensors[compiled_.program.buffers[communicate.inputs[0]].tensor].storage;
  if (gradient_[storage]) return stack_.flat_gradients.value;
  const TensorKind kind = tensors[storage].kind;
  return (kind == TensorKind::Parameter || kind == TensorKind::Update) && stack_.flat_parameters.value;
}

std::int64_t MemoryOfClass::scratch_of(const Instruction& instruction) const {
  // The padded part, and the padded parts of all members, in contiguous buffers.
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
      communicate && communicate->parts == Parts::Padded && !is_flat(*communicate)) {
    const Program& program = smaller_ ? *compiled_.last : compiled_.program;
    return part_bytes(program, training_.graph, *communicate).largest *
           (1 + program.meshes[instruction.mesh].group_size(communicate->axes));
  }
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what); communicate && communicate->staged)
    return staging_bytes(compiled_.program, training_.graph, *communicate,
                         [&](BufferId id) { return bytes_of_buffer(id).value; });
  // An all-to-all over experts or sequence needs a permuted copy before or after. With `tokens_once` the received rows
  // are fewer than the rows of the experts' input.
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
      communicate && communicate->collective == Collective::AllToAll && !communicate->tokens_once) {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < communicate->inputs.size(); ++i)
      if (repackings(compiled_.program, communicate->inputs[i], communicate->outputs[i]) > 0)
        most = std::max(most, bytes_of_buffer(communicate->outputs[i]).value);
    return most;
  }
  const auto* compute = std::get_if<Compute>(&instruction.what);
  if (!compute) return 0;
  const Signature& signature = training_.graph.signature(compute->op);
  // Rows of experts are padded in a copy. What the first product reads so is held until the second has made as many rows,
  // which are copied to be taken apart: in one function of Megatron Core's, backward in the same order.
  if (factor_type(compute->products) && stack_.pads_by_copy.value)
    if (const Operand* const rows = ragged_rows(signature); rows != nullptr)
      return bytes_of_buffer(rows == &signature.inputs[0] ? compute->inputs[0] : compute->outputs[0]).value *
             (rows == &signature.inputs[0] ? 1 : 2);
  const double each = scratch_per_element(signature, stack_);
  if (each <= 0) return 0;
  std::int64_t most = 0;
  for (const auto& list : {reads_of(compiled_.program, instruction), writes_of(compiled_.program, instruction)})
    for (BufferId id : list) {
      const DType dtype = stored_type(compiled_.program, training_.graph, id);
      most = std::max(most, bytes_of_buffer(id).value * 8 / bits_of(dtype));
    }
  return static_cast<std::int64_t>(each * static_cast<double>(most));
}

// Visits the plays of one micro-batch in order, carrying its buffers from one to the next.
void MemoryOfClass::play_micro_batch(const std::vector<std::size_t>& plays) {
  const Program& program = compiled_.program;
  IdVec<BufferId, char> held(program.buffers.size(), 0);
  IdVec<BufferId, int> net(program.buffers.size(), 0);
  smaller_ = compiled_.last && issued(plays.front()).micro_batch + 1 == compiled_.schedule.micro_batches;
  for (std::size_t play : plays) {
    auto body = std::make_unique<BodyMemory>();
    const bool first = is_first(play);
    const auto count = [&](std::size_t position, BufferId id, std::int64_t bytes, bool activation) {
      if (bytes == 0) return;
      body->changes.push_back({static_cast<std::uint32_t>(position), id, bytes, activation});
      (activation ? body->activations : body->buffers) += bytes;
      if (body->activations + body->buffers > body->most) {
        body->most = body->activations + body->buffers;
        body->highest = body->changes.size();
      }
    };
    const auto change = [&](std::size_t position, BufferId id, int sign) {
      held[id] = sign > 0;
      count(position, id, sign * bytes_of_buffer(id).value, saved_[id] != 0);
    };
    const std::vector<InstructionId>& list = instructions(play);
    for (std::size_t position = 0; position < list.size(); ++position) {
      const Instruction& instruction = program.instructions[list[position]];
      if (!is_let_through(instruction.guard, issued_[play].micro_batch, issued_[play].visits)) continue;
      if (const auto* free = std::get_if<Free>(&instruction.what)) {
        if (held[free->buffer]) change(position, free->buffer, -1);
        continue;
      }
      for (const auto& touched : {reads_of(program, instruction), writes_of(program, instruction)})
        for (BufferId id : touched) {
          const BufferId root = program.buffers[id].memory;
          if (!keeps(root) && !program.buffers[root].on_host && !held[root] && !(first && made_in_sums_[root]))
            change(position, root, 1);
        }
      if (const std::int64_t scratch = scratch_of(instruction); scratch > 0)
        for (const int sign : {1, -1}) count(position, BufferId(), sign * scratch, false);
    }
    // Buffers allocated and freed in one body cancel out.
    for (const MemoryChange& each : body->changes)
      if (each.buffer.valid()) net[each.buffer] += each.bytes < 0 ? -1 : 1;
    for (const MemoryChange& each : body->changes)
      if (each.buffer.valid())
        if (const int by = std::exchange(net[each.buffer], 0); by != 0) body->left.emplace_back(each.buffer, by);
    std::sort(body->left.begin(), body->left.end());
    plays_[play] = body.get();
    made_.push_back(std::move(body));
  }
  smaller_ = false;
}

MemoryOfClass::Peak MemoryOfClass::peak() const {
  Peak peak{kept_, 0, {}};
  std::int64_t activations = 0, buffers = 0, most = 0;
  bool found = false;
  for (std::size_t play = 0; play < plays(); ++play) {
    const BodyMemory& each = body(play);
    if (activations + buffers + each.most > most) {
      most = activations + buffers + each.most;
      peak.play = play;
      found = true;
    }
    activations += each.activations;
    buffers += each.buffers;
  }
  if (!found) return peak;
  for (std::size_t play = 0; play < peak.play; ++play) {
    peak.held.activations.value += body(play).activations;
    peak.held.buffers.value += body(play).buffers;
  }
  const BodyMemory& highest = body(peak.play);
  for (std::size_t i = 0; i < highest.highest; ++i)
    (highest.changes[i].activation ? peak.held.activations : peak.held.buffers).value += highest.changes[i].bytes;
  // Gradients are counted as such.
  const auto move = [&](BufferId id, std::int64_t bytes) {
    if (!id.valid() || passing_[id] == 0) return;
    peak.held.buffers.value -= bytes;
    peak.held.gradients.value += bytes;
  };
  for (std::size_t play = 0; play < peak.play; ++play)
    for (const MemoryChange& each : body(play).changes) move(each.buffer, each.bytes);
  for (std::size_t i = 0; i < highest.highest; ++i) move(highest.changes[i].buffer, highest.changes[i].bytes);
  if (highest.highest > 0) peak.at = instructions(peak.play)[highest.changes[highest.highest - 1].position];
  return peak;
}

std::string_view MemoryOfClass::kind_of(BufferId id) const {
  const Buffer& buffer = compiled_.program.buffers[id];
  if (buffer.kind == BufferKind::Parameter) return "parameters";
  if (buffer.kind == BufferKind::State && !sums_losses(training_.graph, buffer.tensor))
    return gradient_[buffer.tensor] ? "gradients" : "optimizer";
  return saved_[id] ? "activations" : "buffers";
}

std::vector<MemoryOfClass::Alive> MemoryOfClass::alive_at(const Peak& peak) const {
  std::map<BufferId, std::int64_t> count;
  for (BufferId id : kept_buffers_) count[id] = 1;
  for (std::size_t play = 0; play < peak.play; ++play)
    for (const auto& [id, by] : body(play).left) count[id] += by;
  const BodyMemory& highest = body(peak.play);
  std::map<std::pair<std::string, std::string>, Alive> groups;
  std::int64_t scratch = 0;
  for (std::size_t i = 0; i < highest.highest; ++i) {
    const MemoryChange& change = highest.changes[i];
    if (change.buffer.valid())
      count[change.buffer] += change.bytes < 0 ? -1 : 1;
    else
      scratch += change.bytes;
  }
  if (scratch > 0) groups[{"scratch and staging", "buffers"}] = {"scratch and staging", "buffers", 1, {scratch}};
  for (const auto& [id, times] : count) {
    if (times == 0) continue;
    const std::string name = without_numbers(training_.graph.name(compiled_.program.buffers[id].tensor));
    const std::string kind(kind_of(id));
    Alive& group = groups.try_emplace({name, kind}, Alive{name, kind, 0, {}}).first->second;
    group.count += times;
    group.bytes += bytes_of_buffer(id) * times;
  }
  std::vector<Alive> alive;
  for (auto& [key, group] : groups) alive.push_back(std::move(group));
  std::stable_sort(alive.begin(), alive.end(), [](const Alive& a, const Alive& b) { return a.bytes > b.bytes; });
  return alive;
}

IdVec<TensorId, double> narrow_copies(const Program& program, const Graph& graph, const SoftwareStack& stack) {
  IdVec<TensorId, double> bytes(graph.tensors().size(), 0);
  const RecipeTraits& recipe = traits_of(stack.recipe.value);
  if (!stack.keeps_casts.value || recipe.of_rows) return bytes;
  for (const Instruction& instruction : program.instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.what);
    const std::optional<DType> narrow = compute ? factor_type(compute->products) : std::nullopt;
    if (!narrow) continue;
    for (BufferId input : compute->inputs)
      if (const Tensor& read = graph.tensors()[program.buffers[input].tensor]; read.kind == TensorKind::Parameter) {
        // Square blocks of weights: their scales are next to nothing.
        const double scales = recipe.recipe == Recipe::Blockwise ? 0 : scale_bytes_of(recipe.recipe);
        const double copies = 2 * (bits_of(*narrow) / 8.0 + scales);
        bytes[program.buffers[input].tensor] =
            stack.narrow_weights.value ? std::max(0.0, copies - bits_of(read.type.dtype) / 8.0) : copies;
      }
  }
  return bytes;
}

MemoryOverheads memory_overheads(const SoftwareStack& stack) {
  return {stack.fragmentation,
          {{2 << 20}, "PyTorch CUDACachingAllocator: segments of large requests are multiples of 2 MiB"},
          stack.context,
          stack.communicator};
}

Bytes reserved_estimate(const HeldBytes& held, const SoftwareStack& stack) {
  const MemoryOverheads overheads = memory_overheads(stack);
  const Bytes moving = held.activations + held.buffers;
  const auto wasted = static_cast<std::int64_t>(static_cast<double>(moving.value) * overheads.fragmentation.value);
  const std::int64_t segment = overheads.segment.value.value;
  return {(held.total().value + wasted + segment - 1) / segment * segment};
}

int communicators_of(const CompiledStrategy& compiled, const MemoryClass& of) {
  const Program& program = compiled.program;
  const DeviceId device = of.devices.front();
  std::set<std::pair<MeshId, MeshAxes>> axes;
  bool transfers = false;
  for (const Instruction& instruction : program.instructions) {
    const bool own = instruction.mesh == program.world ||
                     std::find(of.meshes.begin(), of.meshes.end(), instruction.mesh) != of.meshes.end();
    if (!own) continue;
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      if (communicate->collective != Collective::Slice) axes.emplace(instruction.mesh, communicate->axes);
    } else {
      transfers = transfers || std::holds_alternative<Send>(instruction.what) ||
                  std::holds_alternative<Receive>(instruction.what);
    }
  }
  std::set<std::vector<DeviceId>> groups;
  for (const auto& [id, along] : axes) {
    const Mesh& mesh = program.meshes[id];
    std::vector<DeviceId> members;
    for (int position : mesh.group(mesh.position_of(device), along))
      members.push_back(mesh.devices()[static_cast<std::size_t>(position)]);
    if (members.size() > 1) groups.insert(std::move(members));
  }
  return static_cast<int>(groups.size()) + (transfers ? 1 : 0);
}

}  // namespace weft
