#include "forecast/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "cost/step_prices.h"
#include "cost/tuning.h"
#include "forecast/critical.h"

namespace weft {
namespace {

class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// With flat copies and buffers of the framework, by the parameters that the device holds. Only with a sharded optimizer
// (ZeRO); others allocate them for the optimizer step alone, when activations have been freed.
Bytes reserved_of(const Plan& plan, const HeldBytes& held) {
  const Bytes reserved = reserved_estimate(held, plan.stack());
  if (!plan.parallelism || plan.parallelism->zero == 0) return reserved;
  const std::int64_t each = std::max<std::int64_t>(1, bytes_of(plan.job->precision.stored, 1));
  return reserved + plan.stack().kept_for(held.parameters.value / each);
}

Bytes device_total_of(const Plan& plan, Bytes reserved, int communicators) {
  const MemoryOverheads overheads = memory_overheads(plan.stack());
  return reserved + overheads.context.value + overheads.communicator.value * communicators;
}

class Judge {
 public:
  Judge(const Plan& plan, const PlayedPlan& played, const ForecastOptions& options)
      : plan_(plan), played_(played), options_(options), ranks_(plan.ranks()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      rank_of_[ranks_[rank].index()] = static_cast<std::int64_t>(rank);
  }

  Forecast run() {
    result_.step = played_.run.makespan;
    result_.step_s = seconds_of(result_.step);
    result_.interval = built_in_spread().interval(kind_of(plan_), result_.step_s);
    result_.memory_margin = built_in_spread().memory.value;
    result_.agents = static_cast<std::int64_t>(played_.priced.agents.size());
    result_.tasks = played_.run.tasks;
    result_.events = played_.run.events;
    result_.assumptions = plan_.assumptions;
    utilisation();
    AgentId last(0);
    while (played_.run.agents[last].end < result_.step) ++last;
    links();
    if (played_.recorded) {
      const Timeline timeline(played_.priced.workload, played_.run);
      last = break_down(timeline, last);
      memory(&timeline);
      if (options_.critical_path) critical_path();
    } else {
      memory(nullptr);
    }
    result_.last = ranks_of(played_.priced.agents[last].devices);
    result_.host_bound = played_.run.agents[last].host_bound;
    assume();
    return std::move(result_);
  }

 private:
  // Where the time goes on the agent that ends last, or in a pipeline on the last of those that are not nearly idle: a
  // stage with an embedding alone says nothing. What it waits for a stage that has more to do is imbalance, the
  // rest of its waiting the pipeline's bubble. Returns the agent.
  AgentId break_down(const Timeline& timeline, AgentId last) {
    constexpr double kIdle = 0.5;  // of what the busiest stage does
    const IdVec<InstructionId, Activity> activities = activities_of(program(), graph());
    const auto parts_of = [&](AgentId agent) { return break_down_step(timeline, agent, activities, program()); };
    const auto work = [](const StepBreakdown& of) {  // communication of its own operators too
      return std::accumulate(of.active.begin(), of.active.end(), Picoseconds{0}) - of[Activity::Pipeline];
    };
    StepBreakdown found = parts_of(last);
    if (played_.compiled.schedule.ranks > 1) {
      std::vector<std::pair<AgentId, StepBreakdown>> stages = {{last, found}};
      for (AgentId agent : representatives(plan_, played_))
        if (agent != last) stages.emplace_back(agent, parts_of(agent));
      Picoseconds most = 0;
      for (const auto& [agent, of] : stages) most = std::max(most, work(of));
      const auto idle = [&](const StepBreakdown& of) {
        return static_cast<double>(work(of)) < kIdle * static_cast<double>(most);
      };
      if (idle(found)) {
        const auto later = [&](const auto& a, const auto& b) {
          return std::pair(!idle(a.second), -a.second.done) < std::pair(!idle(b.second), -b.second.done);
        };
        std::tie(last, found) = *std::max_element(stages.begin(), stages.end(), later);
      }
      found.bubble += std::exchange(found.done, 0);  // until the step has ended everywhere
      found.imbalance = std::min(found.bubble, most - work(found));
      found.bubble -= found.imbalance;
    }
    result_.breakdown = found;
    return last;
  }

  const Program& program() const { return played_.compiled.program; }
  const Graph& graph() const { return plan_.training().graph; }

  std::vector<std::int64_t> ranks_of(const std::vector<DeviceId>& devices) const {
    std::vector<std::int64_t> ranks;
    for (DeviceId device : devices) ranks.push_back(rank_of_.at(device.index()));
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  void utilisation() {
    result_.flops = flops_of(plan_, played_.compiled);
    const Arithmetic wanted = plan_.job->precision.products.value_or(arithmetic_of(plan_.job->precision.stored));
    result_.arithmetic = product_rate(plan_.cluster().spec(ranks_.front()), wanted).arithmetic;
    result_.peak = peak_of(plan_);
    if (result_.step == 0) return;
    const double possible = result_.peak.value * result_.step_s;
    result_.samples_per_s = static_cast<double>(plan_.batch.global_batch) / result_.step_s;
    if (plan_.model->info.counts_tokens)
      result_.tokens_per_s = static_cast<double>(plan_.tokens_per_step()) / result_.step_s;
    if (possible <= 0) return;
    result_.mfu = result_.flops.model.value / possible;
    result_.mfu_causal = result_.flops.causal.value / possible;
    result_.hfu = (result_.flops.model + result_.flops.recomputed).value / possible;
  }

  void links() {
    const Workload& workload = played_.priced.workload;
    std::map<LinkKind, BusiestLink> busiest;
    for (FlowLinkId id : workload.links.ids()) {
      const FlowLink& link = workload.links[id];
      if (link.capacity == 0 || played_.run.carried[id] == 0) continue;
      const LinkId own(link.label);
      const LinkKind kind = plan_.cluster().link(own).kind;
      const double capacity = static_cast<double>(link.capacity);
      const double used = static_cast<double>(played_.run.carried[id]) / capacity / result_.step_s;
      const auto [found, fresh] = busiest.try_emplace(kind);
      if (fresh || used > found->second.utilisation)
        found->second = {std::string(name(kind)), plan_.cluster().link_name(own), played_.run.carried[id], capacity,
                         used};
    }
    for (auto& [kind, use] : busiest) result_.links.push_back(std::move(use));
    std::stable_sort(result_.links.begin(), result_.links.end(),
                     [](const BusiestLink& a, const BusiestLink& b) { return a.utilisation > b.utilisation; });
  }

  void memory(const Timeline* timeline) {
    for (const MemoryClass& of : memory_classes(played_.compiled, plan_.cluster(), ranks_)) {
      const MemoryOfClass memory(played_.compiled, plan_.training(), plan_.stack(), of);
      const MemoryOfClass::Peak peak = memory.peak();
      const DeviceSpec& spec = plan_.cluster().spec(of.devices.front());
      ClassForecast made;
      made.ranks = ranks_of(of.devices);
      made.pipeline_rank = of.rank;
      made.device = spec.title;
      made.allocated = peak.held;
      made.reserved = reserved_of(plan_, peak.held);
      made.communicators = communicators_of(played_.compiled, of);
      made.device_total = device_total_of(plan_, made.reserved, made.communicators);
      made.capacity = capacity_of(spec);
      made.budget = plan_.job->memory_budget_of(of.devices.front());
      const Bytes there_is = std::min(made.capacity, plan_.job->words.max_memory.value_or(made.capacity));
      made.fit = built_in_spread().fit_of(made.device_total, made.budget, there_is);
      made.peak_play = name_of_play(played_.compiled.schedule, of.rank, memory.issued(peak.play));
      if (peak.at.valid()) made.peak_at = title_of(program(), graph(), peak.at);
      if (timeline || !made.fits()) made.largest = memory.alive_at(peak);
      if (made.largest.size() > options_.culprits) made.largest.resize(options_.culprits);
      if (timeline) made.peak_time = time_of(*timeline, of, peak);
      result_.feasible = result_.feasible && made.fits();
      result_.memory.push_back(std::move(made));
    }
    std::stable_sort(result_.memory.begin(), result_.memory.end(),
                     [](const ClassForecast& a, const ClassForecast& b) { return a.pipeline_rank < b.pipeline_rank; });
  }

  // When the compute stream of the class reaches the peak: the last computation issued until then.
  std::optional<Picoseconds> time_of(const Timeline& timeline, const MemoryClass& of,
                                     const MemoryOfClass::Peak& peak) const {
    for (AgentId agent : played_.priced.agents.ids()) {
      if (played_.priced.agents[agent].devices.front() != of.devices.front()) continue;
      std::optional<Picoseconds> time;
      bool past = false;
      timeline.for_each(agent, [&](const Span& span) {
        past = past || span.play > peak.play;
        if (past) return;
        const Task& task = played_.priced.workload.agents[agent].tasks[span.task];
        if (task.stream == static_cast<std::uint8_t>(Stream::Compute)) time = span.start;
        past = span.play == peak.play && peak.at.valid() && span.instruction == peak.at.index();
      });
      return time;
    }
    return std::nullopt;
  }

  void critical_path() {
    std::map<std::string, Picoseconds> sums;
    std::unordered_map<std::uint32_t, std::string> names;
    for (const PathStretch& stretch : critical_stretches(played_.priced.workload, played_.run)) {
      if (stretch.part == PathPart::Host) {
        sums["host"] += stretch.time;
      } else if (stretch.part == PathPart::Sharing) {
        sums["sharing links and device"] += stretch.time;
      } else {
        const auto [found, fresh] = names.try_emplace(stretch.instruction);
        if (fresh) found->second = sort_of(program(), graph(), InstructionId(stretch.instruction));
        sums[found->second] += stretch.time;
      }
    }
    for (const auto& [what, time] : sums) result_.critical_path.push_back({what, time});
    std::stable_sort(result_.critical_path.begin(), result_.critical_path.end(),
                     [](const PathShare& a, const PathShare& b) { return a.time > b.time; });
  }

  void assume() {
    std::vector<std::string>& assumptions = result_.assumptions;
    assumptions.emplace_back(
        options_.network == Network::Fair
            ? "network: concurrent communications share links max-min fairly (--network)"
            : "network: a link serves one communication at a time, in order of arrival (--network)");
    if (options_.fold && !played_.folded && options_.network == Network::Fifo)
      assumptions.emplace_back(
          "every device is simulated: groups of one class share links, which fifo does not treat alike");
    assumptions.push_back(
        fmt::format("MFU: products of forward and backward, published vocabulary, attention in full, over "
                    "the dense {} peak of all ranks",
                    name(result_.arithmetic)));
    const MemoryOverheads overheads = memory_overheads(plan_.stack());
    assumptions.push_back(
        fmt::format("memory reserved: allocated + {:.1f} % of activations and buffers, in segments of {} (estimate)",
                    100 * overheads.fragmentation.value, human(overheads.segment.value)));
    assumptions.push_back(
        fmt::format("memory of the device: reserved + {} of context + {} per communicator (estimates)",
                    human(overheads.context.value), human(overheads.communicator.value)));
    assumptions.push_back(
        fmt::format("{:.3g} % of a device's memory stays free (--headroom)", 100 * plan_.job->words.headroom));
    if (plan_.job->words.max_memory)
      assumptions.push_back(
          fmt::format("at most {} of a device's memory is used (--max-memory)", human(*plan_.job->words.max_memory)));
  }

  const Plan& plan_;
  const PlayedPlan& played_;
  const ForecastOptions& options_;
  std::vector<DeviceId> ranks_;
  std::unordered_map<std::uint32_t, std::int64_t> rank_of_;
  Forecast result_;
};

// Of one device of every pipeline rank.
std::int64_t tasks_of(const CompiledStrategy& compiled) {
  std::size_t instructions = 0;
  for (const StageProgram& stage : compiled.program.stages)
    instructions += stage.forward.size() + stage.backward.size();
  return static_cast<std::int64_t>(instructions) * compiled.schedule.micro_batches;
}

TensorId subject_of(const Program& program, const Instruction& instruction) {
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
    return program.buffers[communicate->inputs.front()].tensor;
  if (const auto* send = std::get_if<Send>(&instruction.what))
    return program.buffers[program.transfers[send->transfer].from].tensor;
  if (const auto* receive = std::get_if<Receive>(&instruction.what))
    return program.buffers[program.transfers[receive->transfer].to].tensor;
  if (const auto* copy = std::get_if<Copy>(&instruction.what)) return program.buffers[copy->from].tensor;
  return {};
}

}  // namespace

std::string sort_of(const Program& program, const Graph& graph, InstructionId id) {
  const Instruction& instruction = program.instructions[id];
  if (const auto* compute = std::get_if<Compute>(&instruction.what))
    return std::string(name_of(graph.kind(compute->op)));
  if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
    return fmt::format(
        "{} over {}", name_of(communicate->collective),
        instruction.mesh == program.world ? "world" : program.meshes[instruction.mesh].names_of(communicate->axes));
  if (std::holds_alternative<Send>(instruction.what)) return "send";
  if (std::holds_alternative<Receive>(instruction.what)) return "receive";
  if (const auto* copy = std::get_if<Copy>(&instruction.what))
    return program.buffers[copy->to].on_host ? "copy to host" : "copy from host";
  if (std::holds_alternative<SumScalars>(instruction.what)) return "sum scalars";
  return std::holds_alternative<Wait>(instruction.what) ? "wait" : "free";
}

std::string title_of(const Program& program, const Graph& graph, InstructionId id) {
  const Instruction& instruction = program.instructions[id];
  if (const auto* compute = std::get_if<Compute>(&instruction.what)) return graph.name(compute->op);
  const TensorId tensor = subject_of(program, instruction);
  if (!tensor.valid()) return sort_of(program, graph, id);
  const auto* communicate = std::get_if<Communicate>(&instruction.what);
  const std::size_t more = communicate ? communicate->inputs.size() - 1 : 0;
  return fmt::format("{}{} {}{}", sort_of(program, graph, id), communicate ? " of" : "", graph.name(tensor),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

std::vector<AgentId> representatives(const Plan& plan, const PlayedPlan& played) {
  std::unordered_map<std::uint32_t, AgentId> agent_of;  // by device
  for (AgentId agent : played.priced.agents.ids())
    for (DeviceId device : played.priced.agents[agent].devices) agent_of[device.index()] = agent;
  std::vector<AgentId> agents;
  for (const MemoryClass& of : memory_classes(played.compiled, plan.cluster(), plan.ranks()))
    agents.push_back(agent_of.at(of.devices.front().index()));
  return agents;
}

std::vector<DeviceMemory> device_memory(const Plan& plan, const CompiledStrategy& compiled) {
  std::vector<DeviceMemory> needs;
  for (const MemoryClass& of : memory_classes(compiled, plan.cluster(), plan.ranks())) {
    const MemoryOfClass memory(compiled, plan.training(), plan.stack(), of);
    needs.push_back({of.rank,
                     device_total_of(plan, reserved_of(plan, memory.peak().held), communicators_of(compiled, of)),
                     plan.job->memory_budget_of(of.devices.front())});
  }
  return needs;
}

const ClassForecast* Forecast::fullest() const {
  const auto by_need = [](const ClassForecast& a, const ClassForecast& b) {
    if (a.overshoot() != b.overshoot()) return a.overshoot() < b.overshoot();
    if (a.budget.value == 0 || b.budget.value == 0) return a.device_total < b.device_total;
    return a.device_total / a.budget < b.device_total / b.budget;
  };
  const auto found = std::max_element(memory.begin(), memory.end(), by_need);
  return found == memory.end() ? nullptr : &*found;
}

Fit Forecast::fit() const {
  Fit worst = Fit::Fits;
  for (const ClassForecast& each : memory) worst = std::max(worst, each.fit);
  return worst;
}

Result<PlayedProgram> play_compiled(const Plan& plan, const SoftwareStack& of, const CompiledStrategy& compiled,
                                    const CostModel& cost, const ForecastOptions& options, PlayTimes* times) {
  PlayTimes ignored;
  PlayTimes& taken = times ? *times : ignored;
  Stopwatch watch;
  SoftwareStack stack = of;
  if (!options.host) stack.graph_capture.value = true;
  const auto priced_with = [&](bool fold) {
    PriceOptions pricing{.fold = fold ? Fold::Alike : Fold::None};
    if (compiled.last) pricing.last.emplace(LastMicroBatch{*compiled.last, plan.model->last->graph});
    return price(compiled.program, compiled.schedule, plan.training(), plan.cluster(), cost, stack, pricing);
  };
  bool folded = options.fold;
  WEFT_TRY(Priced priced, priced_with(folded));
  if (folded && options.network == Network::Fifo && !priced.exact_under_fifo) {
    folded = false;
    WEFT_TRY(priced, priced_with(false));
  }
  taken.price = watch.lap();
  const bool record = options.record && tasks_of(compiled) <= options.most_recorded;
  WEFT_TRY(Run run, simulate(priced.workload, {.network = options.network, .record = record}));
  taken.simulate = watch.lap();
  return PlayedProgram{std::move(priced), std::move(run), folded, record};
}

Result<PlayedPlan> play_plan(const Plan& plan, const CostModel& cost, const ForecastOptions& options,
                             PlayTimes* times) {
  Stopwatch watch;
  const StepPrices prices(plan.cluster(), cost, plan.stack().uneven_parts.value);
  WEFT_TRY(CompiledStrategy compiled, compile_plan(plan, &prices));
  if (times) times->compile = watch.lap();
  return play_plan(plan, std::move(compiled), cost, options, times);
}

Result<PlayedPlan> play_plan(const Plan& plan, CompiledStrategy compiled, const CostModel& cost,
                             const ForecastOptions& options, PlayTimes* times) {
  WEFT_TRY(PlayedProgram played, play_compiled(plan, plan.stack(), compiled, cost, options, times));
  return PlayedPlan{std::move(compiled), std::move(played.priced), std::move(played.run), played.folded,
                    played.recorded};
}

FlopsPerSecond peak_of(const Plan& plan) {
  const Arithmetic wanted = plan.job->precision.products.value_or(arithmetic_of(plan.job->precision.stored));
  const DeviceSpec* spec = nullptr;
  FlopsPerSecond each, all;
  for (DeviceId device : plan.ranks()) {
    if (const DeviceSpec* own = &plan.cluster().spec(device); own != spec) {
      spec = own;
      each = product_rate(*own, wanted).peak;
    }
    all += each;
  }
  return all;
}

Forecast judge(const Plan& plan, const PlayedPlan& played, const ForecastOptions& options) {
  return Judge(plan, played, options).run();
}

Result<Forecast> forecast(const Plan& plan, const CostModel& cost, const ForecastOptions& options) {
  WEFT_TRY(const PlayedPlan played, play_plan(plan, cost, options));
  return judge(plan, played, options);
}

}  // namespace weft
