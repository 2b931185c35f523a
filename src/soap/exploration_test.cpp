// The law of delta: after any proposals, accepted and rejected, the workload is the one that planning, compiling and
// pricing anew gives, and its run takes as long.
#include "soap/exploration.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "compile/compilation.h"
#include "compile/from_strategy.h"
#include "cost/analytic.h"
#include "models/models.h"
#include "price/price.h"
#include "same_workload.h"

namespace weft {
namespace {

Mesh mesh_of(int x, int y, int first) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < x * y; ++i) devices.emplace_back(static_cast<std::size_t>(first + i));
  return Mesh::make({{"x", x}, {"y", y}}, devices).value();
}

struct Case {
  const char* model;
  std::int64_t batch;
  std::optional<std::int64_t> seq;
  const char* stack;
  bool capture, overlap;
  int zero, micro_batches;
  const char* schedule = "gpipe";
};

class Law {
 public:
  Law(const Case& described, Network network, std::uint64_t seed)
      : training_(
            make_training_graph(build_model(described.model, {.batch = described.batch, .seq = described.seq}).value())
                .value()),
        schedule_(make_schedule({described.schedule, 1, described.micro_batches, 0}).value()),
        cluster_(parse_cluster("p100x4:2").value()),
        stack_(find_stack(described.stack).value()),
        cost_(stack_),
        network_(network),
        rng_(seed) {
    stack_.graph_capture.value = described.capture;
    stack_.p2p_overlap.value = described.overlap;
    options_.network = network;
    options_.compile.memory = {described.zero, 0b01};
    options_.compile.gradients.bucket = Bytes{1000};
    options_.compile.transfers = compile_options(stack_, cluster_).transfers;
    const Graph& graph = training_.graph;
    ShardingChoices choices;
    choices.ops.resize(2);
    choices.inputs.resize(2);
    choices.reduce_onto.resize(2);
    for (OpId op : IdRange<OpId>(training_.first_backward.index()))
      for (auto& of_axis : choices.ops) of_axis[op] = {};
    exploration_.emplace(Exploration::make(training_, on_one_mesh(graph, mesh_of(4, 2, 0)), std::move(choices),
                                           schedule_, cluster_, cost_, stack_, options_)
                             .value());
    meshes_.push_back(MeshId(0));
    for (const auto& [x, y, first] :
         std::vector<std::array<int, 3>>{{2, 4, 0}, {2, 2, 0}, {2, 2, 4}, {4, 1, 2}, {1, 2, 3}, {1, 1, 0}, {1, 1, 7}})
      meshes_.push_back(exploration_->add_mesh(mesh_of(x, y, first)).value());
    options_.compile.buckets = exploration_->buckets();
  }

  void play(int proposals) {
    ASSERT_NO_FATAL_FAILURE(compare("at first"));
    for (int i = 0; i < proposals; ++i) {
      const Picoseconds before = exploration_->makespan();
      const Result<Outcome> outcome = exploration_->propose(random_edits());
      if (!outcome.ok()) {
        ++errors_;
        ASSERT_EQ(exploration_->makespan(), before);
        ASSERT_NO_FATAL_FAILURE(compare(fmt::format("after error {}: {}", i, outcome.error().message)));
        continue;
      }
      ++made_;
      ASSERT_EQ(outcome->makespan, exploration_->makespan());
      ASSERT_NO_FATAL_FAILURE(compare(fmt::format("after proposal {}", i)));
      if (rng_.below(3) != 0) {
        exploration_->accept();
        continue;
      }
      exploration_->reject();
      ASSERT_EQ(exploration_->makespan(), before);
      ASSERT_NO_FATAL_FAILURE(compare(fmt::format("after rejection {}", i)));
    }
  }
  int made() const { return made_; }
  int errors() const { return errors_; }

 private:
  // One operator, or a few together.
  std::vector<ShardingEdit> random_edits() {
    std::set<OpId> ops;
    for (std::uint64_t i = rng_.below(3) == 0 ? 4 : 1; i > 0; --i)
      ops.insert(OpId(rng_.below(training_.first_backward.index())));
    std::vector<ShardingEdit> edits;
    for (OpId op : ops) edits.push_back(random_edit(op));
    return edits;
  }
  ShardingEdit random_edit(OpId op) {
    const Signature& signature = training_.graph.signature(op);
    ShardingEdit edit{op, {}, meshes_[rng_.below(meshes_.size())]};
    for (int m = 0; m < 2; ++m) {
      std::vector<std::string> possible = {""};
      for (int a = 0; a < static_cast<int>(signature.axes.size()); ++a)
        if (splittable(signature, a)) possible.push_back(signature.axes[static_cast<std::size_t>(a)].name);
      edit.axes.emplace_back(AxisChoice{possible[rng_.below(possible.size())]});
    }
    return edit;
  }

  void compare(const std::string& when) {
    const ShardingPlanner& planner = exploration_->planner();
    const ShardingPlan plan = plan_sharding(training_, planner.placing(), planner.choices()).value();
    const Program program =
        compile(training_, planner.placing(), plan, options_.compile, RecomputeRegions::none(training_.graph)).value();
    const Priced priced = price(program, schedule_, training_, cluster_, cost_, stack_, {.fold = Fold::None}).value();
    ASSERT_EQ(departure(exploration_->workload(), priced.workload), "") << when;
    ASSERT_EQ(exploration_->makespan(), simulate(priced.workload, {.network = network_}).value().makespan) << when;
    const Priced same = price(program, schedule_, training_, cluster_, cost_, stack_, {.fold = Fold::Same}).value();
    ASSERT_EQ(exploration_->makespan(), simulate(same.workload, {.network = network_}).value().makespan) << when;
  }

  TrainingGraph training_;
  Schedule schedule_;
  Cluster cluster_;
  SoftwareStack stack_;
  AnalyticCost cost_;
  Network network_;
  Rng rng_;
  ExploreOptions options_;
  std::optional<Exploration> exploration_;
  std::vector<MeshId> meshes_;
  int made_ = 0, errors_ = 0;
};

TEST(Exploration, AnswersWhatCompilingPricingAndSimulatingAnewGives) {
  const Case cases[] = {
      {"lenet", 16, {}, "pytorch-ddp", true, true, 0, 1},
      {"lenet", 16, {}, "pytorch-ddp", true, false, 1, 3},
      {"gpt2-124m:layers=2,hidden=64,heads=4,vocab=128", 8, 16, "megatron-lm", true, true, 0, 1},
      {"gpt2-124m:layers=1,hidden=64,heads=4,vocab=128", 8, 16, "megatron-lm", false, true, 2, 2},
      {"gpt2-124m:layers=1,hidden=64,heads=4,vocab=128", 8, 16, "pytorch-ddp", false, false, 3, 2, "zb-h1"},
      {"nmt:hidden=32,vocab=64", 8, 4, "pytorch-ddp", true, false, 0, 1},
      {"mixtral-8x7b:layers=1,hidden=64,heads=4,kv_heads=2,ffn=32,vocab=128,experts=4,capacity_factor=2", 8, 16,
       "megatron-lm", true, true, 1, 2},
  };
  std::uint64_t seed = 1;
  int made = 0, errors = 0;
  for (const Case& each : cases)
    for (const Network network : {Network::Fifo, Network::Fair}) {
      SCOPED_TRACE(fmt::format("{} zero={} {}", each.model, each.zero, network == Network::Fifo ? "fifo" : "fair"));
      Law law(each, network, seed++);
      law.play(60);
      made += law.made();
      errors += law.errors();
      if (HasFatalFailure()) return;
    }
  EXPECT_GT(made, 400);
  EXPECT_GT(errors, 20);  // splits that do not divide
  fmt::print("{} proposals like new, {} refused\n", made, errors);
}

}  // namespace
}  // namespace weft
