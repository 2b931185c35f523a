// Where each parameter and its gradient live: on which meshes (its homes), in which layouts, on the device or the host.
//
// A mesh becomes a home of a parameter when one of its operators first needs it (`add`), and the gradients made on that
// mesh accumulate there. A parameter is stored in the layout in which it is used, cut further by the axes over which
// ZeRO shards weights; its gradient accumulates in the layout in which it is made, or, where gradients are sharded, in
// `gradient_layout`; optimizer state is stored, and the step computed, in `step_layout`.
#pragma once

#include "compile/tensor_buffers.h"

namespace weft {

class ParameterHomes {
 public:
  // All are kept by reference.
  ParameterHomes(const Graph& graph, const CompileOptions& options, Program& program, const CurrentGroup& group,
                 Position& position, Emitter& emitter, TensorBuffers& buffers)
      : graph_(graph),
        options_(options),
        program_(program),
        group_(group),
        position_(position),
        emitter_(emitter),
        buffers_(buffers) {}

  // The mesh of the layout is a home from here on: its operators use the parameter in that layout.
  void add(TensorId parameter, const Layout& used);
  // A parameter's buffer stays as it was before a change, and with it the home.
  void keep(TensorId parameter, BufferId buffer);
  Home& of(TensorId parameter, MeshId on);
  std::vector<Home>& of(TensorId parameter) { return group_.code->homes.at(parameter); }
  bool tied(TensorId parameter) const { return group_.code->homes.at(parameter).size() > 1; }
  // As it was before a change; null: the mesh was no home.
  const Home* before(TensorId parameter, MeshId on) const;

  // Each layout is cut on from the one before, so that between them only the last cuts are made or gathered.
  Layout weight_layout(TensorId parameter, const Layout& used) const;
  Layout gradient_layout(const Home& home) const;
  Layout step_layout(const Home& home) const;
  // The sum of the gradient's terms in a layout; invalid: it has not begun.
  BufferId sum_in(const Home& home, const Layout& layout) const;
  bool offloads(Stored kind, TensorId parameter) const {
    return options_.memory.of(parameter).offload[static_cast<std::size_t>(kind)];
  }

  // Whether it is a parameter that is stored sharded on the device and gathered with the others of its unit (FSDP).
  bool gathers_in_units(TensorId tensor) const;
  // Gathers one for a turn, ahead of it, as a chain that its unit's bucket takes.
  Result<BufferId> gather(TensorId parameter, TurnId turn, const Layout& wanted);

 private:
  const Graph& graph_;
  const CompileOptions& options_;
  Program& program_;
  const CurrentGroup& group_;
  Position& position_;
  Emitter& emitter_;
  TensorBuffers& buffers_;
};

}  // namespace weft
