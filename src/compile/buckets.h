// Buckets: collectives on several parameters or gradients are joined into one.
//
// Gradients join a bucket in the order in which they become ready, until it is full, and its collective starts when the
// last of them is ready; updated parameters likewise after the optimizer. Sharded parameters (ZeRO-3) are gathered unit
// by unit, a unit ahead of where it is used. Which chains share a bucket is settled once, so that a later change to one
// operator touches its own buckets only; within a bucket, only chains with the same collectives on the same devices are
// joined.
#pragma once

#include <functional>

#include "compile/lowering.h"

namespace weft {

using BucketId = Id<struct BucketTag>;

// The chains of a bucket that are joined, the collectives that they become, and where those are issued.
struct BucketPiece {
  struct Member {
    GroupId group;
    std::uint32_t chain = 0;
  };
  Chain::Key key;
  TurnId turn;
  bool ahead = false;                 // at the turn's beginning, otherwise at its end
  std::vector<InstructionId> joined;  // one per step
  std::vector<Member> members;
};
using BucketCode = std::vector<BucketPiece>;

class Buckets {
 public:
  // All are kept by reference.
  Buckets(const Graph& graph, const Sequence& sequence, const CompileOptions& options, Program& program);

  // Settles which chains share a bucket: by `options.buckets`; where that is empty, by the bytes that they move now.
  void assign(const IdVec<GroupId, GroupCode>& groups);
  std::vector<int> assignment() const;  // for options.buckets
  std::size_t count() const { return sources_.size(); }
  // Buckets that a group's chains may be in.
  std::vector<BucketId> of(GroupId group) const;
  // Buckets that may have pieces at a turn.
  const std::vector<BucketId>& at(TurnId turn) const { return at_[turn]; }

  // Joins the bucket's chains by key. Instructions of `before` with the same key keep their numbers and are written
  // over, so that instructions that wait for them need not change; `touched` is called with each before that.
  BucketCode join(BucketId bucket, const IdVec<GroupId, GroupCode>& groups, const BucketCode& before,
                  Lowering& lowering, const std::function<void(InstructionId)>& touched) const;

 private:
  // Where the chains of a bucket come from: a group's chains of one turn, or those of its unit, phase and route.
  struct Source {
    GroupId group;
    TurnId turn;  // invalid: by the unit
  };
  struct Unit {
    int unit = -1, route = 0;
    Phase phase = Phase::Forward;
    TurnId host;      // where it is gathered
    TurnId wait_for;  // the last use of an earlier unit, which must be over so that not too many are gathered at once
  };

  bool belongs(const Chain& chain, BucketId bucket, const Source& source) const;
  BucketId new_bucket();
  void assign_by_size(const IdVec<GroupId, GroupCode>& groups);
  void assign_units();
  // Whether a parameter is gathered with a unit.
  bool in_unit(TensorId parameter) const {
    return !options_.parameters.unit.empty() && options_.parameters.unit[parameter] >= 0;
  }
  bool is_staged(Chain::Purpose purpose, const Chain& member) const;
  bool by_size(TurnKind kind) const { return kind == TurnKind::Accumulate || kind == TurnKind::Optimizer; }

  const Graph& graph_;
  const Sequence& sequence_;
  const CompileOptions& options_;
  Program& program_;
  IdVec<TurnId, BucketId> bucket_of_;  // accumulations and optimizer operators
  IdVec<BucketId, std::vector<Source>> sources_;
  IdVec<BucketId, Unit> unit_;  // unit −1: not a gather
  IdVec<TurnId, std::vector<BucketId>> at_;
  IdVec<GroupId, std::vector<BucketId>> of_group_;
};

}  // namespace weft
