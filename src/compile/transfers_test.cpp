// Transfers between stages: no deadlock for any graph, schedule and stack (docs/decisions/0003); parts that are
// gathered and computation that waits are in the program, which the reference interpreter and the simulator execute.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "compile/from_strategy.h"
#include "cost/analytic.h"
#include "forecast/forecast.h"
#include "price/incremental.h"
#include "price/price.h"
#include "program/issue_order.h"
#include "program/verify.h"
#include "sharded_plan.h"
#include "simulate/engine.h"

namespace weft {
namespace {

// Layers in a row, each of which also reads what some earlier ones made: edges that skip stages.
TrainingGraph skipping_network(int layers, Rng& rng) {
  GraphBuilder b("skips");
  std::vector<TensorId> made = {b.input("x", DType::F32, {4, 8})};
  for (int layer = 0; layer < layers; ++layer) {
    auto scope = b.scope(fmt::format("layers.{}", layer));
    TensorId x = made.back();
    for (int edge = 0; edge < 2 && layer > 0; ++edge)
      if (rng.below(2) == 0)
        x = b.op1(OpKind::Binary, fmt::format("add{}", edge), {x, made[rng.below(made.size())]}, {{"fn", "add"}});
    x = b.op1(OpKind::Linear, "linear", {x, b.parameter("weight", DType::F32, {8, 8})});
    made.push_back(b.op1(OpKind::Unary, "relu", {x}, {{"fn", "relu"}}));
  }
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {made.back(), b.input("labels", DType::I64, {4})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return make_training_graph(std::move(b).freeze().value(), {.master_weights = false}).value();
}

// The layer that an operator belongs to; the loss's is the last.
int layer_of(const Graph& graph, OpId op, int layers) {
  const Op& described = graph.ops()[op];
  const std::string name = graph.name(described.forward.valid() ? described.forward : op);
  return name.starts_with("layers.") ? std::stoi(name.substr(7)) : layers - 1;
}

// Layers in the schedule's stages, each rank with its own grid of devices.
ShardedPlan staged(const TrainingGraph& training, int layers, const Schedule& schedule, Rng& rng, bool alike) {
  const Graph& graph = training.graph;
  ShardedPlan plan{.placing = {}, .choices = {}, .recompute = RecomputeRegions::none(graph), .schedule = schedule};
  std::vector<Mesh> grids;  // by rank
  const std::pair<int, int> shapes[] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
  const auto first_shape = shapes[rng.below(4)];
  for (std::int32_t rank = 0; rank < schedule.ranks; ++rank) {
    // Both copies of a stage that two ranks hold are split alike.
    const auto [x, y] = alike || schedule.routes.size() > 1 ? first_shape : shapes[rng.below(4)];
    std::vector<DeviceId> devices;
    for (int i = 0; i < x * y; ++i) devices.emplace_back(static_cast<std::size_t>(4 * rank + i));
    grids.push_back(Mesh::make({{"x", x}, {"y", y}}, devices).value());
  }
  for (const std::vector<Place>& route : schedule.routes)
    for (const Place& place : route) {
      plan.placing.stage_of.push_back(static_cast<int>(plan.placing.meshes.size()));
      plan.placing.meshes.push_back(grids[static_cast<std::size_t>(place.rank)]);
    }
  const auto stages = static_cast<std::size_t>(schedule.stages());
  if (schedule.routes.size() > 1)
    for (std::size_t mesh = 0; mesh < plan.placing.meshes.size(); ++mesh)
      plan.placing.route_of.push_back(mesh < stages ? 0 : 1);
  for (OpId op : graph.ops().ids()) {
    const int stage = layer_of(graph, op, layers) * static_cast<int>(stages) / layers;
    plan.placing.mesh_of.push_back(MeshId(static_cast<std::size_t>(stage)));
  }
  plan.choices.ops.resize(2);
  plan.choices.inputs.resize(2);
  plan.choices.reduce_onto.resize(2);
  for (std::size_t m = 0; m < 2; ++m)
    for (OpId op : graph.ops().ids()) {
      if (graph.ops()[op].phase != Phase::Forward) break;
      if (graph.kind(op) != OpKind::Linear || rng.below(2) == 0) continue;
      const std::string_view axes[] = {"b", "n", "k", ""};
      const Signature& signature = graph.signature(op);
      const std::string name(axes[rng.below(4)]);
      if (name.empty() || signature.axis_named(name) >= 0) plan.choices.ops[m][op] = {name};
    }
  return plan;
}

// The second route of a schedule that has two is planned like the first, on meshes of its own.
Program program_of(const TrainingGraph& training, const ShardedPlan& plan, const CompileOptions& options) {
  std::vector<ShardingPlan> plans = {plan_sharding(training, plan.placing, plan.choices).value()};
  if (!plan.placing.route_of.empty()) {
    Placing second = plan.placing;
    for (MeshId& mesh : second.mesh_of) mesh = MeshId(mesh.index() + second.meshes.size() / 2);
    plans.push_back(plan_sharding(training, second, plan.choices).value());
  }
  std::vector<RouteSplit> routes;
  for (const ShardingPlan& each : plans) routes.push_back({each, plan.recompute});
  return compile(training, plan.placing, routes, options).value();
}

// A schedule of that name for so many ranks, with the fewest micro-batches it allows and some more.
Result<Schedule> schedule_for(const std::string& name, int ranks, Rng& rng) {
  int micro_batches = ranks;
  if (name.starts_with("dualpipe")) micro_batches = 2 * ranks;
  if (name != "interleaved") micro_batches += 2 * static_cast<int>(rng.below(2));
  return make_schedule({name, ranks, micro_batches, name == "interleaved" ? 2 + static_cast<int>(rng.below(2)) : 0});
}

constexpr int kSizes[] = {2, 3, 4, 6, 8, 12, 16, 24, 32};

TEST(Transfers, OfAnyGraphUnderAnyScheduleAndStackComeToTheEnd) {
  const Cluster cluster = parse_cluster("p100x4:32").value();
  Rng rng(1);
  int played = 0, transfers = 0, skipping = 0;
  for (const std::string& stack_name : stack_names())
    for (const std::string& name : schedule_names())
      for (int i = 0; i < 4; ++i) {
        const int ranks = kSizes[rng.below(std::size(kSizes))];
        const Result<Schedule> schedule = schedule_for(name, ranks, rng);
        if (!schedule.ok()) continue;  // dualpipe takes an even number of ranks
        SCOPED_TRACE(fmt::format("{} {} pp={} m={}", stack_name, name, ranks, schedule->micro_batches));
        const int layers = schedule->stages() + static_cast<int>(rng.below(static_cast<std::uint64_t>(ranks)));
        const TrainingGraph training = skipping_network(layers, rng);
        const ShardedPlan plan = staged(training, layers, *schedule, rng, rng.below(2) == 0);
        SoftwareStack stack = find_stack(stack_name).value();
        stack.graph_capture.value = false;
        stack.run_ahead.value = std::array{1, 2, 5, 30, 1000}[rng.below(5)];
        CompileOptions options = compile_options(stack, cluster);
        options.memory = {static_cast<int>(rng.below(4)), 0b01};
        const Program program = program_of(training, plan, options);
        const Status verified = verify(program, training.graph, *schedule);
        ASSERT_TRUE(verified.ok()) << verified.error().message;
        const AnalyticCost cost(stack);
        const Priced priced = price(program, *schedule, training, cluster, cost, stack).value();
        for (const Network network : {Network::Fair, Network::Fifo}) {
          const auto run = simulate(priced.workload, {.network = network});
          ASSERT_TRUE(run.ok()) << run.error().message;
        }
        ++played;
        transfers += static_cast<int>(program.transfers.size());
        for (const Transfer& transfer : program.transfers) {
          const int from = plan.placing.stage_of[program.buffers[transfer.from].layout.mesh],
                    to = plan.placing.stage_of[program.buffers[transfer.to].layout.mesh];
          skipping += std::abs(from - to) > 1;
        }
      }
  fmt::print("{} pipelines, {} transfers, {} of them past a stage: no deadlock\n", played, transfers, skipping);
  EXPECT_GT(played, 900);
  EXPECT_GT(skipping, 30000);
}

// Values, in addition to order and streams: the same networks train as one device does, with parts gathered on arrival,
// gradients and state on the host, and computation that waits.
TEST(Transfers, TrainAsOneDeviceDoes) {
  Rng rng(2);
  int played = 0, gathered = 0, waits = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string name = schedule_names()[rng.below(schedule_names().size())];
    const Result<Schedule> schedule = schedule_for(name, static_cast<int>(rng.between(2, 4)), rng);
    if (!schedule.ok()) continue;
    const int layers = schedule->stages() + static_cast<int>(rng.below(3));
    const TrainingGraph training = skipping_network(layers, rng);
    ShardedPlan plan = staged(training, layers, *schedule, rng, rng.below(2) == 0);
    plan.memory = {static_cast<int>(rng.below(4)), 0b01};
    for (bool& offload : plan.memory.offload) offload = rng.below(3) == 0;
    plan.transfers.overlap = rng.below(2) == 0;
    if (rng.below(2) == 0)
      for (int device = 0; device < 4 * schedule->ranks; ++device) plan.transfers.node.push_back(device / 4);
    SCOPED_TRACE(fmt::format("case {}: {} pp={}", i, name, schedule->ranks));
    const Program program = program_of(training, plan, plan.options());
    const Status verified = verify(program, training.graph, *schedule);
    ASSERT_TRUE(verified.ok()) << verified.error().message;
    ASSERT_EQ(reference::differs_from_one_device(training, program, plan.schedule), "");
    ++played;
    for (const Transfer& transfer : program.transfers) {
      const Buffer& to = program.buffers[transfer.to];
      gathered += !plan.transfers.node.empty() && split_axes(to.layout) != 0;
    }
    for (const Instruction& each : program.instructions) waits += std::holds_alternative<Wait>(each.what);
  }
  fmt::print("{} pipelines like one device, {} transfers into parts, {} waits\n", played, gathered, waits);
  EXPECT_GT(played, 300);
  EXPECT_GT(gathered, 1000);
  EXPECT_GT(waits, 1000);
}

// Incremental pricing includes every rank's part in every action, whether it receives something there or not.
TEST(Transfers, TakeAsLongWhereThePriceFollowsTheProgram) {
  const Cluster cluster = parse_cluster("p100x4:8").value();
  Rng rng(5);
  for (const std::string& name : schedule_names())
    for (const char* stack_name : {"megatron-lm", "megatron-2021", "pytorch-ddp"}) {
      const Result<Schedule> schedule = schedule_for(name, static_cast<int>(rng.between(2, 8)), rng);
      if (!schedule.ok()) continue;
      SCOPED_TRACE(fmt::format("{} {} pp={}", stack_name, name, schedule->ranks));
      const int layers = schedule->stages() + 2;
      const TrainingGraph training = skipping_network(layers, rng);
      const ShardedPlan plan = staged(training, layers, *schedule, rng, rng.below(2) == 0);
      const SoftwareStack stack = find_stack(stack_name).value();
      const Program program = program_of(training, plan, compile_options(stack, cluster));
      const AnalyticCost cost(stack);
      const Priced once = price(program, *schedule, training, cluster, cost, stack, {.fold = Fold::None}).value();
      PricedProgram following(program, *schedule, training, cluster, cost, stack);
      EXPECT_EQ(simulate(following.price().value()).value().makespan, simulate(once.workload).value().makespan);
    }
}

// Optimizer state is copied from the host and back over a duplex link: with copies one after the other, the step would
// take the sum of their times.
TEST(Transfers, BetweenDeviceAndHostGoBothWaysAtOnce) {
  const Plan plan = make_plan({.model = "gpt2-124m:layers=2",
                               .cluster = "dgx-a100:1",
                               .strategy = "dp=1,offload=optimizer",
                               .global_batch = 1,
                               .seq = 64,
                               .devices = {0}})
                        .value();
  const CompiledStrategy compiled = compile_plan(plan).value();
  const AnalyticCost cost(plan.stack());
  const Priced priced =
      price(compiled.program, compiled.schedule, plan.training(), plan.cluster(), cost, plan.stack()).value();
  std::array<Picoseconds, kStreams> alone{};
  for (const Task& task : priced.workload.agents[AgentId(0)].tasks)
    if (task.work.valid()) alone[task.stream] += isolated_time(priced.workload.works[task.work], priced.workload.links);
  const Picoseconds out = alone[static_cast<std::size_t>(Stream::CopyOut)],
                    in = alone[static_cast<std::size_t>(Stream::CopyIn)];
  const Picoseconds step = simulate(priced.workload).value().makespan;
  EXPECT_GT(in, 0.9 * static_cast<double>(out));  // master weights and two moments each way
  EXPECT_LT(in, 1.1 * static_cast<double>(out));
  EXPECT_GE(step, std::max(in, out));
  EXPECT_LT(step, in + out);
}

// Two ranks that take the micro-batches in different orders: a table that check_schedule accepts. Rank 1 needs
// micro-batch 1 first, which rank 0 makes second; matched in the order of their issue, rank 1 would begin with the
// wrong one.
TEST(Transfers, AreMatchedByMicroBatchWhateverOrderEachRankTakes) {
  const Schedule schedule = parse_schedule(
                                "schedule crossed: 2 ranks, 1 chunks, 2 micro-batches\n"
                                "route 0-1: 0 1\n"
                                "0: F0 F1 B1 B0\n"
                                "1: F1 B1 F0 B0\n",
                                "crossed")
                                .value();
  ASSERT_TRUE(check_schedule(schedule).ok());
  Rng rng(3);
  const TrainingGraph training = skipping_network(2, rng);
  for (const bool overlap : {true, false}) {
    ShardedPlan plan = staged(training, 2, schedule, rng, true);
    plan.transfers.overlap = overlap;
    const Program program = program_of(training, plan, plan.options());
    const Status verified = verify(program, training.graph, schedule);
    ASSERT_TRUE(verified.ok()) << verified.error().message;
    EXPECT_EQ(reference::differs_from_one_device(training, program, plan.schedule), "");
    // Rank 1 issues F0's receive, then F1's: as rank 0 sends them.
    std::vector<std::int32_t> received;
    const std::vector<std::vector<IssuedBody>> issued = issue_order(program, schedule);
    for (const IssuedBody& each : issued[1])
      if (each.action == IssuedBody::kForeign && each.part == Body::Forward) received.push_back(each.micro_batch);
    EXPECT_EQ(received, (std::vector<std::int32_t>{0, 1}));
  }
}

// A total order agrees with every rank's own, and has every action after what it needs.
TEST(Transfers, TheTotalOrderOfActionsIsOne) {
  Rng rng(4);
  for (const std::string& name : schedule_names())
    for (const int ranks : {1, 2, 4, 6, 8, 16}) {
      const Result<Schedule> schedule = schedule_for(name, ranks, rng);
      if (!schedule.ok()) continue;
      SCOPED_TRACE(fmt::format("{} of {}", name, ranks));
      const std::vector<std::int32_t> stage_at = stages_by_place(*schedule);
      std::vector<std::int32_t> next(static_cast<std::size_t>(ranks), 0);
      std::vector<std::vector<int>> forward(static_cast<std::size_t>(schedule->micro_batches)), backward = forward;
      std::size_t actions = 0;
      for (const RankedAction& at : total_order(*schedule)) {
        ++actions;
        ASSERT_EQ(at.action, next[static_cast<std::size_t>(at.rank)]++);
        const Action& action =
            schedule->actions[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.action)];
        const auto m = static_cast<std::size_t>(action.micro_batch);
        const int stage = stage_at[static_cast<std::size_t>(at.rank * schedule->chunks + action.chunk)];
        if (action.body == Body::Forward) {
          ASSERT_EQ(stage, static_cast<int>(forward[m].size()));
          forward[m].push_back(stage);
        } else if (action.body != Body::BackwardWeight) {
          ASSERT_EQ(forward[m].size(), static_cast<std::size_t>(schedule->stages()));
          ASSERT_EQ(stage, schedule->stages() - 1 - static_cast<int>(backward[m].size()));
          backward[m].push_back(stage);
        }
      }
      std::size_t all = 0;
      for (const auto& list : schedule->actions) all += list.size();
      EXPECT_EQ(actions, all);
    }
}

// Plans that used to deadlock: a transfer was queued behind one of another peer.
TEST(Transfers, OfPlansThatUsedToBlockComeToTheEnd) {
  const auto comes_to_the_end = [](const PlanRequest& request) {
    SCOPED_TRACE(fmt::format("{} {} {}", request.model, request.strategy, request.stack));
    const Result<Plan> plan = make_plan(request);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const CompiledStrategy compiled = compile_plan(*plan).value();
    const Status verified = verify(compiled.program, plan->training().graph, compiled.schedule);
    EXPECT_TRUE(verified.ok()) << verified.error().message;
    const Result<Forecast> found = forecast(*plan, AnalyticCost(plan->stack()));
    EXPECT_TRUE(found.ok()) << found.error().message;
  };
  comes_to_the_end({.model = "t5-small:layers=8", .cluster = "dgx-a100:1", .strategy = "pp=8,ga=16,dp=1", .seq = 64});
  comes_to_the_end(
      {.model = "t5-small:layers=4", .cluster = "p100x4:1", .strategy = "pp=2,vpp=2,ga=4,dp=2", .seq = 64});
  comes_to_the_end(
      {.model = "t5-small:layers=4", .cluster = "p100x4:1", .strategy = "pp=4,vpp=2,ga=8,dp=1", .seq = 64});
  comes_to_the_end({.model = "nmt", .cluster = "p100x4:1", .strategy = "pp=4,ga=8", .seq = 8});
  comes_to_the_end(
      {.model = "gpt-moe-380m:layers=8", .cluster = "dgx-a100:1", .strategy = "pp=4,vpp=2,ga=4", .seq = 64});
  comes_to_the_end({.model = "dlrm", .cluster = "dgx-a100:1", .strategy = "pp=2,vpp=2,ga=4"});
  int played = 0;
  for (const char* name : {"zb-v", "dualpipe-v", "dualpipe"})
    for (const int ranks : {4, 8, 12})
      for (const char* stack : {"megatron-lm", "pytorch-ddp", "megatron-2021"}) {
        comes_to_the_end({.model = fmt::format("gpt2-124m:layers={}", 2 * ranks),
                          .cluster = fmt::format("p100x4:{}", ranks / 4),
                          .strategy = fmt::format("pp={},schedule={},ga={},dp=1", ranks, name, 2 * ranks),
                          .seq = 64,
                          .stack = stack});
        ++played;
      }
  EXPECT_EQ(played, 27);
}

}  // namespace
}  // namespace weft
