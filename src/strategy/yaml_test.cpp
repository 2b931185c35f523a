#include "strategy/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"

namespace weft {
namespace {

const char* const kText = R"(mesh:
  axes: {pp: 2, dp: 2, tp: 4}
  order: [dp, tp, pp]
  devices: [0..7, 9, 8, 10..15]
schedule:
  name: interleaved
  micro_batches: 16
  interleave: 2
  stages: [17, {layers: 15, mesh: {axes: {dp: 8}}}, [layers.3*, head], 0]
sequence_parallel: {tp: s}
context: ring
rules:
  - match: "**"
    inputs: {dp: 0}
    memory: {optimizer: {over: [dp], offload: cpu}}
    recompute: selective
  - match: layers.*.mlp.gate_up
    compute: {tp: {axis: n, outer: 2, ratio: [3, 2, 2, 1]}}
  - match: layers.*.mlp_norm
    compute: {dp: b, tp: none}
  - match: embed.tokens
    place: {degrees: {b: 2}, devices: [0, 1]}
)";

std::string message(std::string_view text) {
  const Result<Strategy> parsed = parse_strategy(text, "plan.yaml");
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(StrategyYaml, IsWrittenAsItIsRead) {
  const Result<Strategy> parsed = parse_strategy(kText, "plan.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(to_yaml(*parsed), kText);
  EXPECT_EQ(parsed->mesh.devices.size(), 16u);
  EXPECT_EQ(parsed->rules[1].compute.at("tp"), (Split{"n", 2, {3, 2, 2, 1}}));
  EXPECT_EQ(parsed->rules[1].line.number, 17);
  EXPECT_EQ(parsed->schedule.line.number, 6);
  EXPECT_TRUE(parsed->rules[2].compute.at("tp").axis.empty());
}
TEST(StrategyYaml, RoutesHaveStagesAndMicroBatchesOfTheirOwn) {
  const char* const text = R"(mesh:
  axes: {pp: 3, dp: 1}
schedule:
  name: 1f1b
  routes:
    - {micro_batches: 5, stages: [{layers: 3, mesh: {axes: {dp: 2}, devices: [0, 1]}}, {layers: 1, mesh: {axes: {dp: 2}, devices: [2, 3]}}]}
    - {micro_batches: 2, stages: [{layers: 4, mesh: {axes: {tp: 2}, devices: [4, 5]}}]}
rules:
  - match: layers.*
    route: 1
    recompute: full
)";
  const Result<Strategy> parsed = parse_strategy(text, "plan.yaml");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(to_yaml(*parsed), text);
  EXPECT_EQ(parsed->schedule.micro_batches, 7);  // 5 + 2
  EXPECT_EQ(parsed->schedule.stages.size(), 3u);
  EXPECT_EQ(parsed->schedule.routes, (std::vector<RouteConfig>{{2, 5, {}}, {1, 2, {}}}));
  EXPECT_EQ(parsed->rules[0].route, 1);
}

TEST(StrategyYaml, NamesFileAndLineOfWhatIsWrong) {
  EXPECT_EQ(message("mesh: {axes: {pp: 2}}\nschedule: {micro_batches: 4, routes: [{micro_batches: 4, stages: [4]}]}"),
            "plan.yaml:2: micro_batches: each route says its own, since there are routes; leave it out");
  EXPECT_EQ(message("mesh: {axes: {pp: 2}}\nschedule:\n  routes:\n    - {stages: [4]}"),
            "plan.yaml:4: route: 'micro_batches' missing");
  EXPECT_EQ(message("mesh: {axes: {pp: 2}}\nschedule:\n  routes:\n    - {micro_batches: 1, stages: []}"),
            "plan.yaml:4: stages: a route has at least one");
  EXPECT_EQ(message("mesh: {axes: {pp: 2}}\nschedule: {routes: []}"), "plan.yaml:2: routes: at least one");
  EXPECT_EQ(message(""), "plan.yaml: empty; write at least 'mesh: {axes: {dp: 8}}'");
  EXPECT_EQ(message("rules: []"), "plan.yaml:1: strategy: 'mesh' missing");
  EXPECT_EQ(message("mesh: {axes: {dp: 8}}\nrule: []"),
            "plan.yaml:2: strategy: unknown key 'rule'; did you mean rules?");
  EXPECT_EQ(message("mesh:\n  axes: {dp: 0}"), "plan.yaml:2: dp '0': from 1 to 16777216");
  EXPECT_EQ(message("mesh: {axes: {dp: 8}}\nrules:\n  - compute: {dp: b}"), "plan.yaml:3: rule: 'match' missing");
  EXPECT_EQ(message("mesh: {axes: {dp: 8}}\nrules:\n  - match: a\n    recompute: some"),
            "plan.yaml:4: recompute: write none, selective, full or op");
  EXPECT_EQ(message("mesh: {axes: {dp: 8}, devices: [0..x]}"),
            "plan.yaml:1: devices: write numbers and ranges, [0, 1, 4..7]");
  EXPECT_EQ(message("mesh: {axes: {dp: 8}}\nrules:\n  - match: a\n    memory: {weights: {offload: disk}}"),
            "plan.yaml:4: offload: write cpu or none");
  EXPECT_THAT(message("mesh: [\n"), testing::HasSubstr("plan.yaml:2: not YAML: "));
}
TEST(StrategyYaml, BoundsWhatAliasesSpellOut) {
  std::string text = "mesh: {axes: {dp: 8}, devices: &d [0..1000000]}\nrules:\n";
  for (int i = 0; i < 100; ++i) text += "  - {match: a, place: {devices: *d}}\n";
  EXPECT_THAT(message(text), testing::HasSubstr("more than 4194304 entries in all"));
}

std::string random_name() {
  return *rc::gen::nonEmpty(rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::inRange<char>('a', 'z'), rc::gen::inRange<char>(0x21, 0x7f))));
}
std::vector<std::string> random_names() {
  return *rc::gen::container<std::vector<std::string>>(rc::gen::exec(random_name));
}
MeshDeclaration random_mesh() {
  MeshDeclaration mesh;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i)
    mesh.axes.push_back({fmt::format("{}{}", i, random_name()), *rc::gen::inRange(1, 100)});
  mesh.order = random_names();
  mesh.devices = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 9));
  return mesh;
}
std::vector<std::int64_t> random_ratio() {
  return *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 9));
}
Rule random_rule() {
  Rule rule;
  rule.match = random_name();
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
    Split split;
    if (*rc::gen::inRange(0, 4) > 0) {
      split.axis = random_name();
      split.outer = *rc::gen::inRange(1, 4);
      split.ratio = random_ratio();
    }
    rule.compute[random_name()] = split;
    InputSplit input{*rc::gen::inRange(-1, 4), {}};
    if (input.dim >= 0) input.ratio = random_ratio();
    rule.inputs[random_name()] = input;
  }
  for (Storage& storage : rule.memory) {
    if (*rc::gen::arbitrary<bool>()) storage.over = random_names();
    if (*rc::gen::arbitrary<bool>()) storage.offload = *rc::gen::arbitrary<bool>();
    if (*rc::gen::arbitrary<bool>()) storage.ratio[random_name()] = random_ratio();
  }
  if (*rc::gen::arbitrary<bool>()) rule.recompute = static_cast<Recompute>(*rc::gen::inRange(0, 4));
  if (*rc::gen::arbitrary<bool>()) {
    const MeshDeclaration mesh = random_mesh();
    rule.place = OpPlacement{mesh.axes, mesh.devices};
  }
  return rule;
}
RC_GTEST_PROP(StrategyYamlLaws, ParseOfPrintIsIdentity, ()) {
  Strategy made;
  made.mesh = random_mesh();
  made.schedule.name = random_name();
  made.schedule.micro_batches = *rc::gen::inRange(1, 1000);
  made.schedule.interleave = *rc::gen::inRange(1, 5);
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
    Stage stage;
    if (*rc::gen::arbitrary<bool>()) stage.layers = *rc::gen::inRange(0, 40);
    stage.modules = random_names();
    if (*rc::gen::arbitrary<bool>()) stage.mesh = random_mesh();
    made.schedule.stages.push_back(stage);
  }
  if (*rc::gen::arbitrary<bool>()) made.reduce_onto[random_name()] = random_name();
  made.context = static_cast<ContextMode>(*rc::gen::inRange(0, 3));
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) made.rules.push_back(random_rule());
  // An axis named `none` reads back as no axis.
  const Result<Strategy> again = parse_strategy(to_yaml(made), "again.yaml");
  if (!again.ok()) RC_FAIL(again.error().message + "\n" + to_yaml(made));
  RC_ASSERT(*again == made);
}
TEST(StrategyYamlLaws, MangledFilesEndInAStrategyOrAnError) {
  static const std::string pieces[] = {"[",  "]", "{", "}",  ":",    "-",  "&a ", "*a",        "nan", "-1",
                                       "\"", "'", "|", "\n", "\xff", "..", "\t",  "!!binary ", "? ",  "99999999999"};
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    std::string text = kText;
    for (std::int64_t n = rng.between(1, 5); n > 0; --n) {
      const std::size_t at = rng.below(text.size());
      text.replace(at, rng.below(12), pieces[rng.below(std::size(pieces))]);
    }
    const Result<Strategy> parsed = parse_strategy(text, "mangled.yaml");
    if (!parsed.ok()) continue;
    const Result<Strategy> again = parse_strategy(to_yaml(*parsed), "again.yaml");
    ASSERT_TRUE(again.ok()) << again.error().message << "\n" << to_yaml(*parsed);
    EXPECT_EQ(*again, *parsed);
  }
}

}  // namespace
}  // namespace weft
