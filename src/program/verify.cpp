#include "program/verify.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace weft {
namespace {

class Verifier {
 public:
  Verifier(const Program& program, const Graph& graph, const Schedule& schedule)
      : program_(program), graph_(graph), schedule_(schedule) {}

  Status run() {
    const std::size_t stages = schedule_.routes.size() * static_cast<std::size_t>(schedule_.stages());
    if (stages != program_.stages.size())
      return error("the schedule has {} stages, the program {}", stages, program_.stages.size());
    WEFT_TRY_OK(check_transfers());
    WEFT_TRY_OK(check_shapes());
    return play();
  }

 private:
  std::string buffer_name(BufferId id) const {
    return fmt::format("buffer {} of {}", id.index(), graph_.name(program_.buffers[id].tensor));
  }
  static bool kept(BufferKind kind) { return kind == BufferKind::Parameter || kind == BufferKind::State; }

  Status check_transfers() const {
    IdVec<TransferId, int> sent(program_.transfers.size(), 0), received(program_.transfers.size(), 0);
    for (const Instruction& instruction : program_.instructions) {
      if (const auto* send = std::get_if<Send>(&instruction.what)) {
        ++sent[send->transfer];
        if (program_.buffers[program_.transfers[send->transfer].from].layout.mesh != instruction.mesh)
          return error("transfer {} is sent by another mesh than holds it", send->transfer.index());
      }
      if (const auto* receive = std::get_if<Receive>(&instruction.what)) {
        ++received[receive->transfer];
        if (program_.buffers[program_.transfers[receive->transfer].to].layout.mesh != instruction.mesh)
          return error("transfer {} is received by another mesh than needs it", receive->transfer.index());
      }
    }
    for (TransferId id : program_.transfers.ids())
      if (sent[id] != 1 || received[id] != 1)
        return error("transfer {} is sent {} times and received {} times", id.index(), sent[id], received[id]);
    return Ok{};
  }

  static std::int64_t extent(const DimLayout& dim) {
    std::int64_t size = 1;
    for (const Factor& factor : dim) size *= factor.size;
    return size;
  }

  // A scalar that the whole world has may be read on any mesh.
  bool had_by_all(BufferId id) const {
    const Layout& layout = program_.buffers[id].layout;
    return layout.mesh == program_.world && layout.dims.empty() && !is_partial(layout);
  }

  // Layouts cover their tensors, and instructions stay on their mesh.
  Status check_shapes() const {
    for (BufferId id : program_.buffers.ids()) {
      const Buffer& buffer = program_.buffers[id];
      const Shape& shape = graph_.tensors()[buffer.tensor].type.shape;
      bool covers = buffer.layout.dims.size() == shape.size();
      for (std::size_t d = 0; covers && d < shape.size(); ++d) covers = extent(buffer.layout.dims[d]) == shape[d];
      if (!covers) return error("{}: its layout is of another shape", buffer_name(id));
    }
    for (const Instruction& instruction : program_.instructions) {
      const bool everywhere = std::holds_alternative<SumScalars>(instruction.what);
      for (const auto& list : {reads_of(program_, instruction), writes_of(program_, instruction)})
        for (BufferId id : list)
          if (!everywhere && program_.buffers[id].layout.mesh != instruction.mesh && !had_by_all(id))
            return error("{} is used by an instruction of another mesh", buffer_name(id));
    }
    return Ok{};
  }

  // Whether a value is there, by micro-batch; kept ones always are.
  using Key = std::pair<BufferId, int>;
  Key key(BufferId id, int micro_batch) const { return {id, micro_batch}; }

  Status step(const Instruction& instruction, int micro_batch, bool& waits) {
    waits = false;
    if (const auto* receive = std::get_if<Receive>(&instruction.what))
      if (!in_flight_.contains({receive->transfer, micro_batch})) {
        waits = true;
        return Ok{};
      }
    for (BufferId id : reads_of(program_, instruction)) {
      const Buffer& buffer = program_.buffers[id];
      if (kept(program_.buffers[buffer.storage].kind)) continue;
      if (freed_.contains(key(buffer.memory, micro_batch)))
        return error("{} is read after it was freed", buffer_name(id));
      if (buffer.kind == BufferKind::Input)
        allocated_.insert(key(buffer.memory, micro_batch));
      else if (!written_.contains(key(id, micro_batch)))
        return error("{} is read before it is written", buffer_name(id));
    }
    for (BufferId id : writes_of(program_, instruction)) {
      const Buffer& buffer = program_.buffers[id];
      if (kept(program_.buffers[buffer.storage].kind)) continue;
      if (freed_.contains(key(buffer.memory, micro_batch)))
        return error("{} is written after it was freed", buffer_name(id));
      written_.insert(key(id, micro_batch));
      if (!kept(program_.buffers[buffer.memory].kind)) allocated_.insert(key(buffer.memory, micro_batch));
    }
    if (const auto* send = std::get_if<Send>(&instruction.what)) in_flight_.insert({send->transfer, micro_batch});
    if (const auto* receive = std::get_if<Receive>(&instruction.what))
      in_flight_.erase({receive->transfer, micro_batch});
    if (const auto* free = std::get_if<Free>(&instruction.what)) {
      if (allocated_.erase(key(free->buffer, micro_batch)) == 0)
        return error("{} is freed without being held", buffer_name(free->buffer));
      freed_.insert(key(free->buffer, micro_batch));
    }
    return Ok{};
  }

  Status play() {
    struct Next {
      std::size_t action = 0, instruction = 0;
    };
    std::vector<Next> next(static_cast<std::size_t>(schedule_.ranks));
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        Next& at = next[rank];
        while (at.action < schedule_.actions[rank].size()) {
          const Action& action = schedule_.actions[rank][at.action];
          const std::vector<InstructionId>& body = body_of(program_, schedule_, rank, action);
          bool waits = false;
          for (; at.instruction < body.size() && !waits; at.instruction += waits ? 0 : 1) {
            const Instruction& instruction = program_.instructions[body[at.instruction]];
            if (!plays(action, instruction, schedule_.micro_batches)) continue;
            WEFT_TRY_OK(step(instruction, action.micro_batch, waits));
            progress = progress || !waits;
          }
          if (waits) break;
          at = {at.action + 1, 0};
          progress = true;
        }
      }
    }
    std::vector<std::size_t> waiting;
    for (std::size_t rank = 0; rank < next.size(); ++rank)
      if (next[rank].action < schedule_.actions[rank].size()) waiting.push_back(rank);
    if (!waiting.empty()) return error("deadlock: pipeline ranks {} wait for one another", fmt::join(waiting, ", "));
    const int last = schedule_.micro_batches - 1;
    for (InstructionId id : program_.step) {
      bool waits = false;
      WEFT_TRY_OK(step(program_.instructions[id], last, waits));
      if (waits) return error("the step receives what nobody has sent");
    }
    if (!allocated_.empty()) return error("{} is never freed", buffer_name(allocated_.begin()->first));
    return Ok{};
  }

  const Program& program_;
  const Graph& graph_;
  const Schedule& schedule_;
  std::set<Key> written_, allocated_, freed_;
  std::set<std::pair<TransferId, int>> in_flight_;
};

}  // namespace

Status verify(const Program& program, const Graph& graph, const Schedule& schedule) {
  return Verifier(program, graph, schedule).run();
}

}  // namespace weft
