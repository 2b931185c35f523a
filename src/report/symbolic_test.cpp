#include "report/symbolic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/random.h"
#include "graph/placement.h"

namespace weft {
namespace {

struct Made {
  Plan plan;
  CompiledStrategy compiled;
};

Result<Made> make(const std::string& model, const std::string& cluster, const std::string& strategy,
                  std::optional<std::int64_t> batch = {}) {
  PlanRequest request{.model = model, .cluster = cluster, .strategy = strategy};
  request.global_batch = batch;
  WEFT_TRY(Plan plan, make_plan(request));
  WEFT_TRY(CompiledStrategy compiled, compile_plan(plan));
  return Made{std::move(plan), std::move(compiled)};
}

// Every collective and transfer of the program: expression plus padding is the program's bytes; without uneven parts
// there is no padding.
struct Checked {
  int moves = 0, padded = 0;
};
Checked check_volumes(const Made& made) {
  Checked checked;
  const Program& program = made.compiled.program;
  const Graph& graph = made.plan.training().graph;
  const auto check = [&](const SymbolicVolume& volume, Bytes sent, InstructionId id) {
    const Rational bytes = volume.sent.at(volume.bindings);
    EXPECT_EQ(std::llround(volume.program.value()), sent.value) << "instruction " << id.index();
    EXPECT_FALSE(volume.program < bytes) << print(volume.sent);
    ++checked.moves;
    if (!(bytes == volume.program)) ++checked.padded;
  };
  for (InstructionId id : program.instructions.ids()) {
    const Instruction& instruction = program.instructions[id];
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      if (communicate->collective == Collective::Slice) continue;
      check(symbolic_volume(program, graph, *communicate), bytes_sent(program, graph, *communicate), id);
    } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
      check(symbolic_volume(program, graph, *send), bytes_sent(program, graph, *send), id);
    }
  }
  return checked;
}

TEST(SymbolicReport, VolumesAreTheProgramsOverManyStrategies) {
  Rng rng(7);
  int plans = 0, moves = 0, padded = 0;
  const std::vector<std::string> models = {"gpt2-124m:layers=4", "llama3-8b:layers=4,vocab=1024", "bert-base:layers=4",
                                           "mixtral-8x7b:layers=4,vocab=1024"};
  for (int round = 0; round < 120; ++round) {
    const std::string& model = models[rng.below(models.size())];
    const std::int64_t tp = 1 << rng.below(4), pp = 1 << rng.below(3), cp = rng.below(3) == 0 ? 2 : 1;
    if (tp * pp * cp > 16) continue;
    std::string strategy = fmt::format("tp={},pp={},cp={},zero={}", tp, pp, cp, rng.below(4));
    if (tp > 1) strategy += fmt::format(",sp={}", rng.below(2));
    if (model.starts_with("mixtral") && rng.below(2) == 0) strategy += ",ep=2";
    if (cp > 1) strategy += fmt::format(",cp_mode={}", rng.below(2) == 0 ? "gather" : "ring");
    strategy += fmt::format(",recompute={}", rng.below(2) == 0 ? "full" : "none");
    const Result<Made> made = make(model, "dgx-h100:2", strategy, 32);
    if (!made.ok()) continue;  // a strategy that does not apply to this model
    const Checked checked = check_volumes(*made);
    ++plans;
    moves += checked.moves;
    padded += checked.padded;
    EXPECT_EQ(checked.padded, 0) << model << " " << strategy;
  }
  EXPECT_GE(plans, 60);
  EXPECT_GE(moves, 4000);
  EXPECT_EQ(padded, 0);
}

TEST(SymbolicReport, HalosAndUnevenPartsAreTold) {
  const Result<Made> halos = make("resnet18", "dgx-a100:1", "dp=4,h=2");
  ASSERT_TRUE(halos.ok()) << halos.error().message;
  EXPECT_GT(check_volumes(*halos).moves, 20);
  // Columns of the first product in 3:1, so that the largest part is 2304 of 3072 instead of 1536; for gradients of
  // such weights the largest part counts too.
  const std::string path = testing::TempDir() + "weft_symbolic_test.yaml";
  std::ofstream(path) << "mesh: {axes: {dp: 4, tp: 2}}\n"
                         "schedule: {name: 1f1b, micro_batches: 2}\n"
                         "rules:\n"
                         "  - {match: \"**\", inputs: {dp: 0}}\n"
                         "  - {match: layers.*.mlp.up, compute: {tp: {axis: n, ratio: [3, 1]}}}\n";
  const Result<Made> uneven = make("gpt2-124m:layers=2", "dgx-a100:1", path, 8);
  ASSERT_TRUE(uneven.ok()) << uneven.error().message;
  const Checked checked = check_volumes(*uneven);
  EXPECT_GT(checked.padded, 0);
  EXPECT_GT(symbolic_costs(uneven->plan, uneven->compiled).padding(0).value(), 0);
  std::remove(path.c_str());
}

TEST(SymbolicReport, TotalsAreThoseOfTheTraffic) {
  const Result<Made> made = make("llama3-8b:layers=8", "dgx-h100:2", "tp=4,pp=2,dp=2,zero=1", 32);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const SymbolicReport report = symbolic_costs(made->plan, made->compiled);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    double traffic = 0;
    for (const StepTraffic& row : traffic_of(made->plan, made->compiled))
      traffic += static_cast<double>(row.bytes[rank].value);
    const double symbolic = (report.bytes(rank) + report.padding(rank)).value();
    EXPECT_NEAR(symbolic / traffic, 1, 1e-6);  // traffic_of rounds each to whole bytes
  }
}

// SMSG's law on a compiled program: splitting samples sends the volume predicted from the operators' sample axes.
TEST(SymbolicReport, DataParallelismSendsTheWeightsThatLackTheSamples) {
  const Result<Made> made = make("gpt2-124m:layers=2", "dgx-a100:1", "dp=8", 8);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Graph& graph = made->plan.training().graph;
  Rational elements;  // of weights' gradients, by the split of every operator's first axis
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    const Signature& signature = graph.signature(op);
    for (const Operand& input : signature.inputs) {
      if (!input.weight) continue;
      const SplitVolume volume = split_volume(signature, 0);
      for (const VolumeTerm& term : volume.all_reduced)
        if (term.operand == "d" + input.name) elements = elements + Rational(term.elements);
    }
  }
  Rational sent;
  for (const SymbolicMove& move : symbolic_costs(made->plan, made->compiled).moves)
    if (move.how == "all-reduce" && move.group == "dp" && move.bindings.contains("p"))
      sent = sent + move.bytes * Rational(move.times[0]);
  // fp32 gradients: 4 bytes, 2·7/8 of each. The table of tokens is the head's weight too, and reduced once.
  const Rational tied(made->plan.model->vocabulary.stored * 768);
  EXPECT_EQ(sent, (elements - tied) * Rational::of(4 * 2 * 7, 8));
  EXPECT_EQ(elements - tied, Rational(graph.parameter_count()));
}

TEST(SymbolicReport, TiersWeighMeshAxes) {
  const auto tiers = parse_tiers("tp=1,dp=8.5");
  ASSERT_TRUE(tiers.ok());
  EXPECT_EQ(tiers->at("dp"), 8.5);
  EXPECT_FALSE(parse_tiers("dp").ok());
  EXPECT_FALSE(parse_tiers("dp=-1").ok());
  EXPECT_FALSE(parse_tiers("=2").ok());
  const Result<Made> made = make("gpt2-124m:layers=2", "dgx-a100:1", "dp=8", 8);
  const SymbolicReport report = symbolic_costs(made->plan, made->compiled);
  EXPECT_NEAR(report.weighted(0, {}), report.bytes(0).value(), 1);
  EXPECT_GT(report.weighted(0, *tiers), 8 * report.bytes(0).value());
}

}  // namespace
}  // namespace weft
