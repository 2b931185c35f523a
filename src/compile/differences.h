// What a group that is lowered again finds other than it was before: the operators that have changed, and the meshes on
// which other buffers of a tensor are available to later events.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "compile/current_group.h"
#include "compile/origins.h"

namespace weft {

class Differences {
 public:
  // All are kept by reference.
  Differences(const Graph& graph, const Program& program, const CurrentGroup& group, const Origins& origins)
      : program_(program), group_(group), origins_(origins), changed_(graph.ops().size(), 0) {}

  void mark_changed(std::span<const OpId> ops, bool changed) {
    for (OpId op : ops) changed_[op] = changed;
  }
  bool changed(OpId op) const { return changed_[op] != 0; }

  // Forgets what was noted of the group before.
  void begin_group();
  // What the group's journal gets from here on belongs to the passage that begins.
  void begin_passage();
  // Compares what the passage has made available with what it did before (`old`; null: it is new).
  void note(const Passage& passage, const Passage* old);

  // Whether other buffers of the tensor are available on the mesh than before, or they have another writer or memory.
  // In a group of activations, whose tensors share memory or are merged together: of any of its tensors.
  bool at(TensorId tensor, MeshId on) const;
  // Whether a buffer that kept its number has another writer or memory.
  bool rewritten(BufferId id) const;

 private:
  const Program& program_;
  const CurrentGroup& group_;
  const Origins& origins_;
  IdVec<OpId, char> changed_;
  std::vector<std::pair<TensorId, MeshId>> places_;
  std::vector<BufferId> rewritten_;
  std::size_t buffers_begin_ = 0, origins_begin_ = 0;  // of the passage, in the journal
};

}  // namespace weft
