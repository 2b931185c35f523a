// A compiled program that can be changed: after a change to how some operators are split, only what depends on them is
// compiled again, and the result is the program that a full compilation would give, up to the numbers of instructions,
// buffers and transfers (`compacted`). Searches that change one operator at a time use the compiler so.
//
//   Compilation compilation(training, placing, plan, options, recompute);
//   compilation.compile();
//   … change plan and placing …
//   edit = compilation.recompile(changed operators);     what was taken out and put in, body by body
//   compilation.undo();  or  compilation.commit();
//
// Cost of recompile: what the changed operators, those that share a tensor with them, and their gradient buckets cost;
// besides, one pass over the bodies' lists of numbers.
#pragma once

#include <functional>
#include <span>

#include "compile/body_ends.h"
#include "compile/buckets.h"
#include "program/edit.h"

namespace weft {

class Compilation {
 public:
  // All are kept by reference. `placing` has a world; meshes may be added to it, plans may change, between calls.
  Compilation(const TrainingGraph& training, const Placing& placing, std::vector<RouteSplit> routes,
              const CompileOptions& options);
  Compilation(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
              const CompileOptions& options, const RecomputeRegions& recompute)
      : Compilation(training, placing, {{plan, recompute}}, options) {}
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  Status compile();
  // The same for a program that will not change, compacted. The compilation is of no use afterwards.
  Result<Program> compile_once();
  const Program& program() const { return program_; }
  // Which gradients share a bucket, for another compilation to do the same (CompileOptions::buckets).
  std::vector<int> buckets() const { return buckets_.assignment(); }

  // `changed`: the operators, forward and backward, whose entry of the plan has changed since the last call. Commits
  // the change before it. On an error the program stays as it was.
  Result<ProgramEdit> recompile(std::span<const OpId> changed);
  void undo();
  void commit();

 private:
  struct Placed {
    InstructionId instruction;
    std::uint32_t body;  // 2·stage, 2·stage + 1 for backward, last the step
    MeshId mesh;

    bool operator==(const Placed&) const = default;
  };
  using Segment = std::vector<Placed>;
  // Consecutive instructions of a body that belong to one turn.
  struct Span {
    TurnId turn;
    std::uint32_t count = 0;
  };
  struct BodyBefore {
    std::uint32_t body = 0;
    std::vector<InstructionId> list;
    std::vector<Span> spans;
  };
  struct Journal {
    std::vector<std::pair<GroupId, GroupCode>> groups;
    std::vector<std::pair<BucketId, BucketCode>> buckets;
    std::vector<std::pair<TurnId, Segment>> segments;
    std::vector<std::pair<TurnId, RingCode>> rings;
    Overwritten overwritten;
    std::vector<BodyBefore> bodies;
    bool open = false;

    void clear();  // keeps the memory of its lists
  };

  void remember(InstructionId id);
  void close_journal();
  void adopt_meshes();
  Status lower_all();
  void assemble(TurnId turn);
  void place_piece(const BucketPiece& piece, const std::function<void(InstructionId)>& place);
  void cover_all_readers(const FreeAt& free, TurnId last);
  std::vector<InstructionId>& body(std::uint32_t index);
  // Joins the segments into bodies; after a change, replaces in the bodies the segments that the journal has.
  void write_bodies();
  void edit_bodies(ProgramEdit& edit);
  void edit_body(std::uint32_t body, const std::vector<std::size_t>& edits, ProgramEdit& edit);
  void note_changes(std::uint32_t body, const Segment& out, const Segment& in, std::size_t position, ProgramEdit& edit);

  const TrainingGraph& training_;
  const Placing& placing_;
  const std::vector<RouteSplit> routes_;
  const CompileOptions options_;
  Program program_;
  Sequence sequence_;
  Lowering lowering_;
  Buckets buckets_;
  BodyEnds body_ends_;
  IdVec<GroupId, GroupCode> groups_;
  IdVec<BucketId, BucketCode> bucket_code_;
  IdVec<TurnId, Segment> segments_;
  std::vector<std::vector<Span>> spans_;  // by body, in turn order
  std::vector<TurnId> freeing_scalars_;   // turns at whose end a scalar that all optimizers read is freed
  Journal journal_;
  std::vector<BodyBefore> spare_bodies_;
  Segment assembled_;                             // of the turn that `assemble` was called for last
  std::vector<const FreeAt*> frees_;              // scratch
  IdVec<InstructionId, std::uint32_t> place_in_;  // scratch, all 0
};

// The same program without unused numbers: instructions are numbered in the order of the bodies, buffers and transfers
// in the order of their use.
Program compacted(Program program);

// The placing with a mesh of all devices (Placing::world), added where it has none.
Result<Placing> with_world(Placing placing);

}  // namespace weft
