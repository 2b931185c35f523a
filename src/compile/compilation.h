// A compiled program that can be changed: after a change to how some operators are split, only what depends on them is
// compiled again, and the result is the program that a full compilation would give (up to the numbering of what it
// consists of: `compacted`). The way a search uses the compiler.
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
  // All are kept by reference. `placing` has a world; meshes may be added to it, `plan` may change, between calls.
  Compilation(const TrainingGraph& training, const Placing& placing, const ShardingPlan& plan,
              const CompileOptions& options, const RecomputeRegions& recompute);
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  Status compile();
  // The program, compacted, that will not change.
  Result<Program> compile_once();
  const Program& program() const { return program_; }
  // How gradients are bucketed, for a full compilation to do it the same way (CompileOptions::buckets).
  std::vector<int> buckets() const { return buckets_.assignment(); }

  // Operators, forward and backward, whose entry of the plan has changed since. The last change is committed first. On
  // an error nothing has changed.
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
  // So many instructions of a body are the turn's.
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
  // Puts the segments together; after a change, those of the journal anew.
  void write_bodies();
  void edit_bodies(ProgramEdit& edit);
  void edit_body(std::uint32_t body, const std::vector<std::size_t>& edits, ProgramEdit& edit);
  void note_changes(std::uint32_t body, const Segment& out, const Segment& in, std::size_t position, ProgramEdit& edit);

  const TrainingGraph& training_;
  const Placing& placing_;
  const ShardingPlan& plan_;
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
  Segment assembled_;                             // the turn's
  std::vector<const FreeAt*> frees_;              // scratch
  IdVec<InstructionId, std::uint32_t> place_in_;  // scratch, all 0
};

// The same program with nothing left over: instructions numbered in the order of the bodies, buffers and transfers in
// the order they are used.
Program compacted(Program program);

// The placing with a world.
Result<Placing> with_world(Placing placing);

}  // namespace weft
