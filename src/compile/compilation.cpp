#include "compile/compilation.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace weft {

Result<Placing> with_world(Placing placing) {
  if (placing.world.valid()) return placing;
  std::vector<DeviceId> devices;
  for (const Mesh& each : placing.meshes) devices.insert(devices.end(), each.devices().begin(), each.devices().end());
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  const int size = static_cast<int>(devices.size());
  WEFT_TRY(Mesh world, Mesh::make({{"world", size}}, std::move(devices)));
  placing.world = placing.meshes.push_back(std::move(world));
  placing.stage_of.push_back(-1);
  return placing;
}

namespace {

std::span<const FreeAt> frees_at(const GroupCode& code, TurnId turn) {
  const auto less = [](const FreeAt& free, TurnId at) { return free.turn < at; };
  const auto first = std::lower_bound(code.frees.begin(), code.frees.end(), turn, less);
  auto last = first;
  while (last != code.frees.end() && last->turn == turn) ++last;
  return {first, last};
}

}  // namespace

Compilation::Compilation(const TrainingGraph& training, const Placing& placing, std::vector<RouteSplit> routes,
                         const CompileOptions& options)
    : training_(training),
      placing_(placing),
      routes_(std::move(routes)),
      options_(options),
      sequence_(training, routes_),
      lowering_(training_, sequence_, placing_, routes_, options_, program_),
      buckets_(training_.graph, sequence_, options_, program_),
      body_ends_(options_, program_, lowering_.numbering()) {
  program_.world = placing.world;
  int stages = 0;
  for (int stage : placing.stage_of) stages = std::max(stages, stage + 1);
  program_.stages.resize(static_cast<std::size_t>(stages));
}

void Compilation::adopt_meshes() {
  for (std::size_t i = program_.meshes.size(); i < placing_.meshes.size(); ++i)
    program_.meshes.push_back(placing_.meshes[MeshId(i)]);
}

Status Compilation::lower_all() {
  adopt_meshes();
  groups_.resize(sequence_.groups());
  for (GroupId group : groups_.ids()) {
    WEFT_TRY(groups_[group], lowering_.lower(group));
  }
  for (const GroupCode& code : groups_)
    for (const FreeAt& free : code.frees)
      if (!free.anchor.valid()) freeing_scalars_.push_back(free.turn);
  buckets_.assign(groups_);
  for (BucketId bucket : IdRange<BucketId>(buckets_.count()))
    bucket_code_.push_back(buckets_.join(bucket, groups_, {}, lowering_, [](InstructionId) {}));
  return Ok{};
}

Status Compilation::compile() {
  WEFT_TRY_OK(lower_all());
  segments_.resize(sequence_.turns().size());
  for (TurnId turn : sequence_.turns().ids()) {
    lowering_.write_main(turn, groups_);
    assemble(turn);
    segments_[turn] = assembled_;
  }
  write_bodies();
  return Ok{};
}

Result<Program> Compilation::compile_once() {
  lowering_.lower_once();
  WEFT_TRY_OK(lower_all());
  for (TurnId turn : sequence_.turns().ids()) {
    lowering_.write_main(turn, groups_);
    assemble(turn);
    for (const Placed& placed : assembled_) body(placed.body).push_back(placed.instruction);
  }
  return compacted(std::move(program_));
}

std::vector<InstructionId>& Compilation::body(std::uint32_t index) {
  if (index == 2 * program_.stages.size()) return program_.step;
  StageProgram& stage = program_.stages[index / 2];
  return index % 2 == 0 ? stage.forward : stage.backward;
}

// A scalar that all devices have is read by the optimizer of every parameter: its free waits for the last of them on
// each mesh.
void Compilation::cover_all_readers(const FreeAt& free, TurnId last) {
  InstructionList& after = program_.instructions[free.free].after;
  std::vector<std::pair<MeshId, InstructionId>> by_mesh;
  for (const OperandUse& event : sequence_.events(sequence_.group_of(free.tensor, 0))) {
    const Turn& turn = sequence_.turns()[event.turn];
    if (turn.kind != TurnKind::Optimizer || event.turn > last) continue;
    const OperandRef own = sequence_.operands(event.turn).front();
    for (InstructionId each : groups_[own.group].events[own.event].before) {
      const Instruction& instruction = program_.instructions[each];
      if (const auto* compute = std::get_if<Compute>(&instruction.what); !compute || compute->op != turn.op) continue;
      const auto known = std::find_if(by_mesh.begin(), by_mesh.end(),
                                      [&](const auto& entry) { return entry.first == instruction.mesh; });
      if (known == by_mesh.end())
        by_mesh.emplace_back(instruction.mesh, each);
      else
        known->second = each;
    }
  }
  for (const auto& [mesh, reader] : by_mesh) after.push_back(reader);
}

// The joined collectives of a bucket, what follows each of its chains, and the frees that follow those.
void Compilation::place_piece(const BucketPiece& piece, const std::function<void(InstructionId)>& place) {
  std::vector<const Chain*> chains;
  std::vector<const FreeAt*> frees;
  for (const BucketPiece::Member& member : piece.members) {
    const GroupCode& code = groups_[member.group];
    const Chain& chain = code.chains[member.chain];
    chains.push_back(&chain);
    for (const FreeAt& free : frees_at(code, chain.turn)) {
      bool follows = std::find(chain.then.begin(), chain.then.end(), free.anchor) != chain.then.end();
      for (InstructionId step : chain.steps) follows = follows || free.anchor == step;
      if (follows) frees.push_back(&free);
    }
  }
  const auto place_frees = [&](InstructionId anchor) {
    for (const FreeAt* free : frees) {
      if (free->anchor != anchor) continue;
      lowering_.waits().settle(*free);
      place(free->free);
    }
  };
  for (std::size_t s = 0; s < piece.joined.size(); ++s) {
    place(piece.joined[s]);
    if (frees.empty()) continue;
    for (const Chain* chain : chains) place_frees(chain->steps[s]);
  }
  for (const Chain* chain : chains)
    for (InstructionId then : chain->then) {
      lowering_.waits().settle(then);
      place(then);
      place_frees(then);
    }
}

// Collects a turn's instructions, in order, in `assembled_`.
void Compilation::assemble(TurnId id) {
  const Turn& turn = sequence_.turns()[id];
  Segment& segment = assembled_;
  segment.clear();
  const auto place = [&](InstructionId instruction) {
    const MeshId mesh = program_.instructions[instruction].mesh;
    const std::uint32_t step = static_cast<std::uint32_t>(2 * program_.stages.size());
    // A receive stands in the body that sends (Transfer).
    MeshId at = mesh;
    if (const auto* receive = std::get_if<Receive>(&program_.instructions[instruction].what))
      at = program_.buffers[program_.transfers[receive->transfer].from].layout.mesh;
    const auto stage = static_cast<std::uint32_t>(std::max(placing_.stage_of[at], 0));
    segment.push_back(
        {instruction, turn.phase == Phase::Step ? step : 2 * stage + (turn.phase == Phase::Backward), mesh});
  };
  const auto operands = sequence_.operands(id);
  // By the instruction that they follow, then by tensor.
  std::vector<const FreeAt*>& frees = frees_;
  frees.clear();
  const auto add_frees = [&](GroupId group, TurnId at) {
    for (const FreeAt& free : frees_at(groups_[group], at))
      frees.insert(std::upper_bound(frees.begin(), frees.end(), &free,
                                    [](const FreeAt* a, const FreeAt* b) {
                                      return std::pair(a->anchor, a->tensor) < std::pair(b->anchor, b->tensor);
                                    }),
                   &free);
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    bool seen = false;
    for (std::size_t j = 0; j < i; ++j) seen = seen || operands[j].group == operands[i].group;
    if (!seen) add_frees(operands[i].group, id);
  }
  const auto place_frees = [&](InstructionId anchor) {
    const auto first = std::lower_bound(frees.begin(), frees.end(), anchor,
                                        [](const FreeAt* free, InstructionId at) { return free->anchor < at; });
    for (auto it = first; it != frees.end() && (*it)->anchor == anchor; ++it) {
      const FreeAt* const free = *it;
      if (!anchor.valid()) {  // it waits for instructions of other groups, which may have changed
        if (journal_.open) remember(free->free);
        lowering_.waits().unsettle(free->free);
      }
      lowering_.waits().settle(*free);
      if (!anchor.valid()) cover_all_readers(*free, id);
      place(free->free);
    }
  };
  const auto place_with_frees = [&](InstructionId instruction) {
    lowering_.waits().settle(instruction);
    place(instruction);
    place_frees(instruction);
  };
  // A bucket is issued before the turn where it gathers a unit ahead, after the turn where its last chain is ready.
  const auto place_buckets = [&](bool ahead) {
    for (BucketId bucket : buckets_.at(id))
      for (const BucketPiece& piece : bucket_code_[bucket])
        if (piece.turn == id && piece.ahead == ahead) place_piece(piece, place);
  };
  place_buckets(true);
  for (const OperandRef& ref : operands)
    for (InstructionId before : groups_[ref.group].events[ref.event].before) place_with_frees(before);
  if (const RingCode* ring = lowering_.rings().code(id)) {
    for (InstructionId each : ring->order) {
      place(each);
      place_frees(each);
    }
  } else if (const InstructionId main = lowering_.main(id); main.valid()) {
    place(main);
    place_frees(main);
  }
  for (const OperandRef& ref : operands)
    for (InstructionId then : groups_[ref.group].events[ref.event].then) place_with_frees(then);
  place_frees(InstructionId());

  place_buckets(false);
  if (turn.kind == TurnKind::BodyEnd) {
    const auto overwrites = [&](InstructionId wait) {
      if (journal_.open) remember(wait);
    };
    for (InstructionId wait : body_ends_.waits(turn.phase, overwrites)) place(wait);
  } else if (turn.phase != Phase::Step) {
    body_ends_.turn_issues(id, turn.phase, segment);
  }
}

void Compilation::write_bodies() {
  spans_.resize(2 * program_.stages.size() + 1);
  for (TurnId turn : segments_.ids())
    for (const Placed& placed : segments_[turn]) {
      body(placed.body).push_back(placed.instruction);
      std::vector<Span>& spans = spans_[placed.body];
      if (spans.empty() || spans.back().turn != turn) spans.push_back({turn, 0});
      ++spans.back().count;
    }
}

void Compilation::edit_bodies(ProgramEdit& edit) {
  std::vector<std::vector<std::size_t>> edits(spans_.size());  // by body, in journal_.segments
  for (std::size_t i = 0; i < journal_.segments.size(); ++i) {
    const auto& [turn, old] = journal_.segments[i];
    if (old == segments_[turn]) continue;
    for (const Segment* segment : {&old, static_cast<const Segment*>(&segments_[turn])})
      for (const Placed& placed : *segment)
        if (std::vector<std::size_t>& known = edits[placed.body]; known.empty() || known.back() != i)
          known.push_back(i);
  }
  for (std::uint32_t b = 0; b < edits.size(); ++b)
    if (!edits[b].empty()) edit_body(b, edits[b], edit);
}

// Writes a body anew: segments that have changed as they are now, and what is between them copied from before.
void Compilation::edit_body(std::uint32_t b, const std::vector<std::size_t>& edits, ProgramEdit& edit) {
  BodyBefore old;
  if (!spare_bodies_.empty()) {
    old = std::move(spare_bodies_.back());
    spare_bodies_.pop_back();
    old.list.clear();
    old.spans.clear();
  }
  old.body = b;
  std::swap(old.list, body(b));
  std::swap(old.spans, spans_[b]);
  journal_.bodies.push_back(std::move(old));
  const std::vector<InstructionId>& list = journal_.bodies.back().list;
  const std::vector<Span>& spans = journal_.bodies.back().spans;
  std::vector<InstructionId>& fresh = body(b);
  fresh.reserve(list.size() + 64);
  spans_[b].reserve(spans.size() + 8);
  std::size_t next = 0, copied = 0, at = 0;
  const auto copy_until = [&](TurnId turn) {
    const std::size_t first = next;
    for (; next < spans.size() && (!turn.valid() || spans[next].turn < turn); ++next) at += spans[next].count;
    spans_[b].insert(spans_[b].end(), spans.begin() + static_cast<std::ptrdiff_t>(first),
                     spans.begin() + static_cast<std::ptrdiff_t>(next));
    fresh.insert(fresh.end(), list.begin() + static_cast<std::ptrdiff_t>(copied),
                 list.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto here = [&](const Segment& segment) {
    Segment part;
    std::copy_if(segment.begin(), segment.end(), std::back_inserter(part),
                 [&](const Placed& placed) { return placed.body == b; });
    return part;
  };
  for (std::size_t i : edits) {
    const TurnId turn = journal_.segments[i].first;
    copy_until(turn);
    if (next < spans.size() && spans[next].turn == turn) at += spans[next++].count;
    copied = at;
    const Segment in = here(segments_[turn]);
    note_changes(b, here(journal_.segments[i].second), in, fresh.size(), edit);
    for (const Placed& placed : in) fresh.push_back(placed.instruction);
    if (!in.empty()) spans_[b].push_back({turn, static_cast<std::uint32_t>(in.size())});
  }
  copy_until(TurnId());
}

// Adds one edit for every stretch between instructions that are in the segment before and after, in the same order.
void Compilation::note_changes(std::uint32_t b, const Segment& out, const Segment& in, std::size_t position,
                               ProgramEdit& edit) {
  place_in_.resize(program_.instructions.size());
  for (std::size_t i = 0; i < in.size(); ++i) place_in_[in[i].instruction] = static_cast<std::uint32_t>(i + 1);
  std::size_t out_from = 0, in_from = 0;
  const auto note = [&](std::size_t out_to, std::size_t in_to) {
    if (out_from == out_to && in_from == in_to) return;
    BodyEdit change{b + 1 == spans_.size() ? -1 : static_cast<int>(b / 2), b % 2 == 1, position + in_from, {}, {}};
    for (std::size_t i = out_from; i < out_to; ++i) change.removed.push_back(out[i].instruction);
    for (std::size_t i = in_from; i < in_to; ++i) change.added.push_back(in[i].instruction);
    edit.bodies.push_back(std::move(change));
  };
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t at = place_in_[out[i].instruction];
    if (at <= in_from || in[at - 1] != out[i]) continue;
    note(i, at - 1);
    out_from = i + 1;
    in_from = at;
  }
  note(out.size(), in.size());
  for (const Placed& placed : in) place_in_[placed.instruction] = 0;
}

void Compilation::remember(InstructionId id) {
  journal_.overwritten.instructions.emplace_back(id, program_.instructions[id]);
}

Result<ProgramEdit> Compilation::recompile(std::span<const OpId> changed) {
  commit();
  adopt_meshes();
  std::vector<GroupId> groups;
  const Graph& graph = training_.graph;
  const int routes = static_cast<int>(routes_.size());
  for (OpId op : changed)
    for (int route = 0; route < routes; ++route)
      for (const auto operands : {graph.inputs(op), graph.outputs(op)})
        for (TensorId tensor : operands) groups.push_back(sequence_.group_of(tensor, route));
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());

  journal_.open = true;
  body_ends_.begin_change();
  std::vector<TurnId> turns = sequence_.body_ends();
  for (OpId op : changed) turns.insert(turns.end(), sequence_.turns_of(op).begin(), sequence_.turns_of(op).end());
  std::vector<BucketId> buckets;
  lowering_.mark_changed(changed, true);
  Touched touched;
  for (GroupId group : groups) {
    touched.chains = false;
    Result<GroupCode> code = lowering_.lower_again(group, groups_[group], journal_.overwritten, touched);
    if (!code.ok()) {
      lowering_.mark_changed(changed, false);
      undo();
      return code.error();
    }
    journal_.groups.emplace_back(group, std::exchange(groups_[group], std::move(code).value()));
    if (!touched.chains) continue;
    const std::vector<BucketId> own = buckets_.of(group);
    buckets.insert(buckets.end(), own.begin(), own.end());
  }
  lowering_.mark_changed(changed, false);
  turns.insert(turns.end(), touched.turns.begin(), touched.turns.end());
  if (touched.step) turns.insert(turns.end(), freeing_scalars_.begin(), freeing_scalars_.end());
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  for (BucketId bucket : buckets) {
    BucketCode& code = bucket_code_[bucket];
    BucketCode joined = buckets_.join(bucket, groups_, code, lowering_, [&](InstructionId id) { remember(id); });
    for (const BucketCode* pieces : {&code, &joined})
      for (const BucketPiece& piece : *pieces) turns.push_back(piece.turn);
    journal_.buckets.emplace_back(bucket, std::exchange(code, std::move(joined)));
  }
  std::sort(turns.begin(), turns.end());
  turns.erase(std::unique(turns.begin(), turns.end()), turns.end());

  ProgramEdit edit;
  for (TurnId turn : turns) {
    const InstructionId main = lowering_.main(turn), shift = lowering_.rings().last_shift(turn);
    const bool whole = main.valid() && !shift.valid() && !lowering_.rings().code(turn);  // it is written whole
    Instruction before;
    if (whole)
      before = std::exchange(program_.instructions[main], Instruction());
    else
      for (InstructionId kept : {main, shift})
        if (kept.valid()) remember(kept);
    RingCode ring = lowering_.rings().take(turn);
    lowering_.write_main(turn, groups_);
    if (whole && program_.instructions[main] != before)
      journal_.overwritten.instructions.emplace_back(main, std::move(before));
    if (!ring.order.empty() || lowering_.rings().code(turn)) journal_.rings.emplace_back(turn, std::move(ring));
    journal_.segments.emplace_back(turn, std::exchange(segments_[turn], Segment()));
    assemble(turn);
    segments_[turn] = assembled_;
  }
  edit_bodies(edit);
  // Collectives that a bucket has joined stand in no body themselves, so they are no part of the edit.
  std::vector<InstructionId> joined;
  for (const auto& [group, old] : journal_.groups)
    for (const GroupCode* code : {&old, static_cast<const GroupCode*>(&groups_[group])})
      for (const Chain& chain : code->chains) joined.insert(joined.end(), chain.steps.begin(), chain.steps.end());
  std::sort(joined.begin(), joined.end());
  for (const auto& [id, old] : journal_.overwritten.instructions)
    if (!std::binary_search(joined.begin(), joined.end(), id) && program_.instructions[id] != old)
      edit.rewritten.push_back(id);
  return edit;
}

void Compilation::undo() {
  if (!journal_.open) return;
  for (auto& [group, old] : journal_.groups) {
    lowering_.numbering().release(groups_[group]);
    groups_[group] = std::move(old);
    share_nothing(groups_[group]);
  }
  // Gives back the joined instructions that only the new buckets have; the contents of the old ones are in the journal.
  for (auto& [bucket, old] : journal_.buckets) {
    BucketCode& now = bucket_code_[bucket];
    for (const BucketPiece& piece : now)
      if (std::none_of(old.begin(), old.end(), [&](const BucketPiece& each) { return each.key == piece.key; }))
        for (InstructionId id : piece.joined) lowering_.numbering().drop_instruction(id);
    now = std::move(old);
  }
  lowering_.numbering().put_back(journal_.overwritten);
  body_ends_.undo();
  for (auto& [turn, old] : journal_.segments) segments_[turn] = std::move(old);
  for (auto& [turn, old] : journal_.rings) lowering_.rings().put(turn, std::move(old));
  for (BodyBefore& old : journal_.bodies) {
    std::swap(body(old.body), old.list);
    std::swap(spans_[old.body], old.spans);
  }
  // The writers of what the old buckets reduce.
  for (auto& [bucket, old] : journal_.buckets)
    for (const BucketPiece& piece : bucket_code_[bucket])
      for (InstructionId id : piece.joined)
        for (BufferId output : std::get<Communicate>(program_.instructions[id].what).outputs)
          lowering_.origins().set_writer(output, id);
  close_journal();
}

void Compilation::commit() {
  if (!journal_.open) return;
  for (const auto& [group, old] : journal_.groups) {
    lowering_.numbering().release(old);
    share_nothing(groups_[group]);
  }
  for (const auto& [turn, old] : journal_.rings) lowering_.numbering().release(old.owned);
  for (const auto& [bucket, old] : journal_.buckets)
    for (const BucketPiece& piece : old) {
      const BucketCode& now = bucket_code_[bucket];
      if (std::none_of(now.begin(), now.end(), [&](const BucketPiece& each) { return each.key == piece.key; }))
        for (InstructionId id : piece.joined) lowering_.numbering().drop_instruction(id);
    }
  close_journal();
}

// Keeps the memory of the journal's lists for the next change.
void Compilation::close_journal() {
  for (BodyBefore& body : journal_.bodies) spare_bodies_.push_back(std::move(body));
  journal_.clear();
}

void Compilation::Journal::clear() {
  groups.clear();
  buckets.clear();
  segments.clear();
  rings.clear();
  overwritten.clear();
  bodies.clear();
  open = false;
}

}  // namespace weft
