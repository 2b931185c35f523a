// The order of one rank class: values, memory, and what streams and waits guarantee.
//
// The class issues its instructions one after the other; what that order gives is the meaning of the program. Streams
// run side by side, so two uses of one memory, of which one writes, must also be ordered by streams and waits. `before`
// of an instruction counts, stream by stream, what is complete when it starts: all before it on its own stream, what it
// waits for, and what was complete before those. An earlier use on stream s, the n-th there, is ordered before it if
// before[s] ≥ n.
#include <fmt/format.h>

#include <algorithm>

#include "program/verify_parts.h"

namespace weft {
namespace {

bool kept(BufferKind kind) { return outlives_micro_batches(kind); }
std::size_t at(Stream stream) { return static_cast<std::size_t>(stream); }

class ClassPlayer {
 public:
  ClassPlayer(const Program& program, const Graph& graph, const std::vector<IssuedBody>& issued,
              std::int32_t micro_batches, const RankClass& of)
      : program_(program),
        graph_(graph),
        issued_bodies_(issued),
        micro_batches_(static_cast<std::size_t>(micro_batches)),
        member_(program.meshes.size(), 0),
        place_(program.instructions.size(), kNowhere),
        buffer_place_(program.buffers.size(), kNowhere),
        memory_place_(program.buffers.size(), kNowhere),
        begun_(program.buffers.size(), kGiven) {
    for (MeshId mesh : of.meshes) member_[mesh] = 1;
  }

  Result<ClassPlay> run() {
    lay_out();
    for (const IssuedBody& each : issued_bodies_) {
      now_ = each.visits;
      for (InstructionId id : bodies_[each.body])
        if (plays(each, program_.instructions[id])) WEFT_TRY_OK(issue(id, each.micro_batch));
    }
    for (std::size_t i = 0; i < roots_.size(); ++i)
      for (std::size_t slot = first_slot_[i]; slot < first_slot_[i + 1]; ++slot)
        if (held_[slot] == kHeld)
          return error("{} is never freed (micro-batch {})", described(program_, graph_, roots_[i]),
                       slot - first_slot_[i]);
    return std::move(play_);
  }

 private:
  static constexpr std::uint32_t kNowhere = 0xffffffffu;
  static constexpr std::uint32_t kStreamBits = 4;
  static_assert(kStreams <= 1 << kStreamBits);
  enum Held : char { kUntouched, kHeld, kFreed };
  enum Begun : char { kGiven, kNotBegun, kBegun };
  // By stream the last use so far, as its number on the stream; 0: none.
  struct Uses {
    Clock reads = {}, writes = {};
  };
  struct Access {
    BufferId buffer;
    bool write = false;
    bool view = false;  // makes a view, which leaves the memory unchanged
  };

  // The class's own bodies, and places in the tables for all they touch.
  void lay_out() {
    const auto own = [&](const std::vector<InstructionId>& body) {
      std::vector<InstructionId> list;
      for (InstructionId id : body)
        if (member_[program_.instructions[id].mesh]) {
          place_[id] = static_cast<std::uint32_t>(first_access_.size());
          first_access_.push_back(static_cast<std::uint32_t>(accesses_.size()));
          list_accesses(program_.instructions[id]);
          list.push_back(id);
        }
      return list;
    };
    bodies_.resize(body_count(program_));
    std::vector<char> listed(bodies_.size(), 0);
    for (const IssuedBody& each : issued_bodies_)
      if (!std::exchange(listed[each.body], 1)) bodies_[each.body] = own(body_at(program_, each.body));
    const std::size_t instructions = first_access_.size();
    first_access_.push_back(static_cast<std::uint32_t>(accesses_.size()));
    first_slot_.push_back(0);
    for (BufferId root : roots_)
      first_slot_.push_back(first_slot_.back() + (kept(program_.buffers[root].kind) ? 1 : micro_batches_));
    uses_.resize(first_slot_.back());
    held_.resize(first_slot_.back(), kUntouched);
    made_.resize(buffers_ * micro_batches_, 0);
    issued_.resize(instructions * micro_batches_, 0);
    in_step_.resize(program_.instructions.size(), 0);
    for (InstructionId id : program_.step) in_step_[id] = 1;
  }

  void list_accesses(const Instruction& instruction) {
    const auto add = [&](std::span<const BufferId> list, bool write) {
      for (BufferId id : list) {
        const Buffer& buffer = program_.buffers[id];
        if (!member_[buffer.layout.mesh]) continue;  // a scalar of another mesh, added by its own devices
        accesses_.push_back({id, write, write && buffer.storage == id && buffer.memory != id});
        find_place(id);
      }
    };
    add(reads_of(program_, instruction), false);
    add(writes_of(program_, instruction), true);
    if (const auto* compute = std::get_if<Compute>(&instruction.what); compute && compute->begins)
      begun_[program_.buffers[compute->outputs[0]].storage] = kNotBegun;
    if (const auto* free = std::get_if<Free>(&instruction.what)) find_place(free->buffer);
  }
  void find_place(BufferId id) {
    if (buffer_place_[id] == kNowhere) buffer_place_[id] = buffers_++;
    const BufferId root = program_.buffers[id].memory;
    if (memory_place_[root] != kNowhere) return;
    memory_place_[root] = static_cast<std::uint32_t>(roots_.size());
    roots_.push_back(root);
  }

  std::size_t slot(BufferId root, std::size_t micro_batch) const {
    return first_slot_[memory_place_[root]] + (kept(program_.buffers[root].kind) ? 0 : micro_batch);
  }

  // What is complete when the waits of an instruction are over.
  Status wait(InstructionId id, std::int32_t micro_batch, Clock& clock) const {
    const Instruction& instruction = program_.instructions[id];
    for (InstructionId before : instruction.after) {
      if (place_[before] == kNowhere) continue;  // played by others of the mesh
      const std::size_t row = place_[before] * micro_batches_;
      std::uint32_t found = issued_[row + static_cast<std::size_t>(micro_batch)];
      if (found == 0 && in_step_[id])  // the step comes after every micro-batch, by whatever route they went
        found = *std::max_element(issued_.begin() + static_cast<std::ptrdiff_t>(row),
                                  issued_.begin() + static_cast<std::ptrdiff_t>(row + micro_batches_));
      if (found == 0) {
        const Guard guard = program_.instructions[before].guard;
        if ((guard == Guard::FirstMicroBatch && micro_batch != now_.first) ||
            (guard == Guard::LastMicroBatch && micro_batch != now_.last))
          continue;
        return error("{} waits for {}, which comes later: wait only for what the micro-batch has issued",
                     described(program_, graph_, id), described(program_, graph_, before));
      }
      const Clock& there = play_.before[found - 1];
      for (std::size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], there[s]);
      const std::size_t stream = at(program_.instructions[before].stream);
      clock[stream] = std::max(clock[stream], number_[found - 1]);
    }
    return Ok{};
  }

  std::string named_use(std::size_t stream, std::uint32_t number) const {
    return fmt::format("{} on the {} stream",
                       described(program_, graph_, play_.order[play_.streams[stream][number - 1]].instruction),
                       name_of(static_cast<Stream>(stream)));
  }
  // The use of `uses` that the clock does not cover.
  std::string uncovered(const Clock& uses, const Clock& clock) const {
    for (std::size_t s = 0; s < clock.size(); ++s)
      if (uses[s] > clock[s]) return named_use(s, uses[s]);
    return "";
  }
  static bool covers(const Clock& clock, const Clock& uses) {
    for (std::size_t s = 0; s < clock.size(); ++s)
      if (uses[s] > clock[s]) return false;
    return true;
  }

  Status issue(InstructionId id, std::int32_t micro_batch) {
    const Instruction& instruction = program_.instructions[id];
    const auto m = static_cast<std::size_t>(micro_batch);
    if (const auto* free = std::get_if<Free>(&instruction.what)) return release(id, *free, micro_batch);
    const std::size_t stream = at(instruction.stream);
    const auto number = static_cast<std::uint32_t>(play_.streams[stream].size() + 1);
    Clock clock = last_[stream];
    WEFT_TRY_OK(wait(id, micro_batch, clock));
    const auto where = static_cast<std::uint32_t>(play_.order.size());
    play_.order.push_back({id, micro_batch});
    play_.before.push_back(clock);
    number_.push_back(number);
    play_.streams[stream].push_back(where);
    issued_[place_[id] * micro_batches_ + m] = where + 1;

    const auto* compute = std::get_if<Compute>(&instruction.what);
    if (compute && compute->begins && micro_batch == now_.first)
      begun_[program_.buffers[compute->outputs[0]].storage] = kBegun;
    const std::uint32_t first = first_access_[place_[id]], last = first_access_[place_[id] + 1];
    for (std::uint32_t i = first; i < last; ++i) WEFT_TRY_OK(check(id, accesses_[i], m, clock));
    for (std::uint32_t i = first; i < last; ++i) {
      const Access& access = accesses_[i];
      Uses& uses = uses_[slot(program_.buffers[access.buffer].memory, m)];
      (access.write && !access.view ? uses.writes : uses.reads)[stream] = number;
      if (access.write)
        made_[buffer_place_[access.buffer] * micro_batches_ + m] = number << kStreamBits | std::uint32_t(stream);
    }
    last_[stream] = clock;
    last_[stream][stream] = number;
    return Ok{};
  }

  Status check(InstructionId id, const Access& access, std::size_t m, const Clock& clock) {
    const Buffer& buffer = program_.buffers[access.buffer];
    const std::size_t memory = slot(buffer.memory, m);
    const auto named = [&] { return described(program_, graph_, access.buffer); };
    const auto by = [&] { return described(program_, graph_, id); };
    if (!access.write && begun_[buffer.storage] == kNotBegun)
      return error("{} is read before anything begins it, by {}", named(), by());
    if (!kept(program_.buffers[buffer.storage].kind)) {
      if (held_[memory] == kFreed)
        return error("{} is {} after it was freed, by {}", named(), access.write ? "written" : "read", by());
      const std::uint32_t made = made_[buffer_place_[access.buffer] * micro_batches_ + m];
      if (!access.write && buffer.kind != BufferKind::Input) {
        if (made == 0) return error("{} is read before it is written, by {}", named(), by());
        const std::uint32_t number = made >> kStreamBits, stream = made & ((1u << kStreamBits) - 1);
        if (number > clock[stream])  // a view, made on another stream
          return error("{} reads {} without waiting for {}", by(), named(), named_use(stream, number));
      }
    }
    if (!kept(program_.buffers[buffer.memory].kind)) held_[memory] = kHeld;
    const Uses& uses = uses_[memory];
    if (!covers(clock, uses.writes))
      return error("{} {} {} without waiting for {}", by(), access.write ? "writes" : "reads", named(),
                   uncovered(uses.writes, clock));
    if (access.write && !access.view && !covers(clock, uses.reads))
      return error("{} writes {} while {} may still read it: it must wait", by(), named(),
                   uncovered(uses.reads, clock));
    return Ok{};
  }

  Status release(InstructionId id, const Free& free, std::int32_t micro_batch) {
    const Buffer& buffer = program_.buffers[free.buffer];
    const auto named = [&] { return described(program_, graph_, free.buffer); };
    if (buffer.memory != free.buffer || kept(buffer.kind))
      return error("{} is freed, but its memory is not its own or is kept", named());
    const std::size_t memory = slot(free.buffer, static_cast<std::size_t>(micro_batch));
    if (held_[memory] != kHeld) return error("{} is freed without being held, by #{}", named(), id.index());
    held_[memory] = kFreed;
    Clock clock = {};
    WEFT_TRY_OK(wait(id, micro_batch, clock));
    const Uses& uses = uses_[memory];
    for (const Clock* each : {&uses.reads, &uses.writes})
      if (!covers(clock, *each))
        return error("#{} frees {} while {} may still use it: the free must wait for it", id.index(), named(),
                     uncovered(*each, clock));
    return Ok{};
  }

  const Program& program_;
  const Graph& graph_;
  const std::vector<IssuedBody>& issued_bodies_;
  const std::size_t micro_batches_;
  Visits now_ = {};  // of the place whose body is issued
  IdVec<MeshId, char> member_;
  std::vector<std::vector<InstructionId>> bodies_;  // the class's own instructions of each

  // Tables by instruction and buffer have entries only for what the class touches: these are the places of each.
  IdVec<InstructionId, std::uint32_t> place_;
  IdVec<BufferId, std::uint32_t> buffer_place_, memory_place_;
  std::uint32_t buffers_ = 0;
  std::vector<BufferId> roots_;          // memories
  std::vector<std::size_t> first_slot_;  // by memory, into uses_ and held_: one slot per micro-batch, or one if kept
  std::vector<std::uint32_t> first_access_;  // by instruction, into accesses_
  std::vector<Access> accesses_;

  IdVec<BufferId, char> begun_;  // of sums that an accumulation begins: whether it has

  ClassPlay play_;
  std::vector<std::uint32_t> number_;      // by place in the order: on its stream, from 1
  std::array<Clock, kStreams> last_ = {};  // complete when the last one of the stream is
  IdVec<InstructionId, char> in_step_;
  std::vector<std::uint32_t> issued_;  // by instruction and micro-batch: place in the order + 1
  std::vector<std::uint32_t> made_;    // by buffer and micro-batch: who wrote it, number · 16 + stream
  std::vector<Uses> uses_;
  std::vector<char> held_;
};

}  // namespace

Result<ClassPlay> play_class(const Program& program, const Graph& graph, const std::vector<IssuedBody>& issued,
                             std::int32_t micro_batches, const RankClass& of) {
  return ClassPlayer(program, graph, issued, micro_batches, of).run();
}

}  // namespace weft
