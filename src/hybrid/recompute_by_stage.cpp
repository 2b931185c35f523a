#include "hybrid/recompute_by_stage.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "forecast/forecast.h"
#include "strategy/schedules.h"
#include "strategy/stages.h"

namespace weft {
namespace {

std::vector<std::int64_t> layers_of_stages(const PlanProblem& problem, const Parallelism& plan) {
  if (!plan.stages.empty()) return plan.stages;
  return even_stages(problem.layers.count(), stage_count(*find_schedule(plan.schedule), plan.pp, plan.vpp));
}

// A part of what a plan recomputes, and in how many first layers of every stage.
struct Link {
  Recompute mode = Recompute::None;  // none: modules
  std::vector<Recomputed> modules = {};
  double weight = 1;  // bytes that it frees in a layer, relative to those of other links
  std::vector<std::int64_t> layers = {};
};

// "layers.*": whole layers.
bool is_layer(const Recomputed& each) { return each.modules.ends_with(".*"); }

// As few words as say it: nothing for all layers, one number for all stages.
std::vector<std::int64_t> in_few_words(const std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& all) {
  if (counts == all) return {};
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  for (std::size_t stage = 0; stage < counts.size(); ++stage)
    if (counts[stage] != std::min(most, all[stage])) return counts;
  return {most};
}

class Chain {
 public:
  Chain(const PlanProblem& problem, const Parallelism& plan) : plan_(plan), stages_(layers_of_stages(problem, plan)) {
    if (plan.recompute != Recompute::None) links_.push_back({.mode = plan.recompute});
    for (const Recomputed& each : plan.full)
      if (links_.empty() || links_.back().modules.empty() || !is_layer(links_.back().modules.back()) || !is_layer(each))
        links_.push_back({.modules = {each}});
      else
        links_.back().modules.push_back(each);  // of stacks side by side: an encoder's layers and a decoder's
    for (Link& link : links_) link.layers = stages_;
    weigh(problem.layers.recompute);
    // A stage's units, in the order in which they are dropped.
    const PipelineSchedule& schedule = *find_schedule(plan.schedule);
    for (std::int64_t rank = 0; rank < plan.pp; ++rank)  // bidirectional: two ranks hold the same stages
      group_of_rank_.push_back(
          static_cast<std::size_t>(schedule.bidirectional ? std::min(rank, plan.pp - 1 - rank) : rank));
    groups_.resize(static_cast<std::size_t>(plan.pp));
    for (std::size_t link = links_.size(); link-- > 0;)
      for (std::size_t stage = stages_.size(); stage-- > 0;) {
        Group& group = groups_[group_of(rank_of_stage(schedule, plan.pp, static_cast<std::int64_t>(stage)))];
        for (std::int64_t i = 0; i < stages_[stage]; ++i) group.units.push_back({link, stage});
      }
  }

  // Devices with the same stages, and what they recompute, unit by unit.
  struct Unit {
    std::size_t link, stage;
  };
  struct Group {
    std::vector<Unit> units = {};   // in the order in which they are dropped
    std::vector<double> room = {};  // bytes left by the number of dropped units, as expected, …
    double more = 0;                // … and how much more was left when it was last compiled
    std::size_t fits = 0;           // dropped units that were compiled, and fit
    std::size_t too_large = std::numeric_limits<std::size_t>::max();  // that did not

    // The most units that are expected to fit, at least those that do.
    std::size_t most_that_fit() const {
      std::size_t most = fits;
      for (std::size_t count = fits + 1; count < std::min(too_large, units.size() + 1); ++count)
        if (room[count] + more >= 0) most = count;
      return most;
    }
    void learn(std::size_t dropped, double left) {
      more = left - room[dropped];
      if (left >= 0)
        fits = std::max(fits, dropped);
      else
        too_large = std::min(too_large, dropped);
    }
  };
  std::vector<Group>& groups() { return groups_; }
  std::size_t group_of(std::int64_t rank) const { return group_of_rank_[static_cast<std::size_t>(rank)]; }

  // What is expected: between no link and all links by the weights of units, …
  void model(const std::vector<double>& least, const std::vector<double>& most) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      Group& group = groups_[i];
      double all = 0, dropped = 0;
      for (const Unit& unit : group.units) all += links_[unit.link].weight;
      group.room = {least[i]};
      for (const Unit& unit : group.units)
        group.room.push_back(least[i] + (most[i] - least[i]) * (dropped += links_[unit.link].weight) / all);
    }
  }
  // … or between links, whose units are alike.
  void model(const RoomByLinks& room) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      Group& group = groups_[i];
      std::vector<double> least(room.size(), std::numeric_limits<double>::max());
      for (std::size_t rank = 0; rank < group_of_rank_.size(); ++rank)
        for (std::size_t links = 0; links < room.size() && group_of_rank_[rank] == i; ++links)
          least[links] = std::min(least[links], room[links][rank]);
      group.room = {least.front()};
      for (std::size_t links = 1; links < room.size(); ++links) {
        const std::size_t link = links_.size() - links;
        const auto units =
            std::count_if(group.units.begin(), group.units.end(), [&](const Unit& unit) { return unit.link == link; });
        for (std::ptrdiff_t unit = 1; unit <= units; ++unit)
          group.room.push_back(least[links - 1] + (least[links] - least[links - 1]) * static_cast<double>(unit) /
                                                      static_cast<double>(units));
      }
    }
  }

  std::vector<Parallelism> with_links_dropped() const {
    std::vector<Parallelism> plans;
    for (std::size_t links = 0; links <= links_.size(); ++links) {
      std::vector<std::size_t> dropped;
      for (const Group& group : groups_)
        dropped.push_back(
            static_cast<std::size_t>(std::count_if(group.units.begin(), group.units.end(), [&](const Unit& unit) {
              return unit.link + links >= links_.size();
            })));
      plans.push_back(with(dropped));
    }
    return plans;
  }

  // The plan when every group drops as many units.
  Parallelism with(const std::vector<std::size_t>& dropped) const {
    std::vector<Link> links = links_;
    for (std::size_t group = 0; group < groups_.size(); ++group)
      for (std::size_t i = 0; i < dropped[group]; ++i) {
        const Unit& unit = groups_[group].units[i];
        --links[unit.link].layers[unit.stage];
      }
    Parallelism made = plan_;
    made.recompute = Recompute::None;
    made.recompute_layers.clear();
    made.full.clear();
    for (const Link& link : links) {
      if (std::all_of(link.layers.begin(), link.layers.end(), [](std::int64_t each) { return each == 0; })) continue;
      const std::vector<std::int64_t> layers = in_few_words(link.layers, stages_);
      if (link.mode != Recompute::None) {
        made.recompute = link.mode;
        made.recompute_layers = layers;
      }
      for (const Recomputed& each : link.modules) made.full.push_back({each.modules, layers});
    }
    return made;
  }

 private:
  // By the bytes of the menu, as far as it knows all links.
  void weigh(const RecomputeMenu& menu) {
    const auto saved = [&](const RecomputeSet& wanted) {
      for (const RecomputeSet& set : menu.sets)
        if (set.same_modules(wanted)) return set.saved;
      return 0.0;
    };
    RecomputeSet set;
    double before = saved(set);
    std::vector<double> weights;
    for (const Link& link : links_) {
      if (link.mode != Recompute::None) set.base = link.mode;
      for (const Recomputed& each : link.modules) set.full.push_back(each.modules);
      const bool layers = !link.modules.empty() && is_layer(link.modules.front());
      const double after = saved(layers ? RecomputeSet{Recompute::Full} : set);
      if (after <= 0 || after >= before) return;
      weights.push_back(before - after);
      before = after;
    }
    for (std::size_t i = 0; i < links_.size(); ++i) links_[i].weight = weights[i];
  }

  const Parallelism& plan_;
  const std::vector<std::int64_t> stages_;
  std::vector<Link> links_;
  std::vector<Group> groups_;
  std::vector<std::size_t> group_of_rank_;
};

// The share of each link, last first, that a rank with this room can drop.
std::vector<double> shares_of(const RoomByLinks& room, std::size_t rank) {
  std::vector<double> shares;
  for (std::size_t link = 0; link + 1 < room.size(); ++link) {
    const double before = room[link][rank], after = room[link + 1][rank];
    const bool whole_before = shares.empty() || shares.back() >= 1;
    shares.push_back(!whole_before || before < 0 ? 0 : after >= 0 ? 1 : before / (before - after));
  }
  return shares;
}

}  // namespace

std::vector<Parallelism> with_links_dropped(const PlanProblem& problem, const Parallelism& plan) {
  return Chain(problem, plan).with_links_dropped();
}

std::vector<double> dropped_shares(const RoomByLinks& room) {
  std::vector<double> mean(room.size() - 1, 0);
  const std::size_t ranks = room.front().size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::vector<double> shares = shares_of(room, rank);
    for (std::size_t i = 0; i < shares.size(); ++i) mean[i] += shares[i] / static_cast<double>(ranks);
  }
  return mean;
}

std::optional<Parallelism> recompute_by_stage(const PlanProblem& problem, const Parallelism& plan,
                                              const RoomByLinks& room, GraphCache* graphs,
                                              const std::function<bool()>& interrupted) {
  constexpr int kMostCompilations = 5;
  if (problem.layers.count() == 0 || !plan.recompute_layers.empty()) return std::nullopt;
  Chain chain(problem, plan);
  std::vector<Chain::Group>& groups = chain.groups();
  // Bytes left by the fullest device of every group, below 0: missing; none where the plan does not compile.
  const auto compiled_with = [&](const std::vector<std::size_t>& dropped) -> std::optional<std::vector<double>> {
    const Result<Plan> made = make_plan(problem.job, choose_strategy(chain.with(dropped)), graphs);
    if (!made.ok()) return std::nullopt;
    const Result<CompiledStrategy> compiled = compile_plan(*made);
    if (!compiled.ok()) return std::nullopt;
    std::vector<double> left(groups.size(), std::numeric_limits<double>::max());
    for (const DeviceMemory& need : device_memory(*made, *compiled)) {
      if (need.budget.value == 0) continue;  // unknown
      double& least = left[chain.group_of(need.pipeline_rank)];
      least = std::min(least, static_cast<double>(need.budget.value - need.device_total.value));
    }
    return left;
  };
  const std::vector<std::size_t> none(groups.size(), 0);
  std::vector<std::size_t> all;
  for (const Chain::Group& group : groups) all.push_back(group.units.size());
  if (all == none) return std::nullopt;
  if (!room.empty()) {
    chain.model(room);
  } else {
    const auto least = compiled_with(none), most = compiled_with(all);
    if (!least || !most) return std::nullopt;
    chain.model(*least, *most);
  }
  std::vector<std::size_t> asked;
  for (const Chain::Group& group : groups) asked.push_back(group.most_that_fit());
  for (int compiled = 0; compiled < kMostCompilations && asked != none; ++compiled) {
    if (interrupted && interrupted()) break;
    const auto left = compiled_with(asked);
    if (!left) break;
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].learn(asked[i], (*left)[i]);
      next.push_back(groups[i].most_that_fit());
    }
    if (next == asked) break;
    asked = std::move(next);
  }
  std::vector<std::size_t> dropped;
  for (const Chain::Group& group : groups) dropped.push_back(group.fits);
  if (dropped == none) return std::nullopt;
  return chain.with(dropped);
}

std::optional<Parallelism> layers_through_operators(const PlanProblem& problem, const Parallelism& plan) {
  if (plan.recompute != Recompute::Full || !plan.recompute_layers.empty() || !plan.full.empty()) return std::nullopt;
  std::set<std::string> layers;
  for (const std::string& module : problem.layers.recompute.modules)
    if (const std::size_t star = module.find(".*"); star != std::string::npos)
      layers.insert(module.substr(0, star + 2));
  if (layers.empty()) return std::nullopt;
  Parallelism made = plan;
  made.recompute = Recompute::Op;
  for (const std::string& each : layers) made.full.push_back({each});
  return made;
}

std::optional<Parallelism> alike_in_all_stages(const PlanProblem& problem, const Parallelism& plan) {
  const std::vector<std::int64_t> all = layers_of_stages(problem, plan);
  const std::int64_t largest = *std::max_element(all.begin(), all.end());
  bool fewer = false;
  const auto level = [&](std::vector<std::int64_t>& layers) {
    if (layers.empty()) return;
    layers = {*std::max_element(layers.begin(), layers.end())};
    if (layers.front() >= largest) layers.clear();
    fewer = fewer || !layers.empty();
  };
  Parallelism made = plan;
  level(made.recompute_layers);
  for (Recomputed& each : made.full) level(each.layers);
  return fewer ? std::optional(made) : std::nullopt;
}

}  // namespace weft
