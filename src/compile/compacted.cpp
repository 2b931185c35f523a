#include "base/check.h"
#include "compile/compilation.h"

namespace weft {
namespace {

class Compactor {
 public:
  explicit Compactor(Program from)
      : from_(std::move(from)),
        instructions_(from_.instructions.size()),
        buffers_(from_.buffers.size()),
        transfers_(from_.transfers.size()) {}

  Program run() {
    to_.meshes = std::move(from_.meshes);
    to_.world = from_.world;
    to_.instructions.reserve(from_.instructions.size());
    to_.buffers.reserve(from_.buffers.size());
    for (const StageProgram& stage : from_.stages) {
      StageProgram& copy = to_.stages.emplace_back();
      copy.forward = body(stage.forward);
      copy.backward = body(stage.backward);
    }
    to_.step = body(from_.step);
    for (BufferId id : order_) {
      Buffer buffer = std::move(from_.buffers[id]);
      buffer.storage = buffers_[buffer.storage];
      buffer.memory = buffers_[buffer.memory];
      to_.buffers.push_back(std::move(buffer));
    }
    for (Instruction& instruction : to_.instructions)
      for (InstructionId& id : instruction.after) {
        WEFT_CHECK(instructions_[id].valid(), "an instruction waits for one that is never issued");
        id = instructions_[id];
      }
    return std::move(to_);
  }

 private:
  std::vector<InstructionId> body(const std::vector<InstructionId>& list) {
    std::vector<InstructionId> result;
    result.reserve(list.size());
    for (InstructionId id : list) {
      Instruction& instruction = from_.instructions[id];
      std::visit([&](auto& what) { rename(what); }, instruction.what);
      instructions_[id] = to_.instructions.push_back(std::move(instruction));
      result.push_back(instructions_[id]);
    }
    return result;
  }
  void rename(BufferId& id) {
    if (!buffers_[id].valid()) {
      buffers_[id] = BufferId(order_.size());
      order_.push_back(id);
      // The buffers whose memory it shares are kept too, even if no instruction names them.
      BufferId storage = from_.buffers[id].storage, memory = from_.buffers[id].memory;
      rename(storage);
      rename(memory);
    }
    id = buffers_[id];
  }
  void rename(BufferList& list) {
    for (BufferId& id : list) rename(id);
  }
  void rename(TransferId& id) {
    if (!transfers_[id].valid()) {
      Transfer transfer = from_.transfers[id];
      rename(transfer.from);
      rename(transfer.to);
      transfers_[id] = to_.transfers.push_back(transfer);
    }
    id = transfers_[id];
  }
  void rename(Compute& what) {
    rename(what.inputs);
    rename(what.outputs);
  }
  void rename(Communicate& what) {
    rename(what.inputs);
    rename(what.outputs);
  }
  void rename(Send& what) { rename(what.transfer); }
  void rename(Receive& what) { rename(what.transfer); }
  void rename(SumScalars& what) {
    rename(what.inputs);
    rename(what.outputs);
  }
  void rename(Copy& what) {
    rename(what.from);
    rename(what.to);
  }
  void rename(Combine& what) {
    rename(what.inputs);
    rename(what.outputs);
  }
  void rename(Wait&) {}
  void rename(Free& what) { rename(what.buffer); }

  Program from_;  // its buffers and instructions are moved out
  Program to_;
  IdVec<InstructionId, InstructionId> instructions_;
  IdVec<BufferId, BufferId> buffers_;
  IdVec<TransferId, TransferId> transfers_;
  std::vector<BufferId> order_;
};

}  // namespace

Program compacted(Program program) { return Compactor(std::move(program)).run(); }

}  // namespace weft
