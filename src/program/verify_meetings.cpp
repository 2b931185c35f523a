// No deadlock: all rank classes are played together, with zero durations.
//
// On each stream the next instruction starts when what it waits for is complete. A computation is then complete at
// once; a collective when all classes of its mesh have come to it, a transfer when all that send and all that receive
// have. What is left when nothing moves waits in a circle, or for what never comes.
#include <fmt/format.h>

#include "program/verify_parts.h"

namespace weft {
namespace {

class Meetings {
 public:
  Meetings(const Program& program, const Graph& graph, const std::vector<RankClass>& classes,
           const std::vector<ClassPlay>& plays, std::int32_t micro_batches)
      : program_(program),
        graph_(graph),
        classes_(classes),
        plays_(plays),
        micro_batches_(static_cast<std::size_t>(micro_batches)),
        classes_of_(program.meshes.size()),
        meeting_of_(program.instructions.size(), kNone),
        done_(classes.size()),
        arrived_(classes.size()),
        queued_(classes.size(), 1) {
    for (std::size_t c = 0; c < classes.size(); ++c)
      for (MeshId mesh : classes[c].meshes) classes_of_[mesh].push_back(c);
    // Only what takes several parties is a meeting.
    std::vector<std::uint32_t> by_transfer(program.transfers.size(), kNone);
    const auto join = [&](InstructionId id) {
      const Instruction& instruction = program.instructions[id];
      const std::vector<std::size_t>& here = classes_of_[instruction.mesh];
      if (const TransferId* transfer = transfer_of(instruction)) {
        std::uint32_t& meeting = by_transfer[transfer->index()];
        if (meeting == kNone) meeting = new_meeting();
        meeting_of_[id] = meeting;
      } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
                 communicate && communicate->collective != Collective::Slice && here.size() > 1) {
        meeting_of_[id] = new_meeting();
      } else {
        return;
      }
      for (std::size_t c : here) parties_[meeting_of_[id]].push_back({c, stream(id), id});
    };
    for (const StageProgram& stage : program.stages) {
      for (InstructionId id : stage.forward) join(id);
      for (InstructionId id : stage.backward) join(id);
    }
    for (InstructionId id : program.step) join(id);
    count_.resize(parties_.size() * micro_batches_, 0);
  }

  Status run() {
    std::vector<std::size_t> ready(classes_.size());
    for (std::size_t c = 0; c < ready.size(); ++c) ready[c] = ready.size() - 1 - c;
    while (!ready.empty()) {
      const std::size_t c = ready.back();
      ready.pop_back();
      queued_[c] = 0;
      for (bool progress = true; progress;) {
        progress = false;
        for (std::size_t s = 0; s < kStreams; ++s)
          while (advance(c, s, ready)) progress = true;
      }
    }
    for (std::size_t c = 0; c < classes_.size(); ++c)
      for (std::size_t s = 0; s < kStreams; ++s)
        if (done_[c][s] < plays_[c].streams[s].size()) return blocked(c, s);
    return Ok{};
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  struct Party {
    std::size_t rank_class = 0, stream = 0;
    InstructionId instruction;
  };

  std::size_t stream(InstructionId id) const { return static_cast<std::size_t>(program_.instructions[id].stream); }
  static const TransferId* transfer_of(const Instruction& instruction) {
    if (const auto* send = std::get_if<Send>(&instruction.what)) return &send->transfer;
    if (const auto* receive = std::get_if<Receive>(&instruction.what)) return &receive->transfer;
    return nullptr;
  }
  std::uint32_t new_meeting() {
    parties_.emplace_back();
    return static_cast<std::uint32_t>(parties_.size() - 1);
  }
  const Played& head(std::size_t c, std::size_t s) const { return plays_[c].order[plays_[c].streams[s][done_[c][s]]]; }
  // The stream on which it waits for something that is not complete; its own: for none.
  std::size_t awaited(std::size_t c, std::size_t s) const {
    const Clock& before = plays_[c].before[plays_[c].streams[s][done_[c][s]]];
    for (std::size_t other = 0; other < kStreams; ++other)
      if (done_[c][other] < before[other]) return other;
    return s;
  }

  // Whether the stream got on.
  bool advance(std::size_t c, std::size_t s, std::vector<std::size_t>& ready) {
    if (done_[c][s] == plays_[c].streams[s].size() || arrived_[c][s] || awaited(c, s) != s) return false;
    const Played& next = head(c, s);
    const std::uint32_t meeting = meeting_of_[next.instruction];
    if (meeting == kNone) {
      ++done_[c][s];
      return true;
    }
    arrived_[c][s] = 1;
    if (++count_[meeting * micro_batches_ + static_cast<std::size_t>(next.micro_batch)] < parties_[meeting].size())
      return false;
    for (const Party& party : parties_[meeting]) {
      ++done_[party.rank_class][party.stream];
      arrived_[party.rank_class][party.stream] = 0;
      if (party.rank_class == c || queued_[party.rank_class]) continue;
      queued_[party.rank_class] = 1;
      ready.push_back(party.rank_class);
    }
    return true;
  }

  // The error for a deadlock: follows who waits for whom until a party comes up again.
  Error blocked(std::size_t c, std::size_t s) const {
    std::vector<std::array<std::size_t, kStreams>> seen(classes_.size());  // line + 1
    std::vector<std::string> lines;
    while (seen[c][s] == 0) {
      const Played waiting = head(c, s);
      std::string line = fmt::format(
          "device {} at {}, micro-batch {}, on its {} stream", classes_[c].devices.front().index(),
          described(program_, graph_, waiting.instruction), waiting.micro_batch, name_of(static_cast<Stream>(s)));
      seen[c][s] = lines.size() + 1;
      if (!arrived_[c][s]) {
        const std::size_t other = awaited(c, s);
        const Clock& before = plays_[c].before[plays_[c].streams[s][done_[c][s]]];
        const Played& blocker = plays_[c].order[plays_[c].streams[other][before[other] - 1]];
        line += fmt::format(" waits for its own {}", described(program_, graph_, blocker.instruction));
        lines.push_back(std::move(line));
        s = other;
        continue;
      }
      const Party& missing = missing_party(waiting);
      line += fmt::format(" waits for device {} to play {}", classes_[missing.rank_class].devices.front().index(),
                          described(program_, graph_, missing.instruction));
      if (!will_play(missing, waiting.micro_batch)) {
        lines.push_back(line + ", which it never does");
        return error("deadlock: {}", fmt::join(lines, "; "));
      }
      lines.push_back(std::move(line));
      c = missing.rank_class;
      s = missing.stream;
    }
    lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(seen[c][s] - 1));
    if (lines.size() > kMostNamed) {
      const std::size_t more = lines.size() - kMostNamed;
      lines.resize(kMostNamed);
      lines.push_back(fmt::format("and {} more", more));
    }
    return error("deadlock: {}", fmt::join(lines, "; "));
  }
  const Party& missing_party(const Played& waiting) const {
    const std::vector<Party>& parties = parties_[meeting_of_[waiting.instruction]];
    for (const Party& party : parties)
      if (!has_come(party, waiting.micro_batch)) return party;
    WEFT_CHECK(false, "all have come to #{}", waiting.instruction.index());
  }
  bool has_come(const Party& party, std::int32_t micro_batch) const {
    const std::size_t c = party.rank_class, s = party.stream;
    if (!arrived_[c][s]) return false;
    const Played& there = head(c, s);
    return there.instruction == party.instruction && there.micro_batch == micro_batch;
  }
  bool will_play(const Party& party, std::int32_t micro_batch) const {
    const ClassPlay& play = plays_[party.rank_class];
    const std::vector<std::uint32_t>& queue = play.streams[party.stream];
    for (std::size_t i = done_[party.rank_class][party.stream]; i < queue.size(); ++i)
      if (play.order[queue[i]].instruction == party.instruction && play.order[queue[i]].micro_batch == micro_batch)
        return true;
    return false;
  }

  static constexpr std::size_t kMostNamed = 8;

  const Program& program_;
  const Graph& graph_;
  const std::vector<RankClass>& classes_;
  const std::vector<ClassPlay>& plays_;
  const std::size_t micro_batches_;
  IdVec<MeshId, std::vector<std::size_t>> classes_of_;
  IdVec<InstructionId, std::uint32_t> meeting_of_;
  std::vector<std::vector<Party>> parties_;  // by meeting
  std::vector<std::uint32_t> count_;         // by meeting and micro-batch: how many have come
  std::vector<Clock> done_;                  // by class
  std::vector<std::array<char, kStreams>> arrived_;
  std::vector<char> queued_;
};

}  // namespace

Status check_meetings(const Program& program, const Graph& graph, const std::vector<RankClass>& classes,
                      const std::vector<ClassPlay>& plays, std::int32_t micro_batches) {
  return Meetings(program, graph, classes, plays, micro_batches).run();
}

}  // namespace weft
