#include "program/edit.h"

namespace weft {

bool alike(const Program& program, const Instruction& a, const Instruction& b) {
  if (a.mesh != b.mesh || a.stream != b.stream || a.guard != b.guard || a.weight_part != b.weight_part ||
      a.what.index() != b.what.index())
    return false;
  if (const auto* compute = std::get_if<Compute>(&a.what)) return compute->op == std::get<Compute>(b.what).op;
  if (const auto* communicate = std::get_if<Communicate>(&a.what)) {
    const auto& other = std::get<Communicate>(b.what);
    return communicate->collective == other.collective && communicate->axes == other.axes;
  }
  const auto mesh_of = [&](BufferId buffer) { return program.buffers[buffer].layout.mesh; };
  if (const auto* send = std::get_if<Send>(&a.what))
    return mesh_of(program.transfers[send->transfer].to) ==
           mesh_of(program.transfers[std::get<Send>(b.what).transfer].to);
  if (const auto* receive = std::get_if<Receive>(&a.what))
    return mesh_of(program.transfers[receive->transfer].from) ==
           mesh_of(program.transfers[std::get<Receive>(b.what).transfer].from);
  return true;
}

}  // namespace weft
