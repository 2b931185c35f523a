#include "simulate/script.h"

#include <algorithm>

namespace weft::engine {

Step make_step(const Workload& workload, const Task& task, std::size_t kind) {
  Step step;
  step.stream = task.stream;
  if (task.when == PlayedFor::AfterFirst && (kind & 1) != 0) {
    step.subject = WorkId().index();  // a marker without work
    return step;
  }
  step.host = task.host;
  step.host_waits = task.host_waits;
  if (task.meeting.valid()) {
    step.kind = StepKind::Meet;
    step.subject = task.meeting.index();
  } else {
    step.subject = task.work.index();  // kNoStep if there is none
    if (task.work.valid()) {
      const Work& work = workload.works[task.work];
      step.kind = is_communication(work) ? StepKind::Solo : StepKind::Compute;
      step.duration = work.fixed;
    }
  }
  return step;
}

namespace {

// bit 0: it is the first, bit 1: it is the last
std::size_t kind_of(std::int32_t micro_batch, const PlayedRange& range) {
  return (micro_batch == range.first ? 1u : 0u) + (micro_batch == range.last ? 2u : 0u);
}

// The kind that a micro-batch is of for every body: what is the first one of one body need not be that of another.
using Kinds = IdVec<BodyId, std::uint8_t>;

// The places of a task in the bodies of its agent, at one moment.
struct Occurrence {
  BodyId body;
  std::uint32_t first = 0, last = 0;
};

// The places of every task that another task of the agent waits for. Most tasks are in one body, once.
class Occurrences {
 public:
  Occurrences(const Agent& agent, const Kinds& kinds) : first_(agent.tasks.size(), kNoStep) {
    for (const Task& task : agent.tasks)
      for (const TaskId after : task.after) first_[after.index()] = kAwaited;
    for (const BodyId body : agent.bodies.ids()) {
      std::uint32_t position = 0;
      for (const TaskId id : agent.bodies[body]) {
        if (!is_played(agent.tasks[id].when, kinds[body])) continue;
        if (first_[id.index()] != kNoStep) add(id, body, position);
        ++position;
      }
    }
  }

  template <class Visit>
  void each(TaskId task, const Visit& visit) const {
    const std::uint32_t first = first_[task.index()];
    if (first == kNoStep || first == kAwaited) return;
    for (std::uint32_t i = first; i != kNoStep; i = next_[i]) visit(items_[i]);
  }

 private:
  static constexpr std::uint32_t kAwaited = kNoStep - 1;

  void add(TaskId id, BodyId body, std::uint32_t position) {
    std::uint32_t& first = first_[id.index()];
    if (first != kAwaited && items_[first].body == body) {
      items_[first].last = position;
      return;
    }
    items_.push_back({body, position, position});
    next_.push_back(first == kAwaited ? kNoStep : first);
    first = static_cast<std::uint32_t>(items_.size() - 1);
  }

  std::vector<std::uint32_t> first_, next_;
  std::vector<Occurrence> items_;
};

// The last place of the task in the body before `position`; the first one is `occurrence.first`.
std::uint32_t last_before(const Script& script, const Occurrence& occurrence, TaskId task, std::uint32_t position) {
  if (occurrence.last < position) return occurrence.last;
  while (script.tasks[--position] != task) {
  }
  return position;
}

void add_waits(const Agent& agent, BodyId body, const Occurrences& occurrences, std::uint32_t position,
               Script& script) {
  Step& step = script.steps[position];
  std::vector<StepWait>& waits = script.waits;
  step.first_wait = static_cast<std::uint32_t>(waits.size());
  for (const TaskId after : agent.tasks[script.tasks[position]].after) {
    const std::uint8_t stream = agent.tasks[after].stream;
    if (stream == step.stream) continue;  // issued earlier on the same stream: it ends before
    const Occurrence* here = nullptr;
    occurrences.each(after, [&](const Occurrence& o) {
      if (o.body == body && o.first < position) here = &o;
    });
    if (here != nullptr) {
      add_wait(waits, step.first_wait, {BodyId{}, last_before(script, *here, after, position), after, stream});
    } else {
      occurrences.each(after, [&](const Occurrence& o) {
        add_wait(waits, step.first_wait, {o.body, o.last, after, stream});
      });
    }
  }
  step.wait_count = static_cast<std::uint16_t>(waits.size() - step.first_wait);
}

// Links the step at the end of the script into its stream.
void chain(Script& script, std::array<std::uint32_t, kMaxStreams>& last) {
  const auto position = static_cast<std::uint32_t>(script.steps.size() - 1);
  const std::uint8_t stream = script.steps.back().stream;
  script.steps.back().next = kNoStep;
  std::uint32_t& before = last[stream];
  (before == kNoStep ? script.first[stream] : script.steps[before].next) = position;
  before = position;
}

Script make_script(const Workload& workload, const Agent& agent, BodyId body, std::size_t kind,
                   const Occurrences& occurrences) {
  Script script;
  script.first.fill(kNoStep);
  std::array<std::uint32_t, kMaxStreams> last;
  last.fill(kNoStep);
  script.steps.reserve(agent.bodies[body].size());
  script.tasks.reserve(agent.bodies[body].size());
  for (const TaskId id : agent.bodies[body]) {
    const Task& task = agent.tasks[id];
    if (!is_played(task.when, kind)) continue;
    const auto position = static_cast<std::uint32_t>(script.steps.size());
    script.steps.push_back(make_step(workload, task, kind));
    script.tasks.push_back(id);
    chain(script, last);
    if (!task.after.empty()) add_waits(agent, body, occurrences, position, script);
  }
  return script;
}

}  // namespace

AgentScript::AgentScript(const Workload& workload, const Agent& agent, BlockPool* pool)
    : micro_batches_(static_cast<std::size_t>(workload.micro_batches)) {
  guarded_ = std::any_of(agent.tasks.begin(), agent.tasks.end(),
                         [](const Task& t) { return t.when != PlayedFor::EveryMicroBatch; });
  for (const Task& task : agent.tasks) streams_ = std::max(streams_, task.stream + 1);

  // Moments: micro-batches that are of the same kind for every body.
  const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
  std::vector<Kinds> moments;
  const auto moment_of = [&](std::int32_t micro_batch) {
    Kinds kinds(agent.bodies.size());
    for (const BodyId body : agent.bodies.ids())
      kinds[body] = static_cast<std::uint8_t>(guarded_ ? kind_of(micro_batch, ranges[body]) : 0);
    const auto known = std::find(moments.begin(), moments.end(), kinds);
    const auto moment = static_cast<std::uint32_t>(known - moments.begin());
    if (known == moments.end()) moments.push_back(std::move(kinds));
    return moment;
  };
  std::vector<std::uint32_t> moment(micro_batches_);
  for (std::size_t i = 0; i < micro_batches_; ++i) moment[i] = moment_of(static_cast<std::int32_t>(i));
  std::vector<std::uint32_t> script_of(agent.bodies.size() * moments.size(), kNoStep);
  last_play_.assign(agent.bodies.size() * micro_batches_, kNoStep);
  played_.reserve(agent.plays.size());
  for (const Play& play : agent.plays) {
    const auto micro_batch = static_cast<std::size_t>(play.micro_batch);
    std::uint32_t& script = script_of[play.body.index() * moments.size() + moment[micro_batch]];
    if (script == kNoStep) {
      script = static_cast<std::uint32_t>(made_of_.size());
      made_of_.push_back({play.body, moments[moment[micro_batch]][play.body], moment[micro_batch]});
    }
    std::uint32_t& last = last_play_[play.body.index() * micro_batches_ + micro_batch];
    played_.push_back({.script = script, .previous = last, .body = play.body, .micro_batch = play.micro_batch});
    last = static_cast<std::uint32_t>(played_.size() - 1);
  }
  scripts_.resize(made_of_.size());
  for (std::uint32_t at = 0; at < moments.size(); ++at) {
    const Occurrences occurrences(agent, moments[at]);
    for (std::size_t i = 0; i < made_of_.size(); ++i)
      if (made_of_[i].moment == at)
        scripts_[i] = make_script(workload, agent, made_of_[i].body, made_of_[i].kind, occurrences);
  }
  number();
  if (host_is_free_ && agent.run_ahead == 0) pool_ = pool;
  for (Script& script : scripts_) {
    if (pool_ != nullptr) script.divide(*pool_);
    script.make_hops();
  }
}

void AgentScript::share_with(const AgentScript& other) {
  for (std::size_t i = 0; i < std::min(scripts_.size(), other.scripts_.size()); ++i) {
    std::vector<BlockRef>& mine = scripts_[i].blocks;
    const std::vector<BlockRef>& others = other.scripts_[i].blocks;
    for (std::size_t b = 0; b < std::min(mine.size(), others.size()); ++b)
      if (*mine[b] == *others[b]) mine[b] = others[b];
  }
}

// Computes the data derived from the steps of the scripts.
void AgentScript::number() {
  host_is_free_ = true;
  executed_ = 0;
  for (const Script& script : scripts_)
    for (const Step& step : script.steps) host_is_free_ &= step.host == 0 && !step.host_waits;
  for (Played& played : played_) {
    played.first_ordinal = executed_;
    executed_ += scripts_[played.script].steps.size();
  }
}

std::optional<TaskPositions> AgentScript::positions(std::size_t tasks) const {
  TaskPositions result(scripts_.size(), tasks);
  bool once = true;
  for (std::size_t i = 0; i < scripts_.size(); ++i)
    scripts_[i].each([&](std::uint32_t position, const Step&, TaskId task) {
      once &= std::exchange(result(i, task), position) == kNoStep;
    });
  return once ? std::optional(std::move(result)) : std::nullopt;
}

void Script::divide(BlockPool& pool) {
  const auto place = [&](std::uint32_t step) { return step == kNoStep ? kNoStep : Block::place_of(step); };
  for (StepWait& wait : waits) wait.position = place(wait.position);
  for (std::uint32_t& each : first) each = place(each);
  // At least one block, for insertions.
  for (std::size_t b = 0; b <= steps.size() / Block::kInitialSteps; ++b) blocks.push_back(pool.make());
  for (std::uint32_t p = 0; p < steps.size(); ++p) {
    Block& block = *blocks[p / Block::kInitialSteps];
    Step step = steps[p];
    step.next = place(step.next);
    const std::uint32_t at = block.insert(Block::place_of(p), step, tasks[p]);
    block.set_waits(at, {waits.data() + steps[p].first_wait, steps[p].wait_count});
  }
  steps = {};
  tasks = {};
  waits = {};
}

Hop Script::make_leap(std::uint32_t index) const {
  Hop leap;
  const std::uint32_t begin = index * kLeap;
  const auto end = static_cast<std::uint32_t>(std::min(hops.size() + blocks.size(), std::size_t{begin} + kLeap));
  for (std::uint32_t i = begin; i < end; ++i) {
    const Hop& hop = hop_at(i);
    if (hop.first == kNoStep) continue;
    if (leap.first == kNoStep || hop.stream < leap.stream) {
      leap = hop;
      leap.noted = false;
      continue;
    }
    if (hop.stream > leap.stream) continue;
    const StepWait wait = hop.wait();
    if (hop.first != leap.next || hop.duration > kTimeLimit - leap.duration ||
        !leap.add(std::span(&wait, hop.awaited != kNoStep ? 1 : 0)))
      break;
    leap.duration += hop.duration;
    leap.steps = static_cast<std::uint16_t>(leap.steps + hop.steps);
    leap.last = hop.last;
    leap.next = hop.next;
  }
  return leap;
}

void Script::make_hops() {
  for (std::uint32_t i = 0; i < blocks.size(); ++i) blocks[i]->make_hop(i);
  hops.resize((steps.size() + kHop - 1) / kHop);
  for (std::uint32_t i = 0; i < hops.size(); ++i) {
    const std::uint32_t begin = i * kHop;
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kHop, steps.size() - begin));
    hops[i] = make_hop(
        count, [&](std::uint32_t k) { return begin + k; },
        [&](std::uint32_t k) -> const Step& { return steps[begin + k]; },
        [&](std::uint32_t k) { return waits_at(begin + k); });
  }
  leaps.resize((hops.size() + blocks.size() + kLeap - 1) / kLeap);
  for (std::uint32_t i = 0; i < leaps.size(); ++i) leaps[i] = make_leap(i);
}

Place AgentScript::next_issued(Place place) const {
  if (++place.position < script(place.play).steps.size()) return place;
  do ++place.play;
  while (place.play < plays() && script(place.play).steps.empty());
  return {place.play, 0};
}

Place AgentScript::first_issued() const {
  Place place;
  while (place.play < plays() && script(place.play).steps.empty()) ++place.play;
  return place;
}

bool AgentScript::previous_issued(Place& place) const {
  if (place.position > 0) {
    --place.position;
    return true;
  }
  for (std::uint32_t play = place.play; play-- > 0;)
    if (const std::size_t steps = script(play).steps.size(); steps > 0) {
      place = {play, static_cast<std::uint32_t>(steps - 1)};
      return true;
    }
  return false;
}

}  // namespace weft::engine
