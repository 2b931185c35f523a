#include "hybrid/neighbours.h"

#include <algorithm>
#include <set>
#include <string>

#include "strategy/schedules.h"
#include "strategy/stages.h"

namespace weft {
namespace {

std::vector<std::int64_t> prime_factors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t prime = 2; prime * prime <= number; ++prime) {
    if (number % prime == 0) found.push_back(prime);
    while (number % prime == 0) number /= prime;
  }
  if (number > 1) found.push_back(number);
  return found;
}

class Neighbours {
 public:
  Neighbours(const PlanProblem& problem, const SpaceOptions& options, const Parallelism& plan)
      : problem_(problem), options_(options), plan_(plan) {
    known_.insert(print(shorthand_of(plan)));
  }

  std::vector<Parallelism> run() {
    degrees();
    experts();
    micro_batches();
    sharding();
    schedules();
    moved_layers();
    modes();
    recomputation();
    order();
    offload();
    return std::move(found_);
  }

 private:
  // Adds the plan if the shorthand accepts it. A changed dp keeps the micro-batch if it divides.
  void add(Parallelism plan) {
    if (plan.dp < 1 || problem_.global_batch % plan.dp != 0) return;
    const std::int64_t each = problem_.global_batch / plan.dp;
    if (each % plan.micro_batch != 0) return;
    plan.micro_batches = each / plan.micro_batch;
    plan.last_micro_batch = plan.micro_batch;
    const Result<Parallelism> read =
        complete(shorthand_of(plan), problem_.devices, {.global_batch = problem_.global_batch});
    if (!read.ok() || !options_.allow(*read)) return;
    if (known_.insert(print(shorthand_of(*read))).second) found_.push_back(*read);
  }

  // With the stages that its numbers of stages and layers make necessary, or cut otherwise.
  void add_staged(Parallelism plan) {
    const PipelineSchedule* const schedule = find_schedule(plan.schedule);
    if (!schedule) return;
    const std::int64_t stages = stage_count(*schedule, plan.pp, plan.vpp), layers = problem_.layers.count();
    if (!plan_.stages.empty() && static_cast<std::int64_t>(plan_.stages.size()) == stages) {
      plan.stages = plan_.stages;  // as they are
      add(plan);
    }
    plan.stages.clear();
    if (stages == 1) return add(plan);
    if (layers % stages == 0) add(plan);
    for (const StageSplit split : kStageSplits) {
      if (split == StageSplit::Even ? layers % stages == 0 : !options_.uneven_stages) continue;
      plan.stages = considered_stages(problem_, stages / plan.vpp, plan.vpp, split);
      const bool even = layers % stages == 0 && plan.stages == even_stages(layers, stages);
      if (!plan.stages.empty() && !even) add(plan);
    }
  }

  Parallelism one_rank_of_a_pipeline(Parallelism plan) const {
    if (plan.pp > 1) return plan;
    plan.vpp = 1;
    plan.schedule = "1f1b";
    return plan;
  }

  void degrees() {
    using Degree = std::int64_t Parallelism::*;
    const auto allowed = [&](const Parallelism& plan) {
      const bool tensor = plan.tp == 1 || (problem_.splits_tensors && problem_.heads % plan.tp == 0);
      const bool context = plan.cp == 1 || (problem_.splits_tensors && problem_.model().counts_tokens &&
                                            problem_.model().seq % (2 * plan.cp * plan.tp) == 0 &&
                                            problem_.model().seq / plan.cp >= options_.least_context);
      const bool layered = plan.pp == 1 || problem_.layers.count() > 0;
      const bool sharded = plan.pp == 1 || plan.zero < 2 || options_.pipelined_zero;
      const std::int64_t most = options_.most_tensor > 0 ? options_.most_tensor : problem_.per_node;
      return tensor && context && layered && sharded && plan.tp <= std::max(most, plan_.tp);
    };
    for (const Degree from : {&Parallelism::tp, &Parallelism::cp, &Parallelism::pp, &Parallelism::dp})
      for (const std::int64_t prime : prime_factors(plan_.*from))
        for (const Degree to : {&Parallelism::tp, &Parallelism::cp, &Parallelism::pp, &Parallelism::dp}) {
          if (from == to) continue;
          Parallelism plan = plan_;
          plan.*from /= prime;
          plan.*to *= prime;
          plan.fsdp = plan_.fsdp == plan_.dp ? plan.dp : plan_.fsdp;
          if (plan.dp % plan.fsdp != 0) continue;
          plan.etp = plan_.etp == plan_.tp ? plan.tp : std::min(plan.tp, plan_.etp);
          plan.sequence_parallel = plan.tp > 1 && (plan_.tp == 1 || plan_.sequence_parallel);
          if (plan.cp == 1) plan.cp_mode = ContextMode::Gather;
          if (plan.dp * plan.cp == 1) plan.zero = 0;
          if (!allowed(plan)) continue;
          add_staged(one_rank_of_a_pipeline(plan));
          // With as many tokens on a device as before: samples for parts of the sequence or of layers, and back.
          for (const std::int64_t size : {plan.micro_batch * prime, plan.micro_batch / prime}) {
            if (size < 1 || (from != &Parallelism::dp && to != &Parallelism::dp)) continue;
            Parallelism sized = plan;
            sized.micro_batch = size;
            add_staged(one_rank_of_a_pipeline(sized));
          }
          if (problem_.experts == 1 || plan.etp == plan_.etp || plan_.etp > plan.tp) continue;
          plan.etp = plan_.etp;  // experts as they were
          add_staged(one_rank_of_a_pipeline(plan));
        }
  }

  void experts() {
    if (problem_.experts == 1) return;
    for (const std::int64_t prime : prime_factors(problem_.experts))
      for (const bool more : {true, false}) {
        Parallelism plan = plan_;
        if (!more && plan.ep % prime != 0) continue;
        plan.ep = more ? plan.ep * prime : plan.ep / prime;
        if (problem_.experts % plan.ep == 0) add(plan);
      }
    for (const std::int64_t prime : prime_factors(plan_.tp))
      for (const bool more : {true, false}) {
        Parallelism plan = plan_;
        if (!more && plan.etp % prime != 0) continue;
        plan.etp = more ? plan.etp * prime : plan.etp / prime;
        if (plan.etp <= plan.tp && plan.tp % plan.etp == 0) add(plan);
      }
  }

  void micro_batches() {
    const std::int64_t each = problem_.global_batch / plan_.dp;
    for (const std::int64_t prime : prime_factors(each))
      for (const bool more : {true, false}) {
        Parallelism plan = plan_;
        if (!more && plan.micro_batch % prime != 0) continue;
        plan.micro_batch = more ? plan.micro_batch * prime : plan.micro_batch / prime;
        add(plan);
      }
  }

  void sharding() {
    if (plan_.dp * plan_.cp == 1) return;
    for (const int zero : options_.zero) {
      if (zero >= 2 && plan_.pp > 1 && !options_.pipelined_zero) continue;
      Parallelism plan = plan_;
      plan.zero = zero;
      plan.fsdp = plan.dp;
      add(plan);
    }
    if (!options_.hybrid_sharding || plan_.pp > 1) return;
    for (std::int64_t shards = 2; shards < plan_.dp; ++shards) {
      if (plan_.dp % shards != 0) continue;
      const std::int64_t devices = shards * plan_.tp * plan_.cp;
      if (problem_.per_node % devices != 0 && devices % problem_.per_node != 0) continue;
      Parallelism plan = plan_;
      plan.zero = 3;
      plan.fsdp = shards;
      add(plan);
    }
  }

  // Those that the hybrid space does not know, where it may take ZB-V: they are of its family.
  bool considered(const std::string& name) const {
    const auto has = [&](PlanSchedule schedule) {
      return std::find(options_.schedules.begin(), options_.schedules.end(), schedule) != options_.schedules.end();
    };
    for (int i = 0; i < kPlanSchedules; ++i)
      if (const auto schedule = static_cast<PlanSchedule>(i); name_of(schedule) == name) return has(schedule);
    return has(PlanSchedule::DualPipeV);
  }

  void schedules() {
    if (plan_.pp == 1) return;
    add_staged(plan_);
    for (const std::string& name : pipeline_schedule_names()) {
      if (name != plan_.schedule && !considered(name)) continue;
      const PipelineSchedule& schedule = *find_schedule(name);
      Parallelism plan = plan_;
      plan.schedule = name;
      if (schedule.chunks > 0) {
        plan.vpp = schedule.chunks;
        add_staged(plan);
        continue;
      }
      for (std::int64_t vpp = 2; vpp * plan.pp <= problem_.layers.count() + 2; ++vpp) {
        plan.vpp = vpp;
        const std::int64_t stages = vpp * plan.pp;
        const bool whole = problem_.layers.count() % stages == 0 || (problem_.layers.count() + 2) % stages == 0;
        if (whole) add_staged(plan);
      }
    }
  }

  // A layer moved from one stage to the next, or between the first and the last one.
  void moved_layers() {
    const PipelineSchedule* const schedule = find_schedule(plan_.schedule);
    if (plan_.pp == 1 || !schedule || !options_.uneven_stages) return;
    const std::int64_t count = stage_count(*schedule, plan_.pp, plan_.vpp);
    const std::vector<std::int64_t> now =
        plan_.stages.empty() ? even_stages(problem_.layers.count(), count) : plan_.stages;
    const auto move = [&](std::size_t from, std::size_t to) {
      if (now[from] < 2) return;
      Parallelism plan = plan_;
      plan.stages = now;
      --plan.stages[from], ++plan.stages[to];
      add(plan);
    };
    for (std::size_t stage = 0; stage + 1 < now.size(); ++stage) move(stage, stage + 1), move(stage + 1, stage);
    for (std::size_t stage = 2; stage + 2 < now.size(); ++stage)
      for (const std::size_t end : {std::size_t{0}, now.size() - 1}) move(stage, end), move(end, stage);
    if (now.size() > 2) move(0, now.size() - 1), move(now.size() - 1, 0);
  }

  void modes() {
    if (plan_.tp > 1) {
      Parallelism plan = plan_;
      plan.sequence_parallel = !plan.sequence_parallel;
      add(plan);
    }
    for (const ContextMode mode : options_.context) {
      if (plan_.cp == 1) break;
      if (mode == ContextMode::AllToAll && problem_.heads % (plan_.tp * plan_.cp) != 0) continue;
      Parallelism plan = plan_;
      plan.cp_mode = mode;
      add(plan);
    }
  }

  void recomputation() {
    if (!options_.recompute.empty()) return;
    const RecomputeMenu& menu = problem_.layers.recompute;
    const auto with = [&](Recompute base, const std::vector<std::string>& full) {
      Parallelism plan = plan_;
      plan.recompute = base;
      plan.recompute_layers.clear();
      plan.full = in_all_layers(full);
      add(plan);
    };
    std::vector<std::string> now;
    for (const Recomputed& each : plan_.full) now.push_back(each.modules);
    // Sets beyond the front and the named ones were added by a search.
    for (const std::uint8_t set : menu.front) with(menu.sets[set].base, menu.sets[set].full);
    for (const Recompute base : {Recompute::Selective, Recompute::Op}) with(base, {});
    if (plan_.recompute == Recompute::Full) return;
    for (std::size_t i = 0; i < now.size(); ++i) {
      std::vector<std::string> fewer = now;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      with(plan_.recompute, fewer);
    }
    for (const std::string& module : plan_.recompute == Recompute::Op ? menu.products : menu.modules) {
      const auto within = [](const std::string& part, const std::string& whole) {
        return part == whole || part.starts_with(whole + ".");
      };
      std::vector<std::string> more = now;
      if (std::any_of(more.begin(), more.end(), [&](const std::string& each) { return within(module, each); }))
        continue;
      std::erase_if(more, [&](const std::string& each) { return within(each, module); });
      more.push_back(module);
      with(plan_.recompute, more);
    }
  }

  // Two neighbours of the usual order, innermost first, exchanged; and pipelines innermost. All orders are alike in one
  // node.
  void order() {
    if (problem_.devices <= problem_.per_node) return;
    if (!plan_.order.empty()) {
      Parallelism plan = plan_;
      plan.order.clear();
      add(plan);
      return;
    }
    std::vector<std::string> used;
    for (const auto& [name, size] :
         {std::pair("tp", plan_.tp), std::pair("cp", plan_.cp), std::pair("dp", plan_.dp), std::pair("pp", plan_.pp)})
      if (size > 1) used.emplace_back(name);
    if (plan_.fsdp < plan_.dp || used.size() < 2) return;
    const auto ordered = [&](std::vector<std::string> names) {
      Parallelism plan = plan_;
      plan.order = std::move(names);
      add(plan);
    };
    for (std::size_t i = 0; i + 1 < used.size(); ++i) {
      std::vector<std::string> names = used;
      std::swap(names[i], names[i + 1]);
      ordered(std::move(names));
    }
    if (used.size() > 2) {
      std::rotate(used.begin(), used.end() - 1, used.end());
      ordered(used);
    }
  }

  // Memory is of use where something is recomputed for the lack of it, or for more samples at a time.
  void offload() {
    const bool lacks = !plan_.offload.empty() || plan_.recompute != Recompute::None || !plan_.full.empty();
    for (const Stored kind : {Stored::Optimizer, Stored::Activations}) {
      Parallelism plan = plan_;
      const Offload all{kind, {}};
      const auto known = std::find(plan.offload.begin(), plan.offload.end(), all);
      if (known == plan.offload.end())
        plan.offload.push_back(all);
      else
        plan.offload.erase(known);
      if (lacks) add(plan);
      // What is recomputed depends on the room that there is; the optimizer's state is much of it.
      if (lacks && kind == Stored::Optimizer)
        for (const std::uint8_t i : problem_.layers.recompute.front) {
          const RecomputeSet& set = problem_.layers.recompute.sets[i];
          Parallelism other = plan;
          other.recompute = set.base;
          other.recompute_layers.clear();
          other.full = in_all_layers(set.full);
          add(other);
        }
      for (const std::int64_t more : {2, 4}) {
        if (plan.offload.size() < plan_.offload.size()) break;
        plan.micro_batch = plan_.micro_batch * more;
        add(plan);
      }
    }
  }

  const PlanProblem& problem_;
  const SpaceOptions& options_;
  const Parallelism& plan_;
  std::set<std::string> known_;
  std::vector<Parallelism> found_;
};

}  // namespace

std::vector<Parallelism> one_knob_changed(const PlanProblem& problem, const SpaceOptions& options,
                                          const Parallelism& plan) {
  return Neighbours(problem, options, plan).run();
}

}  // namespace weft
