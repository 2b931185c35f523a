#include "soap/soap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compile/from_strategy.h"
#include "cost/analytic.h"
#include "models/models.h"
#include "price/price.h"
#include "soap/groups.h"
#include "soap/mcmc.h"
#include "soap/proposals.h"
#include "soap/tied.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

struct Case {
  Case(const std::string& model, std::int64_t batch, const std::string& on, std::optional<std::int64_t> seq = {})
      : training(make_training_graph(build_model(model, {.batch = batch, .seq = seq, .dtype = DType::F32}).value(),
                                     {.optimizer = OptimizerKind::Momentum, .clip_norm = std::nullopt})
                     .value()),
        cluster(parse_cluster(on).value()),
        stack(without_host_time(find_stack("pytorch-ddp").value())),
        cost(stack),
        problem{training, cluster, cost, stack} {
    for (std::int64_t i = 0; i < cluster.device_count(); ++i) devices.emplace_back(static_cast<std::size_t>(i));
  }
  Result<SoapOutcome> search(SoapSearch by, std::int64_t evaluations, int threads = 0) const {
    return search_soap(training, cluster, cost, stack,
                       {.search = by, .budget = {.evaluations = evaluations}, .threads = threads});
  }

  TrainingGraph training;
  Cluster cluster;
  SoftwareStack stack;
  AnalyticCost cost;
  SoapProblem problem;
  std::vector<DeviceId> devices;
};

// As `weft simulate` simulates a file.
Picoseconds play_file(const Case& on, const std::string& yaml) {
  const Strategy strategy = parse_strategy(yaml, "found.yaml").value();
  const ResolvedStrategy resolved = resolve(strategy, on.training, on.cluster, "found.yaml").value();
  const CompileOptions options = compile_options(on.stack, on.cluster);
  const CompiledStrategy compiled = compile_strategy(on.training, resolved, options).value();
  const Priced priced =
      price(compiled.program, compiled.schedule, on.training, on.cluster, on.cost, on.stack, {.fold = Fold::None})
          .value();
  return simulate(priced.workload, {.network = Network::Fifo}).value().makespan;
}

TEST(Soap, WhatIsFoundIsAFileThatTakesAsLong) {
  for (const SoapSearch search : {SoapSearch::Exact, SoapSearch::Symbolic, SoapSearch::Mcmc}) {
    const Case lenet("lenet", 256, "p100x4:1");
    const SoapOutcome found = lenet.search(search, 600).value();
    EXPECT_EQ(play_file(lenet, to_yaml(found.tree)), found.judged.fifo) << name_of(search);
    EXPECT_GT(found.judged.fifo, found.bound.value());
    EXPECT_GE(found.gap, 0);
    for (const SoapCandidate& candidate : found.candidates) {
      ASSERT_TRUE(candidate.judged) << candidate.name << ": " << candidate.error;
      // Within the slack the fewest bytes win, but never slower than data parallelism or the expert strategy.
      const bool ours = candidate.name != "data parallel" && candidate.name != "expert";
      EXPECT_LE(static_cast<double>(found.judged.fair),
                static_cast<double>(candidate.judged->fair) * (ours ? 1 + SoapRequest().slack : 1))
          << candidate.name;
    }
  }
}

// Two nodes whose groups share a NIC: it matters which devices are in which group.
TEST(Soap, DevicesThatAreTheSameAreOneAgentUnderAnyNetwork) {
  const Case rnn("rnnlm:hidden=256,vocab=2000", 256, "k80x4:2", 4);
  const Proposals proposals(rnn.training, 4);
  const Schedule schedule = make_schedule({"gpipe", 1, 1, 0}).value();
  Rng rng(3);
  int played = 0, folded = 0;
  for (int i = 0; i < 60; ++i) {
    SoapMeshes meshes({4, 2, 1}, rnn.devices);
    SoapStrategy strategy =
        i % 2 == 0 ? data_parallel_strategy(rnn.training, meshes) : expert_strategy(rnn.training, rnn.cluster, meshes);
    for (int k = 0; k < i % 6; ++k)
      for (const auto& [op, config] : proposals.draw(strategy.ops, meshes, rng)) strategy.ops[op] = config;
    strategy.meshes = meshes.meshes();
    const Result<Program> program = compile_strategy(rnn.problem, strategy);
    if (!program.ok()) continue;
    ++played;
    const auto priced = [&](Fold fold) {
      return price(*program, schedule, rnn.training, rnn.cluster, rnn.cost, rnn.stack, {.fold = fold}).value();
    };
    const Priced all = priced(Fold::None), same = priced(Fold::Same);
    folded += same.agents.size() < all.agents.size();
    for (const Network network : {Network::Fifo, Network::Fair})
      EXPECT_EQ(simulate(same.workload, {.network = network}).value().makespan,
                simulate(all.workload, {.network = network}).value().makespan);
  }
  EXPECT_GT(played, 20);
  EXPECT_GT(folded, 5);
}

TEST(Soap, TheSameSeedFindsTheSameOnOneThreadAndTwo) {
  const Case rnn("rnnlm:hidden=64,vocab=256", 64, "p100x4:1", 2);
  const SoapOutcome one = rnn.search(SoapSearch::Mcmc, 500, 1).value(),
                    two = rnn.search(SoapSearch::Mcmc, 500, 2).value();
  EXPECT_EQ(to_yaml(one.tree), to_yaml(two.tree));
  EXPECT_EQ(one.judged.fair, two.judged.fair);
  EXPECT_EQ(one.counts.simulated, two.counts.simulated);
  EXPECT_EQ(one.stopped_by, StoppedBy::Evaluations);
}

TEST(Soap, AWalkOverLayersIsNoSlowerThanItsSeedsAndThriftyWithinItsSlack) {
  const Case rnn("rnnlm:hidden=256,vocab=2000", 256, "k80x4:2", 4);
  SoapMeshes meshes({8, 1, 1}, rnn.devices);
  const std::vector<SoapStrategy> seeds = {data_parallel_strategy(rnn.training, meshes),
                                           expert_strategy(rnn.training, rnn.cluster, meshes)};
  const TiedOutcome found =
      search_tied(rnn.problem, seeds, {.evaluations = 900}, {.patience = 3, .slacks = {0.2, 1}}).value();
  const SoapJudgement fastest = judge(rnn.problem, found.fastest).value();
  EXPECT_EQ(fastest.fair, found.fair);  // the same with and without folding
  for (const SoapStrategy& seed : seeds) EXPECT_LE(fastest.fair, judge(rnn.problem, seed).value().fair);
  EXPECT_EQ(fastest.bytes_moved, found.bytes);
  ASSERT_FALSE(found.thrifty.empty());
  std::int64_t before = fastest.bytes_moved;
  for (const Thrifty& each : found.thrifty) {
    const SoapJudgement thrifty = judge(rnn.problem, each.strategy).value();
    EXPECT_EQ(thrifty.fair, each.fair);
    EXPECT_EQ(thrifty.bytes_moved, each.bytes);
    EXPECT_LT(thrifty.bytes_moved, before);
    EXPECT_LE(static_cast<double>(thrifty.fair), (1 + each.slack) * static_cast<double>(fastest.fair));
    before = thrifty.bytes_moved;
  }
}

// As FlexFlow counts bytes: every replica but one sends its gradient and receives the sum.
TEST(Soap, DataParallelismMovesEveryParameterThereAndBack) {
  const Case rnn("rnnlm:hidden=64,vocab=256", 64, "k80x4:2", 3);
  SoapMeshes meshes({8, 1, 1}, rnn.devices);
  std::int64_t parameters = 0;
  for (const Tensor& tensor : rnn.training.graph.tensors())
    if (tensor.kind == TensorKind::Parameter) {
      std::int64_t elements = 1;
      for (std::int64_t extent : tensor.type.shape) elements *= extent;
      parameters += elements * 4;
    }
  const SoapJudgement judged = judge(rnn.problem, data_parallel_strategy(rnn.training, meshes)).value();
  // Everything else is as small as a loss.
  EXPECT_GE(judged.bytes_moved, 2 * 7 * parameters);
  EXPECT_LE(judged.bytes_moved, 2 * 7 * parameters + 4096);
}

// A loss cannot be split by samples; that must not restrict the devices of the layer before it.
TEST(Soap, AVocabularyIsSplitOverSomeOfTheDevices) {
  const Case rnn("rnnlm:hidden=64,vocab=256", 64, "k80x4:2", 4);
  SoapMeshes meshes({8, 1, 1}, rnn.devices);
  const Proposals proposals(rnn.training, 4);
  const Graph& graph = rnn.training.graph;
  const std::size_t head = proposals.layers().back();
  const OpId logits = proposals.units()[head].front();
  ASSERT_EQ(graph.name(logits), "head.logits");
  const Signature& signature = graph.signature(logits);
  const auto axis = [&](const char* name) { return static_cast<std::int8_t>(signature.axis_named(name)); };
  const MeshId some = meshes.id_of({2, 2, 1}, {DeviceId(0), DeviceId(1), DeviceId(4), DeviceId(5)});
  SoapStrategy strategy = data_parallel_strategy(rnn.training, meshes);
  const std::vector<OpChange> changes = proposals.change_units({head}, {some, {axis("b"), axis("n"), -1}}, meshes);
  EXPECT_EQ(changes.size(), proposals.units()[head].size());
  for (const auto& [op, config] : changes) strategy.ops[op] = config;
  strategy.meshes = meshes.meshes();
  const Result<SoapJudgement> judged = judge(rnn.problem, strategy);
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  EXPECT_EQ(play_file(rnn, to_yaml(to_tree(strategy, graph))), judged->fifo);
}

// b over x and z with n over y between them: b in 2·2 parts, of which part 2·i + k has n in 2 parts on the devices
// (i, 0, k) and (i, 1, k), numbered 4·i + 2·j + k.
TEST(Soap, AxesThatSplitAlikeAreWrittenAsOne) {
  const Case lenet("lenet", 64, "k80x4:4");
  SoapMeshes meshes({16, 1, 1}, lenet.devices);
  const std::vector<DeviceId> first_half(lenet.devices.begin(), lenet.devices.begin() + 8);
  const Graph& graph = lenet.training.graph;
  SoapStrategy strategy = data_parallel_strategy(lenet.training, meshes);
  for (OpId op : strategy.ops.ids()) {
    const Signature& signature = graph.signature(op);
    if (signature.kind != OpKind::Linear) continue;
    const auto b = static_cast<std::int8_t>(signature.axis_named("b")),
               n = static_cast<std::int8_t>(signature.axis_named("n"));
    if (!divides(signature, n, 2)) continue;
    strategy.ops[op] = {meshes.id_of({2, 2, 2}, first_half), {b, n, b}};
    strategy.meshes = meshes.meshes();
    const SoapStrategy written = as_written(strategy);
    const Mesh& mesh = written.meshes[written.ops[op].mesh];
    EXPECT_EQ(mesh.axes(), (std::vector<MeshAxis>{{"x", 1}, {"y", 4}, {"z", 2}}));
    EXPECT_EQ(written.ops[op].split, (std::array<std::int8_t, kSoapAxes>{-1, b, n}));
    std::vector<DeviceId> devices;
    for (const int device : {0, 2, 1, 3, 4, 6, 5, 7}) devices.emplace_back(static_cast<std::size_t>(device));
    EXPECT_EQ(mesh.devices(), devices);
    const Strategy tree = to_tree(written, graph);
    EXPECT_EQ(parse_strategy(to_yaml(tree), "found.yaml").value(), tree);
    EXPECT_EQ(play_file(lenet, to_yaml(tree)), judge(lenet.problem, written).value().fifo);
    return;
  }
  FAIL() << "no linear layer";
}

// Embeddings have no matrix products, but a group of them needs a device too.
TEST(Soap, GroupsOfTablesArePlaced) {
  const Case dlrm("dlrm:rows=256,tables=6", 64, "k80x4:2");
  SoapMeshes meshes({8, 1, 1}, dlrm.devices);
  const std::vector<SoapStrategy> grouped = grouped_strategies(dlrm.training, Proposals(dlrm.training, 4), meshes);
  EXPECT_GT(grouped.size(), 4u);
  for (const SoapStrategy& strategy : grouped) {
    const Result<SoapJudgement> judged = judge(dlrm.problem, strategy);
    EXPECT_TRUE(judged.ok()) << judged.error().message;
  }
}

TEST(Soap, GroupsOfLayersHaveDevicesOfTheirOwn) {
  const Case rnn("nmt:hidden=64,vocab=2048", 128, "k80x4:4", 3);
  SoapMeshes meshes({16, 1, 1}, rnn.devices);
  const Graph& graph = rnn.training.graph;
  const std::vector<SoapStrategy> groups = grouped_strategies(rnn.training, Proposals(rnn.training, 4), meshes);
  ASSERT_GT(groups.size(), 3u);
  const std::int64_t parallel = judge(rnn.problem, data_parallel_strategy(rnn.training, meshes)).value().bytes_moved;
  int apart = 0, thrifty = 0;
  for (const SoapStrategy& strategy : groups) {
    const Result<SoapJudgement> judged = judge(rnn.problem, strategy);
    ASSERT_TRUE(judged.ok()) << judged.error().message;
    thrifty += 5 * judged->bytes_moved <= parallel;
    std::map<std::string, std::set<DeviceId>> on;
    for (OpId op : strategy.ops.ids()) {
      const std::vector<DeviceId>& devices = strategy.meshes[strategy.ops[op].mesh].devices();
      for (const char* layer : {"encoder.0", "encoder.1", "decoder.0", "decoder.1"})
        if (graph.name(op).starts_with(layer)) on[layer].insert(devices.begin(), devices.end());
    }
    // Layers of one depth share devices.
    EXPECT_EQ(on["encoder.0"], on["decoder.0"]);
    EXPECT_EQ(on["encoder.1"], on["decoder.1"]);
    std::vector<DeviceId> shared;
    std::set_intersection(on["encoder.0"].begin(), on["encoder.0"].end(), on["encoder.1"].begin(),
                          on["encoder.1"].end(), std::back_inserter(shared));
    apart += shared.empty();
  }
  EXPECT_GT(apart, 0);
  EXPECT_GT(thrifty, 0);
}

TEST(Soap, NoRandomStrategyBeatsTheLowerBound) {
  for (const char* model : {"lenet", "rnntc:hidden=64,vocab=256,seq=3"}) {
    const Case on(model, 64, "p100x4:2");
    const SoapBound bound = lower_bound(on.problem, on.devices);
    SoapMeshes meshes({8, 1, 1}, on.devices);
    const Proposals proposals(on.training, 4);
    Rng rng(3);
    SoapStrategy strategy = data_parallel_strategy(on.training, meshes);
    int played = 0;
    for (int i = 0; i < 60; ++i) {
      for (const auto& [op, config] : proposals.draw(strategy.ops, meshes, rng)) strategy.ops[op] = config;
      strategy.meshes = meshes.meshes();
      const Result<SoapJudgement> judged = judge(on.problem, strategy);
      if (!judged.ok()) continue;
      ++played;
      EXPECT_GE(judged->fifo, bound.value());
      EXPECT_GE(judged->fair, bound.value());
    }
    EXPECT_GT(played, 30);
  }
}

TEST(Soap, ExactIsNoWorseThanAnyOtherPlanUnderItsOwnJudge) {
  const Case gpt("gpt2-124m:layers=3,hidden=64,heads=4,vocab=128", 8, "p100x4:1", 32);
  const SoapMeshes meshes({2, 2, 1}, gpt.devices);
  const Mesh& mesh = meshes.meshes()[MeshId(0)];
  TimePrices times(gpt.cluster, gpt.cost, mesh);
  VolumePrices volumes;
  const LayoutProblem timed = make_layout_problem(gpt.training, mesh, times);
  const Assignment best = choose_best(timed.choices);
  ASSERT_TRUE(best.exact);
  // Every operator by its samples where it has some, and any random options.
  std::vector<std::uint32_t> parallel(timed.ops.size(), 0);
  for (VariableId v : timed.ops.ids())
    for (std::uint32_t x = 0; x < timed.splits[v].size(); ++x)
      if (timed.splits[v][x] == std::vector<std::string>{"b", "b", ""}) parallel[v.index()] = x;
  EXPECT_LE(best.cost, judge_choice(timed.choices, parallel).cost);
  Rng rng(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint32_t> option;
    for (VariableId v : timed.ops.ids())
      option.push_back(static_cast<std::uint32_t>(rng.below(timed.splits[v].size())));
    improve_choice(timed.choices, option);
    EXPECT_LE(best.cost, judge_choice(timed.choices, option).cost);
  }
  // The symbolic choice by the objective of the exact search: every option of the former is one of the latter.
  const LayoutProblem by_volume = make_layout_problem(gpt.training, mesh, volumes);
  const Assignment symbolic = choose_best(by_volume.choices);
  std::vector<std::uint32_t> same;
  for (VariableId v : timed.ops.ids()) {
    const auto& split = by_volume.splits[v][symbolic.option[v.index()]];
    const auto at = std::find(timed.splits[v].begin(), timed.splits[v].end(), split);
    ASSERT_NE(at, timed.splits[v].end());
    same.push_back(static_cast<std::uint32_t>(at - timed.splits[v].begin()));
  }
  EXPECT_LE(best.cost, judge_choice(timed.choices, same).cost);
  // Three layers have three times the variables of one, but fewer distinct eliminations per variable.
  EXPECT_LT(best.distinct, best.eliminations);
}

TEST(Soap, ALayoutPlanFitsItsMemoryOrThereIsNone) {
  const Case lenet("lenet", 256, "p100x4:1");
  const SoapMeshes meshes({4, 1, 1}, lenet.devices);
  const Mesh& mesh = meshes.meshes()[MeshId(0)];
  TimePrices times(lenet.cluster, lenet.cost, mesh);
  const Assignment free =
      choose_best(make_layout_problem(lenet.training, mesh, times, {Bytes{1 << 30}, Bytes{1 << 12}}).choices);
  ASSERT_FALSE(free.option.empty());
  const auto limited = [&](std::int64_t bytes) {
    return choose_best(make_layout_problem(lenet.training, mesh, times, {Bytes{bytes}, Bytes{1 << 12}}).choices);
  };
  // The memory of the best assignment is enough; with a little less the result is slower, or there is none.
  EXPECT_EQ(limited(std::int64_t{free.memory} << 12).cost, free.cost);
  const Assignment less = limited(std::int64_t{free.memory - 1} << 12);
  EXPECT_LT(less.option.empty() ? 0 : less.memory, free.memory);
  EXPECT_GE(less.cost, free.cost);
  EXPECT_TRUE(limited(1 << 12).option.empty());
}

// The budget is that of forecasts: the memory that the driver reports, less the headroom.
TEST(Soap, MemoryIsWhatTheDriverReportsNotWhatIsSold) {
  const Case lenet("lenet", 256, "k80x4:1");
  const DeviceSpec& k80 = lenet.cluster.spec(DeviceId(0));
  const Bytes usable = capacity_of(k80), sold = k80.memory.value;
  ASSERT_LT(usable, sold);
  SoapMeshes meshes({4, 1, 1}, lenet.devices);
  const SoapStrategy parallel = data_parallel_strategy(lenet.training, meshes);
  SoapProblem problem = lenet.problem;
  const auto held = static_cast<double>(judge(problem, parallel)->most_held.value);
  // A headroom that leaves enough of the nominal memory, and too little of what the driver reports.
  problem.headroom = 1 - 2 * held / static_cast<double>(usable.value + sold.value);
  ASSERT_LT(held, static_cast<double>(memory_budget(sold, problem.headroom).value));
  EXPECT_GT(judge(problem, parallel)->over_budget.value, 0);
}

TEST(Soap, ProductsRunInTheTypesOfTheProblem) {
  const Case alexnet("alexnet", 256, "dgx-a100:1");
  SoapMeshes meshes({8, 1, 1}, alexnet.devices);
  const SoapStrategy parallel = data_parallel_strategy(alexnet.training, meshes);
  SoapProblem rounded = alexnet.problem;
  rounded.types.products = Arithmetic::kTf32;
  EXPECT_LT(judge(rounded, parallel)->fair, judge(alexnet.problem, parallel)->fair);
}

TEST(Soap, BadRequestsAreToldApart) {
  const Case lenet("lenet", 256, "p100x4:1");
  const Result<SoapOutcome> outside =
      search_soap(lenet.training, lenet.cluster, lenet.cost, lenet.stack, {.devices = {DeviceId(4)}});
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(outside.error().message, "device 4: the cluster has 0 to 3");
}

// A user who stops a search gets the best plan that there is: data parallelism and the expert strategy are judged first.
TEST(Soap, ACancelledSearchReturnsWhatItHas) {
  const Case alexnet("alexnet", 256, "p100x4:1");
  const std::atomic<bool> cancelled = true;
  for (const SoapSearch by : {SoapSearch::Exact, SoapSearch::Symbolic, SoapSearch::Mcmc}) {
    const SoapOutcome found = search_soap(alexnet.training, alexnet.cluster, alexnet.cost, alexnet.stack,
                                          {.search = by, .budget = {.cancelled = &cancelled}})
                                  .value();
    EXPECT_EQ(found.stopped_by, StoppedBy::Cancelled);
    EXPECT_EQ(found.candidates.size(), 2u);
    EXPECT_TRUE(found.feasible);
  }
}

}  // namespace
}  // namespace weft
