// Gradient buckets: collectives on gradients that are alike travel together.
#pragma once

#include <functional>

#include "compile/lowering.h"

namespace weft {

// The joined collectives of a bucket on one device group, in the order they are issued, and where.
struct BucketPiece {
  GradientTerm::Key key;
  TurnId turn;
  std::vector<InstructionId> joined;  // one per step
  std::vector<TurnId> members;
};
using BucketCode = std::vector<BucketPiece>;

// Which bucket each accumulation belongs to. Buckets are fixed once, in the order in which gradients become ready, so
// that a later change to one operator touches its own bucket only; within a bucket, gradients of different device
// groups travel apart.
class Buckets {
 public:
  Buckets(const Graph& graph, const Sequence& sequence, const GradientSync& sync, Program& program)
      : graph_(graph), sequence_(sequence), sync_(sync), program_(program), bucket_of_(sequence.turns().size(), -1) {}

  // Gradients that are reduced alike share a bucket until it holds sync.bucket bytes; or as `given`, one bucket per
  // accumulation in order.
  void assign(const IdVec<GroupId, GroupCode>& groups, const std::vector<int>& given);
  std::vector<int> assignment() const;
  int count() const { return static_cast<int>(turns_.size()); }
  int of(TurnId turn) const { return bucket_of_[turn]; }

  // Joins what is alike. A bucket starts when its last gradient is there; without overlap, after all of backward.
  // Instructions of `before` with the same key are written anew, so that those who wait for them need not change;
  // `touched` hears of each before it is changed.
  BucketCode join(int bucket, const IdVec<GroupId, GroupCode>& groups, const BucketCode& before, Lowering& lowering,
                  const std::function<void(InstructionId)>& touched);

 private:
  const GradientTerm* term_of(TurnId turn, const IdVec<GroupId, GroupCode>& groups) const;

  const Graph& graph_;
  const Sequence& sequence_;
  const GradientSync& sync_;
  Program& program_;
  IdVec<TurnId, int> bucket_of_;
  std::vector<std::vector<TurnId>> turns_;  // by bucket
};

}  // namespace weft
