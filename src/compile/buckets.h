// Buckets: collectives on parameters and gradients that are alike travel together.
//
// Gradients are joined in the order in which they become ready, until a bucket is full, and start when the last of them
// is there; updated parameters likewise after the optimizer. Parameters that are kept in parts are gathered unit by
// unit, a unit ahead of where it is used. Buckets are fixed once, so that a later change to one operator touches its
// own buckets only; within a bucket, chains of different device groups travel apart.
#pragma once

#include <functional>

#include "compile/lowering.h"

namespace weft {

using BucketId = Id<struct BucketTag>;

// The joined collectives of a bucket on one device group, in the order they are issued, and where.
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

  // Settles which chains share a bucket: by the size of what they move now; or as `options.buckets` says.
  void assign(const IdVec<GroupId, GroupCode>& groups);
  std::vector<int> assignment() const;  // for options.buckets
  std::size_t count() const { return sources_.size(); }
  // Buckets that a group's chains may be in.
  std::vector<BucketId> of(GroupId group) const;
  // Buckets that may have pieces at a turn.
  const std::vector<BucketId>& at(TurnId turn) const { return at_[turn]; }

  // Joins what is alike. Instructions of `before` with the same key are written anew, so that those who wait for them
  // need not change; `touched` hears of each before it is changed.
  BucketCode join(BucketId bucket, const IdVec<GroupId, GroupCode>& groups, const BucketCode& before,
                  Lowering& lowering, const std::function<void(InstructionId)>& touched) const;

 private:
  // Whose chains a bucket has: those of a turn, or a unit's in one phase.
  struct Source {
    GroupId group;
    TurnId turn;  // invalid: of the unit, phase and route
  };
  struct Unit {
    int unit = -1, route = 0;
    Phase phase = Phase::Forward;
    TurnId host;      // where it is gathered
    TurnId wait_for;  // what must be done with before, so that not too many are in flight
  };

  bool belongs(const Chain& chain, BucketId bucket, const Source& source) const;
  BucketId new_bucket();
  void assign_by_size(const IdVec<GroupId, GroupCode>& groups);
  void assign_units();
  // Of a parameter that is gathered with a unit.
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
