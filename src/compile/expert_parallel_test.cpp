// Expert parallelism on the devices of the dense layers (etp, ep and copies on the devices of tp, cp and dp): programs
// train as one device does, every device has its share of the experts' work, and tokens are sent to experts from the
// devices that hold them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "base/random.h"
#include "program_cases.h"
#include "reference/one_device.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Parts of 8 tokens at least, each choosing 2 of 8 experts: 2 rows per expert and part.
constexpr std::int64_t kTokensOfAPart = 8;
const char* const kMoe =
    "mixtral-8x7b:layers=2,hidden=8,heads=4,kv_heads=4,ffn=8,vocab=16,experts=8,top_k=2,capacity_factor=1";

std::int64_t parts_of(const Parallelism& plan) {
  std::int64_t parts = 1;
  for (std::int64_t cut : plan.sequence_cuts()) parts *= cut;
  return parts;
}

struct Case {
  std::string model, strategy;
  std::int64_t seq = 16;
};

// Any degrees that divide one another, on up to 16 devices.
Case random_case(Rng& rng) {
  const auto one_of = [&](auto... values) {
    const std::int64_t list[] = {values...};
    return list[rng.below(sizeof...(values))];
  };
  const auto divisor_of = [&](std::int64_t number) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t i = 1; i <= number; ++i)
      if (number % i == 0) divisors.push_back(i);
    return divisors[rng.below(divisors.size())];
  };
  std::int64_t tp = 1, cp = 1, dp = 1, pp = 1;
  do {
    tp = one_of(1, 2, 4);
    cp = one_of(1, 2, 4);
    dp = one_of(1, 2, 4);
    pp = one_of(1, 1, 2);
  } while (tp * cp * dp * pp > 16);
  const std::int64_t etp = divisor_of(tp);
  const bool sp = tp > 1 && (etp < tp || rng.below(3) != 0);
  const bool hybrid = dp > 1 && rng.below(5) == 0;
  const std::int64_t shards = hybrid ? dp / 2 : dp;
  const std::int64_t ep = std::gcd<std::int64_t>(8, divisor_of(shards * cp * tp / etp));
  Case made;
  made.strategy = fmt::format("tp={},cp={},pp={},ep={},etp={},sp={},ga=2", tp, cp, pp, ep, etp, sp ? 1 : 0);
  made.strategy +=
      hybrid ? fmt::format(",fsdp={},replicate=2", shards) : fmt::format(",dp={},zero={}", dp, rng.below(4));
  if (cp > 1) {
    const char* const modes[] = {"gather", "ring", "a2a"};
    made.strategy += fmt::format(",cp_mode={}", modes[rng.below(4 % tp == 0 && 4 % (tp * cp) == 0 ? 3 : 2)]);
  }
  const char* const again[] = {"none", "selective", "full", "op", "op:1"};
  made.strategy += fmt::format(",recompute={}", again[rng.below(5)]);
  made.model = fmt::format("{},capacity_factor={},weigh_rows={},shared_ffn={},aux_loss={},activation={}", kMoe,
                           one_of(0, 1, 2), rng.below(2), rng.below(2) * 8, rng.below(2) == 0 ? "0" : "0.01",
                           rng.below(2) == 0 ? "swiglu" : "gelu");
  made.seq = 2 * cp * (sp ? tp : 1);
  return made;
}

std::string problem_of(const Case& each) {
  const Shorthand words = parse_shorthand(each.strategy).value();
  const Result<Parallelism> plan = complete(words, devices_named(words));
  if (!plan.ok()) return plan.error().message;
  Graph graph = routed_graph(each.model, *plan, each.seq);
  const Strategy strategy = expand(*plan, graph);
  if (sequence_cuts(strategy) != plan->sequence_cuts()) return "the tree cuts the sequence otherwise";
  const TrainingGraph training = make_training_graph(std::move(graph), {.master_weights = false}).value();
  const Result<ResolvedStrategy> resolved = resolve(strategy, training, parse_cluster("dgx-h100:2").value());
  if (!resolved.ok()) return resolved.error().message;
  const Result<CompiledStrategy> compiled = compile_strategy(training, *resolved);
  if (!compiled.ok()) return compiled.error().message;
  return reference::differs_from_one_device(training, compiled->program, compiled->schedule);
}

// WEFT_EXPERT_PLANS sets how many; sanitizer builds run fewer.
TEST(ExpertParallel, RandomFoldingsTrainAsOneDevice) {
  const char* const wanted = std::getenv("WEFT_EXPERT_PLANS");
  const int plans = wanted ? std::atoi(wanted) : 500;
  std::vector<std::string> problems(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0;
  const auto play = [&] {
    for (int i = next++; i < plans; i = next++) {
      Rng rng = Rng(7).split(static_cast<std::uint64_t>(i));
      const Case each = random_case(rng);
      if (const std::string problem = problem_of(each); !problem.empty())
        problems[static_cast<std::size_t>(i)] = fmt::format("{} {}: {}", each.model, each.strategy, problem);
    }
  };
  std::thread other(play);
  play();
  other.join();
  int mismatches = 0;
  for (const std::string& problem : problems) {
    mismatches += problem.empty() ? 0 : 1;
    EXPECT_EQ(problem, "");
  }
  fmt::print("{} foldings of experts played, {} mismatches\n", plans, mismatches);
}

// Every combination of degrees that divides, on 16 devices.
std::vector<std::string> all_foldings() {
  std::vector<std::string> all;
  for (std::int64_t tp : {1, 2, 4})
    for (std::int64_t cp : {1, 2, 4})
      for (std::int64_t etp = 1; etp <= tp; etp *= 2)
        for (std::int64_t ep = 1; ep <= 8 && ep <= 16 / etp; ep *= 2)
          for (const char* mode : {"gather", "ring", "a2a"}) {
            const bool heads = std::string(mode) == "a2a";
            if ((cp == 1 && std::string(mode) != "gather") || (heads && tp * cp > 4)) continue;
            for (int sp = 0; sp <= (tp > 1 ? 1 : 0); ++sp) {
              if (etp < tp && sp == 0) continue;
              all.push_back(fmt::format("tp={},cp={},dp={},ep={},etp={}{}{}", tp, cp, 16 / tp / cp, ep, etp,
                                        tp > 1 ? fmt::format(",sp={}", sp) : "",
                                        cp > 1 ? fmt::format(",cp_mode={}", mode) : ""));
            }
          }
  return all;
}

ProgramCase compiled(const std::string& strategy, const char* model = kMoe) {
  const Shorthand words = parse_shorthand(strategy).value();
  const Parallelism plan = complete(words, devices_named(words)).value();
  return program_case(model, strategy, kTokensOfAPart * parts_of(plan));
}

// Work of experts per device: all of it over the devices. Context parallelism once had every rank of a group compute
// the rows of the whole sample.
TEST(ExpertParallel, EveryDeviceHasItsShareOfTheExpertsWork) {
  int combinations = 0, products = 0;
  for (const std::string& strategy : all_foldings()) {
    const ProgramCase made = compiled(strategy);
    const Graph& graph = made.training.graph;
    for (const Instruction& instruction : made.program.instructions) {
      const auto* compute = std::get_if<Compute>(&instruction.what);
      if (!compute || graph.kind(compute->op) != OpKind::ExpertLinear) continue;
      const Signature& signature = graph.signature(compute->op);
      const Mesh& mesh = made.program.meshes[instruction.mesh];
      double total = 1, most = 0;
      for (const Axis& axis : signature.axes) total *= static_cast<double>(axis.size);
      for (int position = 0; position < mesh.size(); ++position) {
        double here = 1;
        for (const AxisSlice& slice : axis_slices(signature, compute->sharding, mesh, position))
          here *= static_cast<double>(slice.size());
        most = std::max(most, here);
      }
      EXPECT_EQ(most, total / mesh.size()) << strategy << " " << graph.name(compute->op);
      ++products;
    }
    ++combinations;
  }
  fmt::print("{} combinations of degrees, {} products of experts\n", combinations, products);
}

// The communication of rows between the operators of experts in a body: "all-to-all ep 24", the elements each device
// sends.
std::vector<std::string> moves_of(const ProgramCase& made, std::string_view from_op) {
  const Graph& graph = made.training.graph;
  const Program& program = made.program;
  std::vector<std::string> moves;
  for (InstructionId id : program.stages[0].forward) {
    const Instruction& instruction = program.instructions[id];
    const auto* move = std::get_if<Communicate>(&instruction.what);
    if (!move) continue;
    const Buffer &before = program.buffers[move->inputs[0]], &after = program.buffers[move->outputs[0]];
    const OpId maker = graph.tensors()[before.tensor].producer;
    if (!maker.valid() || graph.name(maker) != from_op) continue;
    const Mesh& mesh = program.meshes[instruction.mesh];
    std::string axes;
    for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
      if (move->axes >> axis & 1u) axes += (axes.empty() ? "" : "+") + mesh.axes()[axis].name;
    moves.push_back(
        fmt::format("{} {} {:g}", name_of(move->collective), axes,
                    elements_sent({move->collective, move->axes, move->reducer, after.layout}, before.layout, mesh)));
  }
  return moves;
}

// Sequence shards go to the experts' devices by all-to-all, then to all devices that have a part of the expert; partial
// results are reduce-scattered to the tokens' layout, then sent back by all-to-all.
TEST(ExpertParallel, TokensGoByAllToAllThenToTheTensorGroupOfTheirExperts) {
  // Each of 16 devices has 8 tokens of 8 elements, twice: 128 elements. Of these 3/4 leave for other ep ranks; then 128
  // elements of the neighbour arrive.
  const ProgramCase made = compiled("tp=4,etp=2,cp=2,dp=2,ep=4");
  EXPECT_THAT(moves_of(made, "layers.0.moe.dispatch"), ElementsAre("all-to-all ecp+eptp 96", "all-gather etp 128"));
  EXPECT_THAT(moves_of(made, "layers.0.moe.experts.down"),
              ElementsAre("reduce-scatter etp 128", "all-to-all ecp+eptp 96"));
}

// Local tokens · top_k · hidden · (ep − 1)/ep, whichever mesh axes form ep.
TEST(ExpertParallel, AnAllToAllSendsWhatLeavesTheDevice) {
  int checked = 0;
  for (const std::string& strategy : all_foldings()) {
    const Shorthand words = parse_shorthand(strategy).value();
    const Parallelism plan = complete(words, devices_named(words)).value();
    if (plan.ep == 1) continue;
    const std::vector<std::string> moves = moves_of(compiled(strategy), "layers.0.moe.dispatch");
    // Micro-batches of one sample per replica.
    const double rows = 2.0 * kTokensOfAPart, ep = static_cast<double>(plan.ep);
    ASSERT_FALSE(moves.empty()) << strategy;
    EXPECT_THAT(moves.front(), ::testing::StartsWith("all-to-all ")) << strategy;
    EXPECT_THAT(moves.front(), ::testing::EndsWith(fmt::format(" {:g}", rows * 8 * (ep - 1) / ep))) << strategy;
    const bool gathers = plan.etp > 1 && plan.sequence_parallel;
    EXPECT_EQ(moves.size(), gathers ? 2u : 1u) << strategy << ": " << fmt::format("{}", fmt::join(moves, ", "));
    ++checked;
  }
  EXPECT_GT(checked, 50);
}

// Ranks of the group of rank 0 along these mesh axes.
std::string group_of(const ProgramCase& made, std::initializer_list<std::string_view> names) {
  const Mesh& mesh = made.program.meshes[MeshId(0)];
  MeshAxes along = 0;
  for (std::string_view name : names)
    if (const int axis = mesh.axis_named(name); axis >= 0) along |= MeshAxes{1} << axis;
  std::vector<std::size_t> ranks;
  for (int position : mesh.group(mesh.position_of(DeviceId(0)), along))
    ranks.push_back(mesh.devices()[static_cast<std::size_t>(position)].index());
  std::sort(ranks.begin(), ranks.end());
  return fmt::format("{}", fmt::join(ranks, " "));
}

TEST(ExpertParallel, ExpertsTakeTheInnermostDevices) {
  const auto experts = [](const char* strategy) { return group_of(compiled(strategy), {"ep", "ecp", "eptp"}); };
  EXPECT_EQ(experts("tp=4,etp=1,dp=2,ep=4"), "0 1 2 3");  // the tp group
  EXPECT_EQ(experts("tp=4,etp=1,dp=2,ep=8"), "0 1 2 3 4 5 6 7");
  EXPECT_EQ(experts("tp=4,etp=2,dp=2,ep=2"), "0 2");  // the tensor-parallel group of an expert is 0 1
  EXPECT_EQ(experts("tp=4,etp=2,dp=2,ep=4"), "0 2 4 6");
  EXPECT_EQ(experts("tp=2,cp=2,dp=2,ep=2"), "0 2");  // cut over all of tp: context parallel ranks come next
  EXPECT_EQ(experts("tp=2,dp=4,ep=2"), "0 2");
  const ProgramCase made = compiled("tp=4,etp=2,dp=2,ep=2");
  EXPECT_EQ(group_of(made, {"etp"}), "0 1");
  EXPECT_EQ(group_of(made, {"tp", "etp", "eptp"}), "0 1 2 3");
  EXPECT_EQ(group_of(made, {"dp"}), "0 4");  // copies of an expert
}

TEST(ExpertParallel, RefusesDegreesThatDoNotDivide) {
  const auto refusal = [](const char* strategy, std::int64_t devices) -> std::string {
    const Result<Parallelism> plan = complete(parse_shorthand(strategy).value(), devices);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_THAT(refusal("tp=4,etp=3", 8), HasSubstr("etp=3 does not divide tp=4"));
  EXPECT_THAT(refusal("tp=4,ep=4", 8), HasSubstr("ep=4 does not divide dp·cp·tp/etp = 2·1·4/4 = 2; choose a divisor"));
  EXPECT_EQ(refusal("tp=4,etp=2,ep=4", 8), "");
  EXPECT_THAT(refusal("fsdp=2,replicate=4,ep=8", 8), HasSubstr("ep=8 does not divide fsdp·cp·tp/etp = 2·1·1/1 = 2"));
  EXPECT_THAT(refusal("tp=4,etp=2,sp=0", 8), HasSubstr("etp=2 below tp=4 needs sp=1"));
}

TEST(ExpertParallel, TokensThatAreNotRoutedWhereTheyLieAreAContradiction) {
  const Parallelism plan = complete(parse_shorthand("tp=2,cp=2,dp=2").value(), 8).value();
  Graph graph = build_model(kMoe, {.batch = plan.graph_batch(), .seq = 16}).value();
  const Strategy strategy = expand(plan, graph);
  const TrainingGraph training = make_training_graph(std::move(graph)).value();
  const Result<ResolvedStrategy> resolved = resolve(strategy, training, parse_cluster("dgx-h100:1").value());
  ASSERT_FALSE(resolved.ok());
  EXPECT_THAT(resolved.error().message,
              HasSubstr("routed in 1 group per sample, but the sequence is cut into 4 parts"));
  EXPECT_THAT(resolved.error().message, HasSubstr("build the model with groups=2x2"));
}

}  // namespace
}  // namespace weft
