#include "simulate/workload.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "simulate/wide.h"
#include "simulate/workload_check.h"

namespace weft {
namespace {

// Bounds Σ coefficient over the flows of a link, and products with rates, so that they do not overflow.
constexpr std::int64_t kMostCoefficient = std::int64_t{1} << 40;
constexpr Picoseconds kLongest = kTimeLimit / 2;

Status check_agent(const Workload& workload, const Agent& agent) {
  if (agent.run_ahead < 0) return error("run_ahead {}: not below 0 (0: no limit)", agent.run_ahead);
  if (agent.stands_for < 1) return error("stands for {} devices: 1 at least", agent.stands_for);
  if (agent.interference >= workload.interference.size())
    return error("interference {} does not exist", agent.interference);
  for (const TaskId id : agent.tasks.ids())
    if (const Status status = check_task(workload, agent, agent.tasks[id]); !status)
      return status.error().at(fmt::format("task {}", id.index()));
  for (const BodyId body : agent.bodies.ids())
    for (const TaskId task : agent.bodies[body])
      if (!agent.tasks.contains(task)) return error("body {}: task {} does not exist", body.index(), task.index());
  for (const Play& play : agent.plays) {
    if (!agent.bodies.contains(play.body)) return error("plays body {}, which does not exist", play.body.index());
    if (play.micro_batch < 0 || play.micro_batch >= workload.micro_batches)
      return error("plays micro-batch {} of {}", play.micro_batch, workload.micro_batches);
  }
  return Ok{};
}

// A meeting that is in some body must have as many agents as parties, each on one stream.
Status check_parties(const Workload& workload) {
  struct Seen {
    std::int32_t agents = 0;
    AgentId last;
    std::uint8_t stream = 0;
  };
  IdVec<MeetingId, Seen> seen(workload.meetings.size());
  for (const AgentId id : workload.agents.ids()) {
    const Agent& agent = workload.agents[id];
    for (const std::vector<TaskId>& body : agent.bodies)
      for (const TaskId task_id : body) {
        const Task& task = agent.tasks[task_id];
        if (!task.meeting.valid()) continue;
        Seen& meeting = seen[task.meeting];
        if (meeting.last != id) {
          ++meeting.agents;
          meeting.last = id;
          meeting.stream = task.stream;
        } else if (meeting.stream != task.stream) {
          return error("agent {}: comes to meeting {} on streams {} and {}: all its times on one", id.index(),
                       task.meeting.index(), meeting.stream, task.stream);
        }
      }
  }
  for (const MeetingId id : workload.meetings.ids())
    if (seen[id].agents != 0 && seen[id].agents != workload.meetings[id].parties)
      return error("meeting {}: has {} parties but {} agents come to it", id.index(), workload.meetings[id].parties,
                   seen[id].agents);
  return Ok{};
}

}  // namespace

Status check_work(WorkId id, const Work& work, const IdVec<FlowLinkId, FlowLink>& links,
                  IdVec<FlowLinkId, WorkId>& named_by) {
  const auto fault = [&](std::string_view what) { return error("work {}: {}", id.index(), what); };
  if (work.fixed < 0 || work.fixed > kLongest)
    return fault(fmt::format("fixed time {} ps: between 0 and {}", work.fixed, kLongest));
  if (work.bytes < 0) return fault(fmt::format("{} bytes: not below 0", work.bytes));
  if (work.alone < 0) return fault(fmt::format("{} B/s alone: not below 0", work.alone));
  if (work.cap < 0) return fault(fmt::format("cap {} B/s: not below 0 (0: none)", work.cap));
  for (const LinkUse& load : work.links) {
    if (!links.contains(load.link)) return fault(fmt::format("link {} does not exist", load.link.index()));
    if (links[load.link].capacity <= 0)
      return fault(fmt::format("link {} has capacity {}: give it some, or route around it", load.link.index(),
                               links[load.link].capacity));
    if (std::exchange(named_by[load.link], id) == id)
      return fault(fmt::format("link {} twice: once, with the sum of its coefficients", load.link.index()));
    if (load.coefficient < 1 || load.coefficient > kMostCoefficient)
      return fault(fmt::format("coefficient {} on link {}: between 1 and {}", load.coefficient, load.link.index(),
                               kMostCoefficient));
  }
  if (work.bytes > 0 && work.links.empty() && work.cap == 0)
    return fault("has bytes but neither links nor a cap: nothing says how fast they go");
  if (isolated_time(work, links) > kLongest) return fault(fmt::format("takes longer than {} ps alone", kLongest));
  for (const std::int32_t share : {work.sm_share, work.memory_share})
    if (share < 0 || share > kOne) return fault(fmt::format("share {}: between 0 and {}", share, kOne));
  if (work.waves < 0) return fault(fmt::format("{} waves: not below 0", work.waves));
  return Ok{};
}

Status check_task(const Workload& workload, const Agent& agent, const Task& task) {
  if (task.work.valid() && task.meeting.valid()) return error("names a work and a meeting: one of the two");
  if (task.meeting.valid() && task.when == PlayedFor::AfterFirst)
    return error("meets others, but not in the first micro-batch: a meeting is played for the first, the last or all");
  if (task.work.valid() && !workload.works.contains(task.work))
    return error("work {} does not exist", task.work.index());
  if (task.meeting.valid() && !workload.meetings.contains(task.meeting))
    return error("meeting {} does not exist", task.meeting.index());
  if (task.stream >= kMaxStreams) return error("stream {}: below {}", task.stream, kMaxStreams);
  if (task.host < 0 || task.host > kLongest) return error("host time {} ps: between 0 and {}", task.host, kLongest);
  for (const TaskId after : task.after)
    if (!agent.tasks.contains(after)) return error("after task {}, which does not exist", after.index());
  return Ok{};
}

Status check_meeting(const Workload& workload, MeetingId id) {
  const Meeting& meeting = workload.meetings[id];
  if (!workload.works.contains(meeting.work)) return error("meeting {}: its work does not exist", id.index());
  if (meeting.parties < 1) return error("meeting {}: {} parties: 1 at least", id.index(), meeting.parties);
  return Ok{};
}

std::int64_t isolated_rate(const Work& work, const IdVec<FlowLinkId, FlowLink>& links) {
  std::int64_t rate = work.cap > 0 ? work.cap : work.links.empty() ? 0 : std::numeric_limits<std::int64_t>::max();
  if (work.alone > 0) return std::max<std::int64_t>(1, std::min(rate, work.alone));
  for (const LinkUse& load : work.links) {
    const Wide share = Wide{links[load.link].capacity} * kOne / load.coefficient;
    if (share < rate) rate = static_cast<std::int64_t>(share);
  }
  return work.cap == 0 && work.links.empty() ? 0 : std::max<std::int64_t>(rate, 1);
}

Picoseconds isolated_time(const Work& work, const IdVec<FlowLinkId, FlowLink>& links) {
  if (work.bytes == 0) return work.fixed;
  return work.fixed + time_at_rate(work.bytes * kPerByte, isolated_rate(work, links));
}

std::int32_t compute_speed(const Interference& law, const DeviceLoad& computing, const DeviceLoad& communicating) {
  const auto times = [](Wide a, Wide b) { return a * b / kOne; };
  Wide left = kOne - times(law.compute_per_sm, communicating.sm), units = kOne;
  if (computing.waves > 0) {
    if (computing.waves > kWave && communicating.sm > 0) left -= law.wave_loss;
    const auto steps = [&](Wide waves) {
      return waves * kOne + law.wave_weight * ((waves + kWave - 1) / kWave * kWave - waves);
    };
    const Wide crowded = Wide{computing.waves} * kOne / std::clamp<Wide>(left, kSlowest, kOne);
    units = steps(computing.waves) * kOne / steps(crowded);
  } else if (computing.sm > 0) {
    units = left * kOne / computing.sm;
  }
  const Wide load = kOne + times(law.memory_weight, times(computing.memory, communicating.memory));
  const Wide speed = std::clamp<Wide>(units, kSlowest, kOne) * kOne / load;
  return static_cast<std::int32_t>(std::clamp<Wide>(speed, kSlowest, kOne));
}

std::int32_t communication_speed(const Interference& law, const DeviceLoad& computing,
                                 const DeviceLoad& communicating) {
  const Wide load =
      std::max<Wide>(kOne, communicating.memory) + Wide{law.communication_weight} * computing.memory / kOne;
  return static_cast<std::int32_t>(std::clamp<Wide>(Wide{kOne} * kOne / load, kSlowest, kOne));
}

IdVec<BodyId, PlayedRange> played_ranges(const Agent& agent) {
  IdVec<BodyId, PlayedRange> ranges(agent.bodies.size());
  for (const Play& play : agent.plays) {
    PlayedRange& range = ranges[play.body];
    if (range.first < 0) range.first = play.micro_batch;
    range.last = play.micro_batch;
  }
  return ranges;
}

Picoseconds busiest_stream(const Workload& workload) {
  IdVec<WorkId, Picoseconds> alone(workload.works.size());
  for (const WorkId id : workload.works.ids()) alone[id] = isolated_time(workload.works[id], workload.links);
  using Streams = std::array<Picoseconds, kMaxStreams>;
  Picoseconds most = 0;
  for (const Agent& agent : workload.agents) {
    IdVec<BodyId, std::array<Streams, kPlayedFor>> bodies(agent.bodies.size());  // by when tasks are played
    const auto add = [&](Picoseconds& sum, Picoseconds time) { sum = std::min(kTimeLimit, sum + time); };
    for (const BodyId body : agent.bodies.ids())
      for (const TaskId id : agent.bodies[body]) {
        const Task& task = agent.tasks[id];
        const WorkId work = task.meeting.valid() ? workload.meetings[task.meeting].work : task.work;
        if (work.valid()) add(bodies[body][static_cast<std::size_t>(task.when)][task.stream], alone[work]);
      }
    Streams sums{};
    const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
    for (const Play& play : agent.plays)
      for (std::size_t when = 0; when < kPlayedFor; ++when)
        if (works_in(Task{.when = static_cast<PlayedFor>(when)}, ranges[play.body], play.micro_batch))
          for (std::size_t stream = 0; stream < sums.size(); ++stream)
            add(sums[stream], bodies[play.body][when][stream]);
    most = std::max(most, *std::max_element(sums.begin(), sums.end()));
  }
  return most;
}

Status check(const Workload& workload) {
  if (workload.micro_batches < 1) return error("{} micro-batches: 1 at least", workload.micro_batches);
  for (const FlowLinkId id : workload.links.ids())
    if (workload.links[id].capacity < 0)
      return error("link {}: capacity {} B/s: not below 0", id.index(), workload.links[id].capacity);
  for (const Interference& each : workload.interference)
    for (const std::int64_t weight :
         {each.compute_per_sm, each.memory_weight, each.communication_weight, each.wave_loss, each.wave_weight})
      if (weight < 0 || weight > kMostCoefficient)
        return error("interference weight {}: between 0 and {}", weight, kMostCoefficient);
  IdVec<FlowLinkId, WorkId> named_by(workload.links.size());
  for (const WorkId id : workload.works.ids())
    WEFT_TRY_OK(check_work(id, workload.works[id], workload.links, named_by));
  for (const MeetingId id : workload.meetings.ids()) WEFT_TRY_OK(check_meeting(workload, id));
  for (const AgentId id : workload.agents.ids())
    if (const Status status = check_agent(workload, workload.agents[id]); !status)
      return status.error().at(fmt::format("agent {}", id.index()));
  return check_parties(workload);
}

}  // namespace weft
