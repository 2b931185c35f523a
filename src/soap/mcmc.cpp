#include "soap/mcmc.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compile/compilation.h"
#include "problem/parallel.h"
#include "soap/exploration.h"
#include "soap/proposals.h"

namespace weft {
namespace {

// Proposals that change more operators are compiled and simulated from scratch, which is faster.
constexpr std::size_t kFewChanges = 16;
constexpr std::size_t kSmallNetwork = 64;  // units of operators (proposals.h), at most
// Seeds up to this factor slower than the best start chains of their own.
constexpr double kNearBest = 1.1;
constexpr double kWorthJudging = 1.03;  // results up to this factor slower than the best are judged in full

class Chain {
 public:
  Chain(const SoapProblem& problem, const Proposals& proposals, const Schedule& schedule, double temperature, Rng rng,
        const SoapStrategy& like)
      : problem_(problem),
        proposals_(proposals),
        schedule_(schedule),
        temperature_(temperature),
        rng_(rng),
        meshes_(sizes_of(like.meshes[MeshId(0)]), like.meshes[MeshId(0)].devices()) {}

  Picoseconds best_time() const { return best_time_; }
  Picoseconds time() const { return exploration_ ? exploration_->makespan() : 0; }
  double temperature() const { return temperature_; }

  // Compiles the strategy from scratch, with gradient buckets of its own.
  Status start(const SoapStrategy& strategy) {
    outer_ = strategy.outer;
    now_ = renumbered(strategy);
    WEFT_TRY(Anew anew, make(now_, {}));
    exploration_.emplace(std::move(anew.exploration));
    known_ = std::move(anew.known);
    best_ = now_;
    best_time_ = exploration_->makespan();
    return Ok{};
  }

  // Moves to a strategy by one proposal, or from scratch if that fails.
  void go_to(const SoapStrategy& strategy) {
    const IdVec<OpId, OpConfig> there = renumbered(strategy);
    std::vector<OpChange> changes;
    for (OpId op : there.ids())
      if (there[op] != now_[op]) changes.emplace_back(op, there[op]);
    if (!changes.empty()) {
      if (propose(changes, std::nullopt).ok())
        keep(changes);
      else
        WEFT_CHECK(start(strategy).ok(), "what a chain found compiles");
    }
    best_ = now_;
    best_time_ = exploration_->makespan();
  }

  void play(int proposals, const SearchClock& clock) {
    for (int i = 0; i < proposals; ++i) {
      if (i % 8 == 7 && clock.after(0) != StoppedBy::Itself) return;
      const std::vector<OpChange> changes = draw();
      const auto before = static_cast<double>(exploration_->makespan());
      const double threshold = before * (1 - temperature_ * std::log(1 - rng_.uniform()));
      ++counts_.considered;
      if (changes.empty()) {
        ++counts_.pruned["does not divide"];
        continue;
      }
      const Result<Outcome> outcome = propose(changes, static_cast<Picoseconds>(threshold));
      if (!outcome.ok()) {
        ++counts_.pruned["does not compile"];
        continue;
      }
      ++counts_.simulated;
      if (outcome->abandoned) {
        ++counts_.pruned["abandoned"];
        continue;
      }
      if (static_cast<double>(outcome->makespan) > threshold) {
        take_back();
        continue;
      }
      keep(changes);
      ++accepted_;
      if (outcome->makespan >= best_time_) continue;
      best_time_ = outcome->makespan;
      best_ = now_;
    }
  }

  // Adopts the changes from `before` to `other` in operators that this chain has not changed, if that helps.
  bool take_over(const SoapStrategy& before, const SoapStrategy& other) {
    const IdVec<OpId, OpConfig> old = renumbered(before), there = renumbered(other);
    std::vector<OpChange> changes;
    for (OpId op : now_.ids())
      if (there[op] != old[op] && now_[op] == old[op]) changes.emplace_back(op, there[op]);
    if (changes.empty()) return false;
    const Result<Outcome> outcome = propose(changes, best_time_ - 1);
    if (!outcome.ok() || outcome->abandoned) return false;
    if (outcome->makespan >= best_time_) {
      take_back();
      return false;
    }
    keep(changes);
    best_ = now_;
    best_time_ = outcome->makespan;
    return true;
  }

  SoapStrategy best() const { return {"mcmc", meshes_.meshes(), best_, outer_}; }
  const SearchCounts& counts() const { return counts_; }
  std::int64_t accepted() const { return accepted_; }

  // The next proposals are these instead of random ones.
  void open_with(std::vector<std::vector<OpChange>> openings) { openings_ = std::move(openings); }
  std::vector<std::vector<OpChange>> openings() {
    std::vector<std::vector<OpChange>> all = proposals_.staggered(meshes_);
    for (std::vector<OpChange>& changes : proposals_.openings(meshes_)) all.push_back(std::move(changes));
    return all;
  }

 private:
  std::vector<OpChange> draw() {
    if (opened_ == openings_.size()) return proposals_.draw(now_, meshes_, rng_);
    std::vector<OpChange> changes = std::move(openings_[opened_++]);
    std::erase_if(changes, [&](const OpChange& change) { return now_[change.first] == change.second; });
    return changes;
  }

  static std::array<int, kSoapAxes> sizes_of(const Mesh& mesh) {
    return {mesh.axes()[0].size, mesh.axes()[1].size, mesh.axes()[2].size};
  }
  // With the mesh ids of this chain.
  IdVec<OpId, OpConfig> renumbered(const SoapStrategy& strategy) { return weft::renumbered(strategy, meshes_); }
  MeshId known(MeshId mesh) {
    if (known_.size() <= mesh.index()) known_.resize(meshes_.meshes().size());
    if (!known_[mesh].valid()) {
      Result<MeshId> added = exploration_->add_mesh(meshes_.meshes()[mesh]);
      WEFT_CHECK(added.ok(), "meshes have devices of the world");
      known_[mesh] = *added;
    }
    return known_[mesh];
  }
  struct Anew {
    Exploration exploration;
    IdVec<MeshId, MeshId> known;
  };
  // An exploration of these configurations, with the meshes that they use.
  Result<Anew> make(const IdVec<OpId, OpConfig>& configs, std::vector<int> buckets) {
    SoapStrategy used{"", {}, {}, outer_};
    IdVec<MeshId, MeshId> known(meshes_.meshes().size());
    const auto keep = [&](MeshId mesh) {
      if (!known[mesh].valid()) known[mesh] = used.meshes.push_back(meshes_.meshes()[mesh]);
      return known[mesh];
    };
    keep(MeshId(0));
    for (const OpConfig& config : configs) used.ops.push_back({keep(config.mesh), config.split});
    const Graph& graph = problem_.training.graph;
    ExploreOptions options;
    options.compile = compile_options(problem_.stack, problem_.cluster, problem_.types);
    options.compile.buckets = std::move(buckets);
    WEFT_TRY(Exploration exploration,
             Exploration::make(problem_.training, placing_of(used, graph), choices_of(used, graph), schedule_,
                               problem_.cluster, problem_.cost, problem_.stack, options));
    return Anew{std::move(exploration), std::move(known)};
  }

  // The proposal is open until keep() or take_back(), unless it was abandoned.
  Result<Outcome> propose(const std::vector<OpChange>& changes, std::optional<Picoseconds> bound) {
    if (changes.size() > kFewChanges) {
      IdVec<OpId, OpConfig> configs = now_;
      for (const auto& [op, config] : changes) configs[op] = config;
      WEFT_TRY(const Picoseconds makespan,
               play_fifo(problem_, {"", meshes_.meshes(), configs, outer_}, exploration_->buckets(), bound));
      if (bound && makespan > *bound) return Outcome{makespan, true, 0, 0};
      WEFT_TRY(Anew anew, make(configs, exploration_->buckets()));
      WEFT_CHECK(anew.exploration.makespan() == makespan, "the same strategy takes the same time");
      anew_.emplace(std::move(anew));
      return Outcome{makespan, false, 0, 0};
    }
    edits_.clear();
    for (const auto& [op, config] : changes) {
      const auto outer = outer_.find(op);
      edits_.push_back({op,
                        axes_of(config, problem_.training.graph.signature(op),
                                outer == outer_.end() || config.mesh != MeshId(0) ? 1 : outer->second),
                        known(config.mesh)});
    }
    return exploration_->propose(edits_, bound);
  }
  void keep(const std::vector<OpChange>& changes) {
    if (anew_) {
      exploration_.emplace(std::move(anew_->exploration));
      known_ = std::move(anew_->known);
      anew_.reset();
    } else {
      exploration_->accept();
    }
    for (const auto& [op, config] : changes) now_[op] = config;
  }
  void take_back() {
    if (anew_)
      anew_.reset();
    else
      exploration_->reject();
  }

  const SoapProblem& problem_;
  const Proposals& proposals_;
  const Schedule& schedule_;
  const double temperature_;
  Rng rng_;
  SoapMeshes meshes_;
  std::map<OpId, std::int64_t> outer_;
  IdVec<MeshId, MeshId> known_;  // from mesh ids of this chain to those of the exploration
  std::optional<Exploration> exploration_;
  std::optional<Anew> anew_;  // an open proposal that was compiled from scratch
  IdVec<OpId, OpConfig> now_, best_;
  Picoseconds best_time_ = 0;
  std::vector<ShardingEdit> edits_;
  std::vector<std::vector<OpChange>> openings_;
  std::size_t opened_ = 0;
  SearchCounts counts_;
  std::int64_t accepted_ = 0;
};

class Mcmc {
 public:
  Mcmc(const SoapProblem& problem, int per_node, const SearchBudget& budget, const McmcOptions& options)
      : stack_(without_host_time(problem.stack)),
        problem_{problem.training, problem.cluster, problem.cost, stack_, problem.headroom, problem.types},
        budget_(budget),
        options_(options),
        proposals_(problem.training, per_node),
        schedule_(make_schedule({"gpipe", 1, 1, 0}).value()) {
    // Default: some hundred proposals per unit of operators; a time is used up.
    if (budget_.evaluations == 0)
      budget_.evaluations = budget_.seconds > 0 ? std::numeric_limits<std::int64_t>::max()
                                                : 200 * static_cast<std::int64_t>(proposals_.units().size()) + 2000;
  }

  Result<McmcOutcome> run(const std::vector<SoapStrategy>& seeds, const OnProgress& on_progress) {
    McmcOutcome outcome;
    const SearchClock clock(budget_);
    WEFT_TRY_OK(judge_seeds(seeds, clock, outcome));
    if (outcome.stopped_by = clock.after(0); outcome.stopped_by != StoppedBy::Itself) {
      outcome.best = fairest_;
      outcome.fair = fairest_time_;
      return outcome;
    }
    std::vector<double> temperatures = options_.temperatures;
    if (temperatures.empty())
      temperatures = proposals_.units().size() <= kSmallNetwork ? std::vector{0.0005, 0.005, 0.02, 0.05}
                                                                : std::vector{0.0001, 0.0004, 0.002, 0.01};
    for (std::size_t i = 0; i < temperatures.size(); ++i)
      chains_.push_back(std::make_unique<Chain>(problem_, proposals_, schedule_, temperatures[i],
                                                Rng(options_.seed).split(i), best_));
    // The coldest chain starts from the best seed, the others from the next ones that are not far behind.
    std::vector<SoapStrategy> starts(chains_.size(), best_);
    for (std::size_t i = 0; i < chains_.size() && i < ordered_.size(); ++i)
      if (static_cast<double>(ordered_[i].first) <= kNearBest * static_cast<double>(best_time_))
        starts[i] = *ordered_[i].second;
    std::vector<char> fine(chains_.size(), 0);
    for_each_index(chains_.size(), options_.threads, 1,
                   [&](std::size_t i) { fine[i] = chains_[i]->start(starts[i]).ok(); });
    WEFT_CHECK(std::find(fine.begin(), fine.end(), 0) == fine.end(), "seeds compile");
    // Each chain tries its share of the openings first.
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      std::vector<std::vector<OpChange>> share;
      std::vector<std::vector<OpChange>> all = chains_[i]->openings();
      for (std::size_t j = i; j < all.size(); j += chains_.size()) share.push_back(std::move(all[j]));
      chains_[i]->open_with(std::move(share));
    }
    std::vector<SoapStrategy> before = std::move(starts);
    std::int64_t done = 0;
    while ((outcome.stopped_by = clock.after(done)) == StoppedBy::Itself) {
      const std::int64_t left = (budget_.evaluations - done) / static_cast<std::int64_t>(chains_.size());
      const int round = static_cast<int>(std::clamp<std::int64_t>(left, 1, options_.round));
      for_each_index(chains_.size(), options_.threads, 1, [&](std::size_t i) { chains_[i]->play(round, clock); });
      done += round * static_cast<std::int64_t>(chains_.size());
      exchange(before);
      if (on_progress) on_progress({done, budget_.seconds > 0 ? 0 : budget_.evaluations, seconds_of(best_time_)});
    }
    for (const auto& chain : chains_) {
      outcome.counts.considered += chain->counts().considered;
      outcome.counts.simulated += chain->counts().simulated;
      outcome.accepted += chain->accepted();
      for (const auto& [reason, count] : chain->counts().pruned) outcome.counts.pruned[reason] += count;
    }
    outcome.best = fairest_;
    outcome.fair = fairest_time_;
    return outcome;
  }

 private:
  // At least one that fits, then as many as there is time for.
  Status judge_seeds(const std::vector<SoapStrategy>& seeds, const SearchClock& clock, McmcOutcome& outcome) {
    std::string problem = "none given";
    std::vector<std::pair<Picoseconds, const SoapStrategy*>> sound;
    for (const SoapStrategy& seed : seeds) {
      if (!sound.empty() && clock.after(0) != StoppedBy::Itself) break;
      const Result<SoapJudgement> judged = judge(problem_, seed);
      outcome.seeds.push_back(judged.ok() && judged->over_budget.value <= 0 ? judged->fifo : 0);
      if (outcome.seeds.back() > 0) {
        sound.emplace_back(judged->fifo, &seed);
        remember(seed, judged->fair);
      } else {
        problem = judged.ok() ? "the last lacks " + human(judged->over_budget) + " of memory" : judged.error().message;
      }
    }
    if (sound.empty()) return error("no strategy to begin with fits: {}", problem);
    std::stable_sort(sound.begin(), sound.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    best_ = *sound.front().second;
    best_time_ = sound.front().first;
    ordered_ = std::move(sound);
    return Ok{};
  }

  // Judges a strategy in full and keeps it if it is the best. Chains keep the gradient buckets that they started with,
  // so their own times may differ.
  bool take(const SoapStrategy& strategy) {
    const Result<SoapJudgement> judged = judge(problem_, strategy);
    if (!judged.ok() || judged->over_budget.value > 0) return false;
    remember(strategy, judged->fair);
    if (judged->fifo >= best_time_) return false;
    best_ = strategy;
    best_time_ = judged->fifo;
    return true;
  }

  // Chains use fifo links; the result is the best under fair sharing of all strategies judged in full.
  void remember(const SoapStrategy& strategy, Picoseconds fair) {
    if (fairest_time_ > 0 && fair >= fairest_time_) return;
    fairest_ = strategy;
    fairest_time_ = fair;
  }

  // `before`: the best strategy of each chain after the last exchange.
  void exchange(std::vector<SoapStrategy>& before) {
    std::vector<SoapStrategy> found(chains_.size());
    std::vector<std::size_t> order(chains_.size());
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      found[i] = chains_[i]->best();
      order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return chains_[a]->best_time() < chains_[b]->best_time(); });
    Chain& leader = *chains_[order.front()];
    if (leader.best_time() < best_time_) {
      leader.go_to(found[order.front()]);
      for (std::size_t i : order)
        if (i != order.front()) leader.take_over(before[i], found[i]);
      take(leader.best());
    }
    // In small networks a full judgement is cheap: judge every result near the best.
    if (proposals_.units().size() <= kSmallNetwork)
      for (std::size_t i : order)
        if (found[i].ops != before[i].ops && near_best(chains_[i]->best_time(), kWorthJudging)) take(found[i]);
    for_each_index(chains_.size(), options_.threads, 1, [&](std::size_t i) {
      Chain& chain = *chains_[i];
      // Restart from the best: chains far behind it, and chains whose own time is below that of a full judgement.
      if (chain.best_time() < best_time_ || !near_best(chain.best_time(), 1 + 4 * chain.temperature()))
        WEFT_CHECK(chain.start(best_).ok(), "what a chain found compiles");
      before[i] = chain.best();
    });
  }
  bool near_best(Picoseconds time, double factor) const {
    return static_cast<double>(time) <= static_cast<double>(best_time_) * factor;
  }

  const SoftwareStack stack_;
  const SoapProblem problem_;
  SearchBudget budget_;
  const McmcOptions& options_;
  const Proposals proposals_;
  const Schedule schedule_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::vector<std::pair<Picoseconds, const SoapStrategy*>> ordered_;  // seeds that fit, the best first
  SoapStrategy best_, fairest_;
  Picoseconds best_time_ = 0, fairest_time_ = 0;
};

}  // namespace

SoftwareStack without_host_time(SoftwareStack stack) {
  stack.graph_capture.value = true;
  stack.sync_on_norm.value = false;
  return stack;
}

Result<McmcOutcome> search_mcmc(const SoapProblem& problem, const std::vector<SoapStrategy>& seeds,
                                const SearchBudget& budget, const McmcOptions& options, const OnProgress& on_progress) {
  if (seeds.empty()) return error("no strategy to begin with: give data parallelism");
  const int per_node = devices_per_node(problem.cluster, seeds.front().meshes[MeshId(0)].devices());
  return Mcmc(problem, per_node, budget, options).run(seeds, on_progress);
}

}  // namespace weft
