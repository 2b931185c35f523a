// Searches over single operators walk any network of the zoo: the law of delta (exploration_test.cpp) along walks of
// what MCMC proposes, and MCMC itself, for every family. WEFT_PROPOSALS sets how many proposals a family gets.
#include <fmt/core.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <optional>

#include "cost/analytic.h"
#include "models/models.h"
#include "price/price.h"
#include "same_workload.h"
#include "small_zoo.h"
#include "soap/exploration.h"
#include "soap/mcmc.h"
#include "soap/proposals.h"
#include "soap/soap.h"
#include "strategy/resolve.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

constexpr std::int64_t kBatch = 16;

std::int64_t proposals_each() {
  const char* const wanted = std::getenv("WEFT_PROPOSALS");
  return wanted != nullptr && *wanted != '\0' ? std::atoll(wanted) : 240;
}

struct Trained {
  explicit Trained(const SmallModel& model)
      : training(make_training_graph(build_model(model.spec, {.batch = kBatch, .seq = model.seq}).value()).value()),
        cluster(parse_cluster("p100x4:2").value()),
        stack(without_host_time(find_stack("megatron-lm").value())),
        cost(stack),
        problem{training, cluster, cost, stack} {
    for (std::int64_t i = 0; i < cluster.device_count(); ++i) devices.emplace_back(static_cast<std::size_t>(i));
  }

  TrainingGraph training;
  Cluster cluster;
  SoftwareStack stack;
  AnalyticCost cost;
  SoapProblem problem;
  std::vector<DeviceId> devices;
};

// A walk through the strategies of a network: every proposal is simulated by delta, most are accepted.
class Walk {
 public:
  Walk(const Trained& on, std::uint64_t seed)
      : on_(on),
        proposals_(on.training, devices_per_node(on.cluster, on.devices)),
        meshes_({static_cast<int>(on.devices.size()), 1, 1}, on.devices),
        rng_(seed),
        now_(data_parallel_strategy(on.training, meshes_).ops) {
    options_.network = rng_.below(2) == 0 ? Network::Fifo : Network::Fair;
    options_.compile = compile_options(on.stack, on.cluster);
    const SoapStrategy start = strategy();
    exploration_.emplace(Exploration::make(on.training, placing_of(start, on.training.graph),
                                           choices_of(start, on.training.graph), schedule_, on.cluster, on.cost,
                                           on.stack, options_)
                             .value());
    options_.compile.buckets = exploration_->buckets();
    for (const MeshId id : meshes_.meshes().ids()) known_.push_back(id);
  }

  void play(std::int64_t proposals) {
    const std::int64_t check_every = std::max<std::int64_t>(1, proposals / 12);
    for (std::int64_t i = 0; i < proposals; ++i) {
      const std::vector<OpChange> changes =
          rng_.below(3) == 0 ? proposals_.draw_layers(now_, meshes_, rng_) : proposals_.draw(now_, meshes_, rng_);
      if (changes.empty()) continue;
      const Picoseconds before = exploration_->makespan();
      std::optional<Picoseconds> bound;
      if (rng_.below(4) == 0) bound = before + before / 8;
      const Result<Outcome> outcome = exploration_->propose(edits(changes), bound);
      if (!outcome.ok() || outcome->abandoned) {
        ++(outcome.ok() ? abandoned : refused);
        ASSERT_EQ(exploration_->makespan(), before);
      } else if (rng_.below(4) == 0) {
        ++rejected;
        exploration_->reject();
        ASSERT_EQ(exploration_->makespan(), before);
      } else {
        ++accepted;
        exploration_->accept();
        for (const auto& [op, config] : changes) now_[op] = config;
      }
      if (i % check_every != check_every - 1) continue;
      ASSERT_NO_FATAL_FAILURE(compare_with_new()) << "after proposal " << i;
      ASSERT_NO_FATAL_FAILURE(read_back()) << "after proposal " << i;
    }
  }

  std::int64_t accepted = 0, rejected = 0, abandoned = 0, refused = 0;

 private:
  SoapStrategy strategy() const { return {"walk", meshes_.meshes(), now_, {}}; }

  std::vector<ShardingEdit> edits(const std::vector<OpChange>& changes) {
    std::vector<ShardingEdit> edits;
    for (const auto& [op, config] : changes) {
      while (known_.size() <= config.mesh.index())
        known_.push_back(exploration_->add_mesh(meshes_.meshes()[MeshId(known_.size())]).value());
      edits.push_back({op, axes_of(config, on_.training.graph.signature(op)), known_[config.mesh]});
    }
    return edits;
  }

  // Delta ≡ full: the workload and its run are those of planning, compiling and pricing anew.
  void compare_with_new() {
    const ShardingPlanner& planner = exploration_->planner();
    const ShardingPlan plan = plan_sharding(on_.training, planner.placing(), planner.choices()).value();
    const Program program =
        compile(on_.training, planner.placing(), plan, options_.compile, RecomputeRegions::none(on_.training.graph))
            .value();
    const Priced priced =
        price(program, schedule_, on_.training, on_.cluster, on_.cost, on_.stack, {.fold = Fold::None}).value();
    ASSERT_EQ(departure(exploration_->workload(), priced.workload), "");
    ASSERT_EQ(exploration_->makespan(), simulate(priced.workload, {.network = options_.network}).value().makespan);
  }

  // What a search prints is a file: parse ∘ print = identity, and it is a strategy for the network.
  void read_back() const {
    const Strategy tree = to_tree(as_written(strategy()), on_.training.graph);
    const Result<Strategy> read = parse_strategy(to_yaml(tree), "found.yaml");
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(*read, tree);
    const Result<ResolvedStrategy> resolved = resolve(*read, on_.training, on_.cluster, "found.yaml");
    ASSERT_TRUE(resolved.ok()) << resolved.error().message;
  }

  const Trained& on_;
  const Proposals proposals_;
  SoapMeshes meshes_;
  Rng rng_;
  IdVec<OpId, OpConfig> now_;
  const Schedule schedule_ = make_schedule({"gpipe", 1, 1, 0}).value();
  ExploreOptions options_;
  std::optional<Exploration> exploration_;
  IdVec<MeshId, MeshId> known_;  // by number here: the exploration's
};

class ZooExploration : public testing::TestWithParam<std::size_t> {
 protected:
  static SmallModel model() { return small_families()[GetParam()]; }
};

TEST_P(ZooExploration, IsWalkedExactly) {
  const Trained network(model());
  Walk walk(network, GetParam() + 1);
  walk.play(proposals_each());
  if (HasFatalFailure()) return;
  EXPECT_GT(walk.accepted, proposals_each() / 8);
  fmt::print("{} accepted, {} rejected, {} abandoned, {} refused\n", walk.accepted, walk.rejected, walk.abandoned,
             walk.refused);
}

// With all that the search does before it walks: exact and symbolic plans, groups of layers, whole layers at a time.
TEST_P(ZooExploration, McmcEndsWithAStrategyThatIsAFile) {
  const Trained network(model());
  const Result<SoapOutcome> found =
      search_soap(network.training, network.cluster, network.cost, network.stack,
                  {.search = SoapSearch::Mcmc, .budget = {.evaluations = proposals_each()}, .seed = 1, .threads = 1});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(found->feasible);
  const Result<Strategy> read = parse_strategy(to_yaml(found->tree), "found.yaml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, found->tree);
  const Result<ResolvedStrategy> resolved = resolve(*read, network.training, network.cluster, "found.yaml");
  ASSERT_TRUE(resolved.ok()) << resolved.error().message;
  fmt::print("{} strategies simulated\n", found->counts.simulated);
}

// gtest's names are letters, digits and underscores.
std::string name_of(const testing::TestParamInfo<std::size_t>& info) {
  std::string name = small_families()[info.param].name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Zoo, ZooExploration, testing::Range(std::size_t{0}, small_families().size()), name_of);

}  // namespace
}  // namespace weft
