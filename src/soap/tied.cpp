#include "soap/tied.h"

#include <algorithm>
#include <cmath>

#include "problem/parallel.h"
#include "soap/mcmc.h"
#include "soap/proposals.h"

namespace weft {
namespace {

constexpr double kWorthwhile = 0.0005;      // relative improvement that resets the patience
constexpr std::size_t kSeedsStaggered = 6;  // how many of the fastest seeds are staggered

// A strategy with what a walk minimises: step time, or bytes moved within a time limit.
struct Found {
  IdVec<OpId, OpConfig> ops;
  Picoseconds time = 0;
  std::int64_t bytes = 0;  // 0: the walk minimises time
};

class Chain {
 public:
  Chain(const SoapProblem& problem, const Proposals& proposals, double temperature, Rng rng, const SoapStrategy& like)
      : problem_(problem), proposals_(proposals), temperature_(temperature), rng_(rng), meshes_(meshes_like(like)) {}

  double temperature() const { return temperature_; }
  const Found& best() const { return best_; }
  SoapStrategy strategy() const { return with(best_.ops); }
  const SearchCounts& counts() const { return counts_; }

  void start(const SoapStrategy& strategy, Picoseconds time, std::int64_t bytes) {
    outer_ = strategy.outer;
    now_ = {renumbered(strategy, meshes_), time, bytes};
    best_ = now_;
  }
  // Tries all staggered placements of layers and keeps those that help.
  void stagger(const SearchClock& clock) {
    openings_ = proposals_.staggered(meshes_);
    play(static_cast<int>(openings_.size()), 0, clock);
  }
  void open_with(std::size_t share, std::size_t of) {
    std::vector<std::vector<OpChange>> all = proposals_.openings(meshes_);
    for (std::size_t i = share; i < all.size(); i += of) openings_.push_back(std::move(all[i]));
  }

  bool opening() const { return opened_ < openings_.size(); }

  // `time_limit`: 0 to minimise time; otherwise bytes are minimised over steps within this time.
  void play(int proposals, Picoseconds time_limit, const SearchClock& clock) {
    for (int i = 0; i < proposals; ++i) {
      if (clock.after(0) != StoppedBy::Itself) return;
      const double tolerance = -temperature_ * std::log(1 - rng_.uniform());
      const std::vector<OpChange> changes = draw();
      ++counts_.considered;
      if (changes.empty()) {
        ++counts_.pruned["does not divide"];
        continue;
      }
      Found next{now_.ops, 0, 0};
      for (const auto& [op, config] : changes) next.ops[op] = config;
      const Result<Program> program = compile_strategy(problem_, with(next.ops));
      if (!program.ok()) {
        ++counts_.pruned["does not compile"];
        continue;
      }
      if (time_limit > 0) {
        next.bytes = bytes_sent(*program, problem_.training.graph);
        if (measure(next) > measure(now_) * (1 + tolerance)) {
          ++counts_.pruned["bytes"];
          continue;
        }
      }
      const Result<Picoseconds> time = play_fair(problem_, *program);
      if (!time.ok()) {
        ++counts_.pruned["does not compile"];
        continue;
      }
      ++counts_.simulated;
      next.time = *time;
      if (time_limit > 0 ? next.time > time_limit : measure(next) > measure(now_) * (1 + tolerance)) continue;
      // Memory is checked last: few proposals get here.
      if (measure(next) < measure(best_)) {
        if (memory_need(problem_, *program, schedule_).over_budget.value > 0) {
          ++counts_.pruned["memory"];
          continue;
        }
        best_ = next;
      }
      now_ = std::move(next);
    }
  }

  static double measure(const Found& found) {
    return static_cast<double>(found.bytes > 0 ? found.bytes : static_cast<std::int64_t>(found.time));
  }

 private:
  static SoapMeshes meshes_like(const SoapStrategy& strategy) {
    const Mesh& mesh = strategy.meshes[MeshId(0)];
    return SoapMeshes({mesh.axes()[0].size, mesh.axes()[1].size, mesh.axes()[2].size}, mesh.devices());
  }
  SoapStrategy with(const IdVec<OpId, OpConfig>& ops) const { return {"layers", meshes_.meshes(), ops, outer_}; }
  std::vector<OpChange> draw() {
    std::vector<OpChange> changes;
    if (opened_ < openings_.size()) {
      changes = std::move(openings_[opened_++]);
      std::erase_if(changes, [&](const OpChange& change) { return now_.ops[change.first] == change.second; });
      return changes;
    }
    return proposals_.draw_layers(now_.ops, meshes_, rng_);
  }

  const SoapProblem& problem_;
  const Proposals& proposals_;
  const double temperature_;
  const Schedule schedule_ = make_schedule({"gpipe", 1, 1, 0}).value();
  Rng rng_;
  SoapMeshes meshes_;
  std::map<OpId, std::int64_t> outer_;
  Found now_, best_;
  std::vector<std::vector<OpChange>> openings_;
  std::size_t opened_ = 0;
  SearchCounts counts_;
};

class TiedWalk {
 public:
  TiedWalk(const SoapProblem& problem, int per_node, const SearchBudget& budget, const TiedOptions& options)
      : stack_(without_host_time(problem.stack)),
        problem_{problem.training, problem.cluster, problem.cost, stack_, problem.headroom, problem.types},
        proposals_(problem.training, per_node),
        budget_(budget),
        options_(options) {}

  Result<TiedOutcome> run(const std::vector<SoapStrategy>& seeds, const OnProgress& on_progress) {
    const SearchClock clock(budget_);
    WEFT_TRY_OK(judge_seeds(seeds, clock));
    const std::vector<Start> starts = staggered(clock);
    chains_.reserve(options_.temperatures.size());
    for (std::size_t i = 0; i < options_.temperatures.size(); ++i) {
      const Start& start = starts[std::min(i, starts.size() - 1)];
      Chain& chain = chains_.emplace_back(problem_, proposals_, options_.temperatures[i], Rng(options_.seed).split(i),
                                          start.strategy);
      chain.start(start.strategy, start.time, 0);
      chain.open_with(i, options_.temperatures.size());
    }
    best_ = starts.front().strategy;
    best_time_ = starts.front().time;
    walk(0, clock, on_progress);
    TiedOutcome outcome{best_, best_time_, 0, {}, {}};
    if (!options_.slacks.empty()) WEFT_TRY_OK(save_bytes(outcome, clock, on_progress));
    for (const Chain& chain : chains_) add(chain.counts());
    outcome.counts = counts_;
    return outcome;
  }

 private:
  struct Seed {
    const SoapStrategy* strategy;
    Picoseconds time;
    std::int64_t bytes;
  };

  struct Start {
    SoapStrategy strategy;
    Picoseconds time;
  };

  // The fastest seeds, with layers staggered where that helps, fastest first.
  std::vector<Start> staggered(const SearchClock& clock) {
    const std::size_t count = std::min(kSeedsStaggered, seeds_.size());
    std::vector<std::optional<Chain>> each(count);
    for_each_index(count, options_.threads, 1, [&](std::size_t i) {
      Chain& chain = each[i].emplace(problem_, proposals_, 0.0, Rng(options_.seed), *seeds_[i].strategy);
      chain.start(*seeds_[i].strategy, seeds_[i].time, 0);
      chain.stagger(clock);
    });
    std::vector<Start> starts;
    for (const std::optional<Chain>& chain : each) {
      add(chain->counts());
      done_ += chain->counts().considered;
      starts.push_back({chain->strategy(), chain->best().time});
    }
    std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) { return a.time < b.time; });
    return starts;
  }

  void add(const SearchCounts& counts) {
    counts_.considered += counts.considered;
    counts_.simulated += counts.simulated;
    for (const auto& [reason, count] : counts.pruned) counts_.pruned[reason] += count;
  }

  // At least one that fits, then as many as there is time for.
  Status judge_seeds(const std::vector<SoapStrategy>& seeds, const SearchClock& clock) {
    const Schedule schedule = make_schedule({"gpipe", 1, 1, 0}).value();
    for (const SoapStrategy& seed : seeds) {
      if (!seeds_.empty() && clock.after(0) != StoppedBy::Itself) break;
      const Result<FairPlay> played = play_fair(problem_, seed);
      if (played.ok() && memory_need(problem_, played->program, schedule).over_budget.value <= 0)
        seeds_.push_back({&seed, played->time, bytes_sent(played->program, problem_.training.graph)});
    }
    if (seeds_.empty()) return error("no strategy to begin with fits");
    std::stable_sort(seeds_.begin(), seeds_.end(), [](const Seed& a, const Seed& b) { return a.time < b.time; });
    return Ok{};
  }

  Status save_bytes(TiedOutcome& outcome, const SearchClock& clock, const OnProgress& on_progress) {
    WEFT_TRY(const FairPlay played, play_fair(problem_, best_));
    outcome.bytes = best_bytes_ = bytes_sent(played.program, problem_.training.graph);
    for (double slack : options_.slacks) {
      const std::int64_t before = best_bytes_;
      const auto limit = static_cast<Picoseconds>(static_cast<double>(outcome.fair) * (1 + slack));
      for (const Seed& seed : seeds_) {
        if (seed.time > limit || seed.bytes >= best_bytes_) continue;
        best_ = *seed.strategy;
        best_time_ = seed.time;
        best_bytes_ = seed.bytes;
      }
      for (Chain& chain : chains_) chain.start(best_, best_time_, best_bytes_);
      walk(limit, clock, on_progress);
      if (best_bytes_ < before) outcome.thrifty.push_back({slack, best_, best_time_, best_bytes_});
    }
    return Ok{};
  }

  // Runs rounds until `patience` of them brought no improvement.
  void walk(Picoseconds time_limit, const SearchClock& clock, const OnProgress& on_progress) {
    const auto still_opening = [](const Chain& chain) { return chain.opening(); };
    const int patience = time_limit > 0 ? (options_.patience + 1) / 2 : options_.patience;
    for (int idle = 0; idle < patience && clock.after(done_) == StoppedBy::Itself; ++idle) {
      if (std::any_of(chains_.begin(), chains_.end(), still_opening)) idle = 0;
      const double before = Chain::measure({{}, best_time_, best_bytes_});
      for_each_index(chains_.size(), options_.threads, 1,
                     [&](std::size_t i) { chains_[i].play(options_.round, time_limit, clock); });
      done_ += options_.round * static_cast<std::int64_t>(chains_.size());
      const auto leader = std::min_element(chains_.begin(), chains_.end(), [](const Chain& a, const Chain& b) {
        return Chain::measure(a.best()) < Chain::measure(b.best());
      });
      best_ = leader->strategy();
      best_time_ = leader->best().time;
      best_bytes_ = leader->best().bytes;
      if (Chain::measure(leader->best()) < before * (1 - kWorthwhile)) idle = 0;
      // Chains far behind restart from the best; those at higher temperatures may be further behind.
      for (Chain& chain : chains_)
        if (Chain::measure(chain.best()) > Chain::measure(leader->best()) * (1 + chain.temperature()))
          chain.start(best_, best_time_, best_bytes_);
      if (on_progress) on_progress({done_, budget_.evaluations, seconds_of(best_time_)});
    }
  }

  const SoftwareStack stack_;
  const SoapProblem problem_;
  const Proposals proposals_;
  const SearchBudget budget_;
  const TiedOptions& options_;
  std::vector<Seed> seeds_;  // that fit, fastest first
  std::vector<Chain> chains_;
  SoapStrategy best_;
  Picoseconds best_time_ = 0;
  std::int64_t best_bytes_ = 0, done_ = 0;
  SearchCounts counts_;
};

}  // namespace

Result<TiedOutcome> search_tied(const SoapProblem& problem, const std::vector<SoapStrategy>& seeds,
                                const SearchBudget& budget, const TiedOptions& options, const OnProgress& on_progress) {
  if (seeds.empty()) return error("no strategy to begin with: give data parallelism");
  const int per_node = devices_per_node(problem.cluster, seeds.front().meshes[MeshId(0)].devices());
  return TiedWalk(problem, per_node, budget, options).run(seeds, on_progress);
}

}  // namespace weft
