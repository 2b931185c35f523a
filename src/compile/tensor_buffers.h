// Which buffers hold each tensor of the group at the current position, and how one is made in the layout wanted: by the
// cheapest sequence of collectives from another on the same mesh, or by sending it from another mesh.
//
// All communication of training follows from that one question (`as`): tensor-parallel all-reduces, sequence-parallel
// gathers, expert all-to-alls, ZeRO gathers and reduce-scatters, halos, transfers between stages.
#pragma once

#include <optional>

#include "base/result.h"
#include "compile/emitter.h"
#include "compile/turn_splits.h"

namespace weft {

// How the collectives are emitted that make a buffer in another layout.
struct ReshardManner {
  bool in_place = false;     // what they make lies in the memory of their source
  bool of_transfer = false;  // they put the parts of a transfer together
  // Of a factor of products that round to this type: gathers move it in that type.
  std::optional<DType> factor = {};
};

class TensorBuffers {
 public:
  // All are kept by reference.
  TensorBuffers(const Graph& graph, const CompileOptions& options, Program& program, const CurrentGroup& group,
                Position& position, Origins& origins, Passages& passages, TurnSplits& splits, Emitter& emitter)
      : graph_(graph),
        options_(options),
        program_(program),
        group_(group),
        position_(position),
        origins_(origins),
        passages_(passages),
        splits_(splits),
        emitter_(emitter),
        available_(graph.tensors().size()) {}

  // The buffers that hold a tensor now, in the order they were made.
  BufferList& of(TensorId tensor) { return available_[tensor]; }
  const BufferList& of(TensorId tensor) const { return available_[tensor]; }
  // A new buffer, available to later events.
  BufferId add(TensorId tensor, Layout layout, BufferKind kind);

  // Whether it was rounded to be the factor of a product: then it is no other's operand.
  bool is_factor(BufferId id) const {
    const Buffer& buffer = program_.buffers[id];
    return buffer.narrow && buffer.narrow != emitter_.held_type(buffer.tensor);
  }
  bool readable(BufferId id, const ReshardManner& manner) const {
    return usable(id) && (!is_factor(id) || program_.buffers[id].narrow == manner.factor);
  }
  // Whether the current part of backward may read it.
  bool usable(BufferId id) const { return origins_.usable(id, position_.phase, position_.weight_part); }
  bool on_mesh(TensorId tensor, MeshId on) const;
  // The buffer from which the tensor is sent to a mesh that does not have it; invalid: there is none. A stage before
  // waits for what is sent even where only a weight gradient reads it first: a split backward sends it with the input's
  // part, unless the weights' part makes it.
  BufferId elsewhere(TensorId tensor, MeshId on) const {
    const BufferId source = elsewhere(tensor, on, false);
    return source.valid() ? source : elsewhere(tensor, on, position_.weight_part);
  }

  // A buffer of the tensor in the layout wanted: one that is available, or made now. Fails where no sequence of
  // collectives leads there.
  Result<BufferId> as(TensorId tensor, const Layout& wanted, ReshardManner manner = {});

 private:
  struct Route;
  Result<BufferId> make_as(TensorId tensor, Layout wanted, ReshardManner manner);
  Route cheapest(TensorId tensor, const Layout& wanted, const ReshardManner& manner, std::optional<Error>& problem);
  Result<BufferId> merge_weights(TensorId tensor, Layout contributions, ReshardManner manner);
  bool needs_staging(const ReshardStep& step, const Layout& from) const;
  BufferId elsewhere(TensorId tensor, MeshId on, bool weight_part) const;
  Result<bool> bring(TensorId tensor, const Layout& wanted, ReshardManner manner);
  Result<bool> bring_from(BufferId source, const Layout& wanted, ReshardManner manner);
  Layout in_parts(const Layout& layout) const;

  const Graph& graph_;
  const CompileOptions& options_;
  Program& program_;
  const CurrentGroup& group_;
  Position& position_;
  Origins& origins_;
  Passages& passages_;
  TurnSplits& splits_;
  Emitter& emitter_;
  IdVec<TensorId, BufferList> available_;
};

}  // namespace weft
