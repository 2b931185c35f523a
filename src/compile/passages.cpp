// What of a group's code stays as it was when some operators change.
//
// The code is a sequence of passages, one for every event; in the step, one for every mesh that keeps a parameter, and
// for every two between which gradients travel. A passage stays if the operator is as it was, if the buffers it finds
// are those it found (`differences_` lists where others are), and if what it brings from another mesh still comes from
// there. It keeps all it owns, and its uses of buffers are told again, so that frees come out as if it were lowered.
// What must be lowered takes over the numbers of what it had made before (numbering.cpp).
#include <algorithm>

#include "base/check.h"
#include "compile/lowering.h"

namespace weft {

Result<GroupCode> Lowering::lower(GroupId group) {
  // Lists grow in one place and are copied from there as long as they have become.
  GroupCode& made = lowered_code_;
  made.collector = made.first_term = MeshId();
  made.total = BufferId();
  made.summed = InstructionId();
  made.homes.clear();
  made.chains.clear();
  made.frees.clear();
  made.passages.clear();
  made.buffers.clear();
  made.instructions.clear();
  made.transfers.clear();
  made.uses.clear();
  last_uses_.clear();
  const Status done = lower_events(group, made);
  code_ = nullptr;
  if (!done.ok()) {
    release(made);
    return done.error();
  }
  if (once_)
    return GroupCode{
        std::move(made.events), made.frees, {}, std::move(made.chains), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  return GroupCode{std::move(made.events),
                   made.frees,
                   std::move(made.homes),
                   std::move(made.chains),
                   made.collector,
                   made.first_term,
                   made.total,
                   made.summed,
                   made.passages,
                   made.buffers,
                   made.instructions,
                   made.transfers,
                   made.uses};
}

Result<GroupCode> Lowering::lower_again(GroupId group, GroupCode& before, Overwritten& journal, Touched& touched) {
  before_ = &before;
  overwritten_ = &journal;
  touched_ = &touched;
  keeping_ = options_.memory.most_zero() == 0 && !options_.keep_gathered_input && !options_.memory.offloads_anything();
  if (!keeping_) touched.chains = touched.step = true;
  differences_.clear();
  rewritten_.clear();
  changed_terms_.clear();
  if (sequence_.is_parameter(group)) find_changed_terms(group);
  event_begin_ = event_end_ = 0;
  free_before_.resize(program_.buffers.size());
  for (std::size_t i = 0; i < before.frees.size(); ++i)
    free_before_[before.frees[i].buffer] = static_cast<std::uint32_t>(i + 1);
  Result<GroupCode> code = lower(group);
  for (const FreeAt& free : before.frees) free_before_[free.buffer] = 0;
  before_ = nullptr;
  overwritten_ = nullptr;
  touched_ = nullptr;
  keeping_ = false;
  if (!code.ok()) share_nothing(before);
  return code;
}

Passage::At Lowering::here() const {
  const auto count = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
  return {count(code_->buffers), count(code_->instructions), count(code_->transfers), count(code_->uses),
          count(code_->chains)};
}

// Found by its meshes: one more or less leaves the others' passages as they are.
std::uint32_t Lowering::part_of(MeshId a, MeshId b) {
  constexpr std::uint32_t kMeshes = 1 << 16;
  WEFT_CHECK(a.index() + 1 < kMeshes && (!b.valid() || b.index() + 1 < kMeshes), "{} meshes", a.index());
  return (a.index() + 1) * kMeshes + (b.valid() ? b.index() + 1 : 0);
}

void Lowering::begin_event(std::uint32_t event) {
  event_ = event;
  kept_ = lowered_ = 0;
  if (!before_) return;
  const std::vector<Passage>& passages = before_->passages;
  event_begin_ = event_end_;
  while (event_end_ < passages.size() && passages[event_end_].event == event) ++event_end_;
  part_hint_ = event_begin_;
}

void Lowering::end_event() {
  if (!before_ || (lowered_ == 0 && kept_ == event_end_ - event_begin_)) return;
  touched_->turns.push_back(turn_);
  if (phase_ == Phase::Step) touched_->step = true;
}

// They mostly come in the order they had.
const Passage* Lowering::passage_before(std::uint32_t part) {
  if (!before_) return nullptr;
  for (std::size_t n = event_end_ - event_begin_; n > 0; --n) {
    if (part_hint_ == event_end_) part_hint_ = event_begin_;
    const Passage& passage = before_->passages[part_hint_++];
    if (passage.part == part) return &passage;
  }
  return nullptr;
}

void Lowering::begin_passage(std::uint32_t part, MeshId on) {
  passage_ = {};
  if (once_) return;
  passage_.event = event_;
  passage_.part = part;
  passage_.begin = here();
  passage_.mesh = on;
  const Passage* const old = passage_before(part);
  next_ = old ? old->begin : Passage::At();
  limit_ = old ? old->end : Passage::At();
  if (overwritten_) {
    buffers_begin_ = overwritten_->buffers.size();
    origins_begin_ = overwritten_->origins.size();
  }
  old_ = old;
}

void Lowering::end_passage() {
  if (once_) return;
  passage_.end = here();
  code_->passages.push_back(passage_);
  ++lowered_;
  if (!before_) return;
  if (passage_.begin.chain != passage_.end.chain || (old_ && old_->begin.chain != old_->end.chain))
    touched_->chains = true;
  if (phase_ != Phase::Step) note_differences();
}

// Buffers that the passage has made available are others than before, lie elsewhere, or are written by another.
void Lowering::note_differences() {
  const auto note = [&](BufferId id) {
    const std::pair at(program_.buffers[id].tensor, program_.buffers[id].layout.mesh);
    if (std::find(differences_.begin(), differences_.end(), at) == differences_.end()) differences_.push_back(at);
  };
  for (std::size_t i = origins_begin_; i < overwritten_->origins.size(); ++i)
    if (const auto& [id, old] = overwritten_->origins[i];
        old != Overwritten::Origin{writer_[id], static_cast<char>(readers_[id])}) {
      note(id);
      rewritten_.push_back(id);
    }
  for (std::size_t i = buffers_begin_; i < overwritten_->buffers.size(); ++i)
    if (const auto& [id, old] = overwritten_->buffers[i];
        old.memory != program_.buffers[id].memory || old.storage != program_.buffers[id].storage) {
      note(id);
      rewritten_.push_back(id);
    }
  std::uint32_t was = old_ ? old_->begin.buffer : 0, is = passage_.begin.buffer;
  const std::uint32_t was_end = old_ ? old_->end.buffer : 0, is_end = passage_.end.buffer;
  while (true) {
    while (was < was_end && !before_->buffers[was].available.valid()) ++was;
    while (is < is_end && !code_->buffers[is].available.valid()) ++is;
    if (was == was_end || is == is_end || before_->buffers[was].id != code_->buffers[is].id) break;
    ++was;
    ++is;
  }
  for (; was < was_end; ++was)
    if (before_->buffers[was].available.valid()) note(before_->buffers[was].id);
  for (; is < is_end; ++is)
    if (code_->buffers[is].available.valid()) note(code_->buffers[is].id);
}

// Of tensors that share memory or are merged together, any.
bool Lowering::differs(TensorId tensor, MeshId on) const {
  return std::any_of(differences_.begin(), differences_.end(), [&](const auto& difference) {
    return difference.second == on && (!of_parameter_ || difference.first == tensor);
  });
}

BufferId Lowering::elsewhere(TensorId tensor, MeshId on) const {
  for (BufferId id : available_[tensor])
    if (usable(id) && program_.buffers[id].layout.mesh != on) return id;
  return BufferId();
}

bool Lowering::stays(const OperandUse& event, const Passage& old) {
  const Turn& turn = sequence_.turns()[event.turn];
  if (changed_[turn.op] || old.depends) return false;
  if (turn.kind == TurnKind::Accumulate) return term_stays(event, old);
  if (differs(event.tensor, old.mesh)) return !event.output && finds_the_same(event, old);
  if (event.output) {
    const int viewed = graph_.signature(turn.op).outputs[event.operand].aliases;
    return viewed < 0 || !differs(graph_.inputs(turn.op)[static_cast<std::size_t>(viewed)], old.mesh);
  }
  if (!old.source.valid()) return true;
  const bool weight_part = std::exchange(weight_part_, false);
  BufferId source = elsewhere(event.tensor, old.mesh);
  weight_part_ = weight_part;
  if (!source.valid()) source = elsewhere(event.tensor, old.mesh);
  return source == old.source && !differs(event.tensor, program_.buffers[source].layout.mesh);
}

// Whatever else there is: a buffer in the layout wanted, which was there before, is the first that is.
bool Lowering::finds_the_same(const OperandUse& event, const Passage& old) const {
  if (old.begin.buffer != old.end.buffer) return false;
  const BufferId found = before_->events[event_].buffer;
  if (std::find(rewritten_.begin(), rewritten_.end(), found) != rewritten_.end()) return false;
  for (BufferId id : available_[event.tensor])
    if (usable(id) && !program_.buffers[id].on_host && program_.buffers[id].layout == program_.buffers[found].layout)
      return id == found;
  return false;
}

void Lowering::keep_passage(const Passage& old) {
  Passage kept = old;
  kept.begin = here();
  for (std::uint32_t i = old.begin.buffer; i < old.end.buffer; ++i) {
    before_->buffers[i].shared = true;
    const Owned<BufferId>& owned = code_->buffers.emplace_back(before_->buffers[i]);
    if (!owned.available.valid()) continue;
    available_[owned.available].push_back(owned.id);
    if (!of_parameter_ || phase_ == Phase::Step) continue;
    const auto homes = before_->homes.find(owned.available);
    if (homes == before_->homes.end()) continue;
    for (const Home& home : homes->second)
      if (home.buffer == owned.id)
        code_->homes[owned.available].push_back(
            {.mesh = home.mesh, .buffer = home.buffer, .used = home.used, .fresh = false});
  }
  for (std::uint32_t i = old.begin.instruction; i < old.end.instruction; ++i) {
    before_->instructions[i].shared = true;
    code_->instructions.push_back(before_->instructions[i]);
    if (phase_ == Phase::Step) sink_->push_back(before_->instructions[i].id);
  }
  for (std::uint32_t i = old.begin.transfer; i < old.end.transfer; ++i) {
    before_->transfers[i].shared = true;
    code_->transfers.push_back(before_->transfers[i]);
  }
  for (std::uint32_t i = old.begin.use; i < old.end.use; ++i) note_use(before_->uses[i]);
  for (std::uint32_t i = old.begin.chain; i < old.end.chain; ++i) code_->chains.push_back(before_->chains[i]);
  kept.end = here();
  code_->passages.push_back(kept);
  ++kept_;
}

Home* Lowering::home_before(TensorId parameter, MeshId on) {
  if (!before_) return nullptr;
  const auto found = before_->homes.find(parameter);
  if (found == before_->homes.end()) return nullptr;
  for (Home& home : found->second)
    if (home.mesh == on) return &home;
  return nullptr;
}

void Lowering::find_changed_terms(GroupId group) {
  const std::span<const OperandUse> events = sequence_.events(group);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Turn& turn = sequence_.turns()[events[i].turn];
    if (turn.kind != TurnKind::Accumulate) continue;
    const OpId maker = graph_.tensors()[graph_.inputs(turn.op)[1]].producer;
    if (!changed_[turn.op] && !(maker.valid() && changed_[maker])) continue;
    for (MeshId on : {before_->passages[i].mesh, mesh_of(events[i].turn)}) changed_terms_.push_back(on);
  }
}

bool Lowering::other_terms(MeshId on) const {
  return std::find(changed_terms_.begin(), changed_terms_.end(), on) != changed_terms_.end();
}

namespace {

bool has_sum(const Home& home, BufferId sum) {
  return home.gradient == sum || std::find(home.others.begin(), home.others.end(), sum) != home.others.end();
}

}  // namespace

// A term is added as it was if it and the sum it is added to are what they were.
bool Lowering::term_stays(const OperandUse& event, const Passage& old) {
  const OpId op = sequence_.turns()[event.turn].op;
  const TensorId gradient = graph_.inputs(op)[1], sum = graph_.tensors()[graph_.outputs(op)[0]].storage;
  const TensorId parameter = parameter_of_[sum];
  const OpId maker = graph_.tensors()[gradient].producer;
  const Home* const was = home_before(parameter, old.mesh);
  if (!was || (maker.valid() && changed_[maker]) || differs(gradient, old.mesh)) return false;
  const Home& is = home(parameter, old.mesh);
  if (!has_sum(is, old.result)) {
    std::uint32_t at = old.begin.buffer;
    while (at < old.end.buffer && before_->buffers[at].id != old.result) ++at;
    if (at == old.end.buffer) return false;  // it was begun by a term before
    if (sum_in(is, program_.buffers[old.result].layout).valid()) return false;
  }
  if (terms_of_[sum].back() != event.turn) return true;
  // All are in: here the sum is reduced, unless other meshes have terms too.
  const bool tied = code_->homes.at(parameter).size() > 1, was_tied = before_->homes.at(parameter).size() > 1;
  return tied == was_tied && (tied || !other_terms(old.mesh));
}

void Lowering::keep_term(const OperandUse& event, const Passage& old) {
  const OpId op = sequence_.turns()[event.turn].op;
  const TensorId sum = graph_.tensors()[graph_.outputs(op)[0]].storage, parameter = parameter_of_[sum];
  Home& is = home(parameter, old.mesh);
  const Home& was = *home_before(parameter, old.mesh);
  if (!has_sum(is, old.result)) {
    is.add_sum(old.result);
    forget_adders(old.result);
  }
  if (old.adder.valid()) adders_[old.result].push_back(old.adder);
  if (other_terms(old.mesh)) is.fresh = true;
  if (terms_of_[sum].back() == event.turn) is.reduced = was.reduced;
}

void Lowering::set_kind(BufferId id, BufferKind kind) {
  Buffer& buffer = program_.buffers[id];
  if (buffer.kind == kind) return;
  if (overwritten_) overwritten_->buffers.emplace_back(id, buffer);
  buffer.kind = kind;
}

}  // namespace weft
