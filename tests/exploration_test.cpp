// The law of delta: after any proposals, accepted and rejected, the workload is the one that planning, compiling and
// pricing anew gives, and its run takes as long.
#include "explore/exploration.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/random.h"
#include "compile/compilation.h"
#include "compile/from_strategy.h"
#include "cost/analytic.h"
#include "models/models.h"
#include "price/price.h"

namespace weft {
namespace {

// Two workloads that are the same but for the numbers of tasks, works, meetings and links. Empty: they are.
class Comparison {
 public:
  Comparison(const Workload& a, const Workload& b)
      : a_(a), b_(b), met_(a.meetings.size()), used_(b.meetings.size(), 0) {}

  std::string run() {
    if (a_.agents.size() != b_.agents.size()) return "agents";
    for (AgentId agent : a_.agents.ids())
      if (const std::string problem = compare(a_.agents[agent], b_.agents[agent]); !problem.empty())
        return fmt::format("agent {}: {}", agent.index(), problem);
    return "";
  }

 private:
  using Places = IdVec<TaskId, std::pair<std::size_t, std::size_t>>;

  static std::vector<std::vector<TaskId>> bodies_of(const Agent& agent, Places& places) {
    places.resize(agent.tasks.size(), {~0u, ~0u});
    std::vector<std::vector<TaskId>> bodies;
    for (const std::vector<TaskId>& body : agent.bodies) {
      std::vector<TaskId>& list = bodies.emplace_back();
      for (TaskId id : body) {
        places[id] = {bodies.size(), list.size()};
        list.push_back(id);
      }
    }
    return bodies;
  }
  // What the task waits for. On its own stream it need not wait, and of what goes on another in order the last counts.
  static auto waits(const Agent& agent, TaskId id, const Places& places) {
    const Task& task = agent.tasks[id];
    std::vector<std::pair<std::size_t, std::size_t>> list;
    std::map<std::tuple<std::size_t, int, PlayedFor>, std::size_t> last;  // before it
    for (TaskId x : task.after) {
      if (agent.tasks[x].stream == task.stream) continue;
      if (places[x].first == places[id].first && places[x] > places[id]) {
        list.push_back(places[x]);
      } else {
        std::size_t& place = last[{places[x].first, agent.tasks[x].stream, agent.tasks[x].when}];
        place = std::max(place, places[x].second);
      }
    }
    for (const auto& [where, place] : last) list.emplace_back(std::get<0>(where), place);
    std::sort(list.begin(), list.end());
    return list;
  }
  std::string compare(WorkId x, WorkId y) const {
    if (x.valid() != y.valid()) return "work";
    if (!x.valid()) return "";
    Work a = a_.works[x], b = b_.works[y];
    const auto named = [](Work& work, const Workload& in) {
      for (LinkUse& use : work.links) use.link = FlowLinkId(in.links[use.link].label);
      std::sort(work.links.begin(), work.links.end(), [](auto& l, auto& r) { return l.link < r.link; });
    };
    named(a, a_);
    named(b, b_);
    if (a != b) return fmt::format("work of {} + {} against {} + {}", a.fixed, a.bytes, b.fixed, b.bytes);
    for (const LinkUse& use : a_.works[x].links)
      for (const LinkUse& other : b_.works[y].links)
        if (a_.links[use.link].label == b_.links[other.link].label && a_.links[use.link] != b_.links[other.link])
          return "link";
    return "";
  }
  std::string compare(MeetingId x, MeetingId y) {
    if (x.valid() != y.valid()) return "meeting";
    if (!x.valid()) return "";
    if (!met_[x].valid() && std::exchange(used_[y], 1) == 0) met_[x] = y;
    if (met_[x] != y) return "another meeting";
    if (a_.meetings[x].parties != b_.meetings[y].parties) return "parties";
    return compare(a_.meetings[x].work, b_.meetings[y].work);
  }
  std::string compare(const Agent& a, const Agent& b) {
    Places at_a, at_b;
    const auto bodies_a = bodies_of(a, at_a), bodies_b = bodies_of(b, at_b);
    if (bodies_a.size() != bodies_b.size() || a.plays != b.plays || a.run_ahead != b.run_ahead) return "plays";
    if (a_.interference[a.interference] != b_.interference[b.interference]) return "interference";
    for (std::size_t body = 0; body < bodies_a.size(); ++body) {
      if (bodies_a[body].size() != bodies_b[body].size())
        return fmt::format("body {}: {} tasks against {}", body, bodies_a[body].size(), bodies_b[body].size());
      for (std::size_t i = 0; i < bodies_a[body].size(); ++i) {
        const Task &x = a.tasks[bodies_a[body][i]], &y = b.tasks[bodies_b[body][i]];
        std::string problem = compare(x.work, y.work);
        if (problem.empty()) problem = compare(x.meeting, y.meeting);
        if (x.stream != y.stream || x.when != y.when || x.host != y.host || x.host_waits != y.host_waits)
          problem = "stream, guard or host";
        if (waits(a, bodies_a[body][i], at_a) != waits(b, bodies_b[body][i], at_b)) problem = "waits";
        if (!problem.empty()) return fmt::format("body {}, task {}: {}", body, i, problem);
      }
    }
    return "";
  }

  const Workload &a_, &b_;
  IdVec<MeetingId, MeetingId> met_;
  IdVec<MeetingId, char> used_;
};

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
    ASSERT_EQ(Comparison(exploration_->workload(), priced.workload).run(), "") << when;
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
