// What is wrong with a strategy, from its YAML text: every violation by name, message and line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/models.h"
#include "strategy/resolve.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const TrainingGraph& llama() {
  static const TrainingGraph training =
      make_training_graph(
          build_model("llama3-8b:layers=4,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=256", {.batch = 8, .seq = 16})
              .value())
          .value();
  return training;
}

// The violations on eight devices, or the parser's one error.
std::vector<std::string> faults(const std::string& text) {
  static const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Result<Strategy> strategy = parse_strategy(text, "plan.yaml");
  if (!strategy.ok()) return {strategy.error().message};
  std::vector<std::string> out;
  for (const Violation& violation : validate(*strategy, llama(), cluster, "plan.yaml")) out.push_back(print(violation));
  EXPECT_EQ(resolve(*strategy, llama(), cluster, "plan.yaml").ok(), out.empty());
  return out;
}

TEST(StrategyErrors, NothingIsWrongWithASoundFile) {
  EXPECT_THAT(faults("mesh: {axes: {pp: 2, dp: 2, tp: 2}}\n"
                     "schedule: {name: 1f1b, micro_batches: 4, stages: [3, 1]}\n"
                     "sequence_parallel: {tp: s}\n"
                     "rules:\n"
                     "  - {match: '**', inputs: {dp: 0}, memory: {optimizer: {over: [dp]}}}\n"
                     "  - {match: layers.*.mlp.down, compute: {tp: {axis: k, ratio: [3, 1]}}}\n"),
              IsEmpty());
}

TEST(StrategyErrors, ADegreeThatDoesNotDivide) {
  EXPECT_THAT(faults("mesh: {axes: {dp: 1, tp: 3}}\n"
                     "rules:\n"
                     "  - match: '**'\n"
                     "    inputs: {tp: 0}\n"
                     "  - match: layers.*.mlp.gate_up\n"
                     "    compute: {tp: {axis: n, outer: 2}}\n"
                     "  - match: embed.tokens\n"
                     "    compute: {tp: v}\n"),
              ElementsAre("plan.yaml:7: embed.tokens: the vocabulary of 256 does not divide over tp=3; pad it, "
                          "vocab=384 [does-not-divide]",
                          "plan.yaml:5: layers.0.mlp.gate_up: axis n of 128 does not divide over tp=3 within 2 parts; "
                          "choose tp so that 6 divides 128 [does-not-divide]",
                          "plan.yaml:3: tokens: batch 8 does not divide over 3 parts (tp=3); choose a micro-batch that "
                          "is a multiple [does-not-divide]",
                          "plan.yaml:3: head.labels: batch 8 does not divide over 3 parts (tp=3); choose a micro-batch "
                          "that is a multiple [does-not-divide]"));
}

TEST(StrategyErrors, AMeshThatTheClusterLacks) {
  EXPECT_THAT(faults("mesh:\n  axes: {dp: 4, tp: 4}\n"),
              ElementsAre("plan.yaml:2: dp·tp = 4·4 needs 16 devices, the cluster has 8; change a size [mesh]"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 16777216, tp: 16777216, cp: 16777216}}"),
              ElementsAre(HasSubstr("needs too many devices, the cluster has 8; change a size [mesh]")));
  EXPECT_THAT(faults("mesh:\n  axes: {dp: 2}\n  devices: [7, 8]\n"),
              ElementsAre("plan.yaml:2: device 8: the cluster has 0 to 7 [mesh]"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2}, devices: [7, 7]}"),
              ElementsAre("plan.yaml:1: device 7 given twice [mesh]"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2}, devices: [0..3]}"),
              ElementsAre("plan.yaml:1: dp = 2 needs 2 devices, listed are 4; change a size [mesh]"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2, tp: 2}, order: [tp, pp]}"),
              ElementsAre("plan.yaml:1: order tp, pp: name every axis of the mesh once: dp, tp [mesh]"));
}

TEST(StrategyErrors, AModuleThatTheModelLacks) {
  EXPECT_THAT(faults("mesh: {axes: {dp: 8}}\n"
                     "rules:\n"
                     "  - match: layers.*.atn\n"
                     "    recompute: full\n"),
              ElementsAre("plan.yaml:3: 'layers.*.atn' covers no module, operator or tensor; did you mean "
                          "layers.*.attn, layers.*.mlp or layers.*? [unknown-module]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2}}\n"
                     "schedule:\n"
                     "  stages:\n"
                     "    - [embed, layers.0, layers.1]\n"
                     "    - [layers.2, layers.3, haed]\n"),
              ElementsAre("plan.yaml:5: stage module 'haed' covers nothing; did you mean head? [unknown-module]"));
}

TEST(StrategyErrors, AScheduleWhoseNeedsAreNotMet) {
  EXPECT_THAT(faults("mesh: {axes: {pp: 2}}\nschedule: {name: 1f2b}\n"),
              ElementsAre("plan.yaml:2: schedule '1f2b' unknown; did you mean 1f1b? [schedule]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2}}\nschedule: {name: interleaved, micro_batches: 3, interleave: 2}\n"),
              ElementsAre("plan.yaml:2: schedule interleaved needs micro-batches in multiples of pp=2, not 3; take 4 "
                          "[schedule]"));
  EXPECT_THAT(
      faults("mesh: {axes: {pp: 2}}\nschedule: {name: interleaved, micro_batches: 3}\n"),
      ElementsAre("plan.yaml:2: schedule interleaved needs interleave, model chunks per rank, of 2 or more, not "
                  "1; for 1 take 1f1b [schedule]",
                  HasSubstr("needs micro-batches in multiples of pp=2, not 3; take 4 [schedule]")));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2}}\nschedule: {name: dualpipe-v, micro_batches: 3}\n"),
              ElementsAre("plan.yaml:2: schedule dualpipe-v needs at least 4 micro-batches on pp=2, not 3; enlarge the "
                          "global batch [schedule]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 4}}\nschedule: {name: dualpipe, micro_batches: 9}\n"),
              ElementsAre("plan.yaml:2: schedule dualpipe needs an even number of micro-batches, not 9; take 10 "
                          "[schedule]"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 8}}\nschedule: {name: dualpipe, micro_batches: 4}\n"),
              ElementsAre("plan.yaml:2: schedule dualpipe needs an even number of pipeline ranks, not pp=1 "
                          "[schedule]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2}}\nschedule: {name: 1f1b, interleave: 2, micro_batches: 2}\n"),
              ElementsAre("plan.yaml:2: schedule 1f1b has 1 model chunk per rank, not interleave 2; take interleaved "
                          "[schedule]"));
}

TEST(StrategyErrors, ConfigurationsThatExcludeEachOther) {
  EXPECT_THAT(faults("mesh: {axes: {pp: 2, dp: 2}}\n"
                     "schedule: {micro_batches: 2}\n"
                     "rules:\n"
                     "  - {match: layers.*.mlp, compute: {pp: n}}\n"
                     "  - match: layers.*.attn.out\n"
                     "    compute: {dp: b}\n"
                     "    place: {degrees: {b: 2}, devices: [0, 1]}\n"
                     "  - {match: 'layers.*.mlp.down@grad_*', recompute: full}\n"
                     "  - {match: '**', memory: {gradients: {over: [dp]}}}\n"),
              ElementsAre("plan.yaml:4: pp cuts the model into stages, it splits no operator; write it in schedule "
                          "[contradiction]",
                          "plan.yaml:5: an operator is split over mesh axes or placed on devices, not both "
                          "[contradiction]",
                          "plan.yaml:8: recompute and place belong to forward operators; name them without '@' "
                          "[contradiction]",
                          "plan.yaml:9: memory: weights are spread over no more axes than gradients, gradients no more "
                          "than optimizer state [contradiction]",
                          "plan.yaml:5: layers.2.attn.out: device 0 is not one of stage 1; place it there, or move the "
                          "operator to another stage [contradiction]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2, dp: 2}}\n"
                     "schedule: {micro_batches: 2}\n"
                     "rules:\n"
                     "  - {match: 'layers.*.mlp.down@grad_*', place: {devices: [0]}}\n"),
              ElementsAre("plan.yaml:4: recompute and place belong to forward operators; name them without '@' "
                          "[contradiction]"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 8}}\ncontext: ring\n"),
              ElementsAre("plan.yaml:2: ring attention needs a mesh axis that splits the tokens of the inputs; write "
                          "inputs: {cp: 1} [contradiction]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2, dp: 2}}\n"
                     "schedule:\n"
                     "  micro_batches: 2\n"
                     "  stages:\n"
                     "    - {layers: 2, mesh: {axes: {dp: 2}, devices: [0, 1]}}\n"
                     "    - {layers: 2, mesh: {axes: {dp: 2}, devices: [1, 2]}}\n"),
              ElementsAre("plan.yaml:6: stages 0 and 1 both have device 1 [contradiction]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2, dp: 2}}\n"
                     "schedule:\n"
                     "  micro_batches: 2\n"
                     "  stages:\n"
                     "    - {layers: 2, mesh: {axes: {pp: 2}, devices: [0, 1]}}\n"
                     "    - {layers: 2, mesh: {axes: {dp: 2}}}\n"),
              ElementsAre("plan.yaml:5: stage 0: its mesh cannot have stages [contradiction]",
                          "plan.yaml:6: stage 1: a mesh of its own needs its devices [contradiction]"));
}

TEST(StrategyErrors, MeshesOfStagesThatOneRankCannotPlay) {
  EXPECT_THAT(faults("mesh: {axes: {pp: 2, dp: 2}}\n"
                     "schedule:\n"
                     "  name: interleaved\n"
                     "  interleave: 2\n"
                     "  micro_batches: 2\n"
                     "  stages:\n"
                     "    - {layers: 1, mesh: {axes: {dp: 2}, devices: [0, 1]}}\n"
                     "    - {layers: 1, mesh: {axes: {tp: 2}, devices: [2, 3]}}\n"
                     "    - {layers: 1, mesh: {axes: {tp: 2}, devices: [1, 4]}}\n"
                     "    - 1\n"),
              ElementsAre("plan.yaml:9: stage 2 is played by pipeline rank 0, as stage 0 is, and needs a mesh of the "
                          "same devices [contradiction]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 2, dp: 2}}\n"
                     "schedule:\n"
                     "  name: dualpipe\n"
                     "  micro_batches: 4\n"
                     "  stages:\n"
                     "    - {layers: 2, mesh: {axes: {dp: 2}, devices: [0, 1]}}\n"
                     "    - {layers: 2, mesh: {axes: {tp: 2}, devices: [2, 3]}}\n"),
              ElementsAre("plan.yaml:7: schedule dualpipe holds every stage twice, on the devices of two ranks, so all "
                          "stages need meshes of one shape; stage 1 has another than stage 0 [contradiction]"));
}

TEST(StrategyErrors, RoutesThatCannotStandSideBySide) {
  const auto routes = [](const std::string& name, const std::string& first, const std::string& second) {
    return faults(
        "mesh: {axes: {pp: 2, dp: 1}}\n"
        "schedule:\n"
        "  name: " +
        name +
        "\n"
        "  routes:\n"
        "    - {micro_batches: 2, stages: [" +
        first +
        "]}\n"
        "    - {micro_batches: 1, stages: [" +
        second + "]}\n");
  };
  const std::string all = "{layers: 4, mesh: {axes: {dp: 2}, devices: [0, 1]}}";
  EXPECT_THAT(routes("1f1b", all, "{layers: 4, mesh: {axes: {dp: 1}, devices: [2]}}"), IsEmpty());
  EXPECT_THAT(routes("1f1b", all, "{layers: 3, mesh: {axes: {dp: 1}, devices: [2]}}"),
              ElementsAre("plan.yaml:6: route 1: the only stage has 3 layers, the model 4 [stages]"));
  EXPECT_THAT(routes("1f1b", all, "{layers: 4, mesh: {axes: {dp: 1}, devices: [1]}}"),
              ElementsAre("plan.yaml:6: stages 0 and 1 both have device 1 [contradiction]"));
  EXPECT_THAT(
      routes("1f1b", all, "4"),
      testing::Contains("plan.yaml:6: stage 1: every stage of a route needs a mesh of its own, with its devices "
                        "[contradiction]"));
  EXPECT_THAT(routes("dualpipe", all, "{layers: 4, mesh: {axes: {dp: 2}, devices: [2, 3]}}"),
              testing::Contains(HasSubstr("routes take 1f1b, gpipe, zb-h1 or zb-h2")));
  EXPECT_THAT(routes("1f1b", all + ", " + all, "4"), testing::Contains(HasSubstr("but pp=2 with schedule 1f1b has 2")));
  EXPECT_THAT(faults("mesh: {axes: {dp: 8}}\n"
                     "rules: [{match: layers.0, route: 0, recompute: full}]\n"),
              ElementsAre("plan.yaml:2: route 0: the schedule has no routes [contradiction]"));
}

TEST(StrategyErrors, RatiosOfInputsAndOfStorageThatDoNotFit) {
  // Samples: 8 in 3:2 leaves thirds of a sample; 3:1 four shares, of which a second axis halves each: 8.
  EXPECT_THAT(faults("mesh: {axes: {dp: 2, ep: 2}}\n"
                     "rules: [{match: '**', inputs: {dp: {dim: 0, ratio: [3, 2]}}}]\n"),
              testing::Contains(
                  "plan.yaml:2: tokens: batch 8 does not divide into 5 shares (dp 3:2); the nearest that do: 5 or "
                  "10 [does-not-divide]"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2, ep: 2}}\n"
                     "rules: [{match: '**', inputs: {dp: {dim: 0, ratio: [3, 1]}, ep: 0}}]\n"),
              ElementsAre());
  EXPECT_THAT(faults("mesh: {axes: {dp: 2}}\n"
                     "rules: [{match: '**', inputs: {dp: {dim: 0, ratio: [3, 2, 1]}}}]\n"),
              ElementsAre("plan.yaml:2: inputs: ratio 3:2:1 has 3 shares, but dp=2; write one of at least 1 per device "
                          "[contradiction]"));
  EXPECT_THAT(
      faults("mesh: {axes: {dp: 2, ep: 2}}\n"
             "rules:\n"
             "  - {match: '**', memory: {optimizer: {over: [dp], ratio: {ep: [3, 1]}}}}\n"
             "  - {match: layers.0, memory: {optimizer: {over: [dp], ratio: {dp: [3, 2, 1]}}}}\n"
             "  - {match: layers.1, memory: {optimizer: {over: [dp, ep], ratio: {dp: [3, 1]}}, gradients: {over: [dp], "
             "ratio: {dp: [1, 3]}}}}\n"
             "  - {match: layers.2, memory: {activations: {over: [dp]}}}\n"),
      ElementsAre("plan.yaml:6: memory: activations are saved as their operators split them; split those otherwise "
                  "(sequence_parallel, inputs), recompute, or offload [contradiction]",
                  "plan.yaml:3: memory: optimizer: a ratio for ep, which over does not name; add it there "
                  "[contradiction]",
                  "plan.yaml:4: memory: optimizer: ratio 3:2:1 has 3 shares, but dp=2 [contradiction]",
                  "plan.yaml:5: memory: optimizer: dp in the ratio 3:1, other kinds in another; write one for all "
                  "[contradiction]"));
}

TEST(StrategyErrors, RatiosThatDoNotFit) {
  EXPECT_THAT(
      faults("mesh: {axes: {dp: 2, tp: 2}}\n"
             "rules:\n"
             "  - {match: layers.*.mlp.down, compute: {tp: {axis: k, ratio: [3, 2, 1]}}}\n"
             "  - {match: head.logits, compute: {tp: {axis: n, ratio: [1000, 1]}}}\n"
             "  - {match: layers.*.attn.out, compute: {dp: {axis: k, ratio: [31, 1]}, tp: k}}\n"),
      ElementsAre(
          "plan.yaml:5: layers.0.attn.out: axis k of 32 does not divide over tp=2 within 32 parts; choose tp so "
          "that 64 divides 32 [does-not-divide]",
          "plan.yaml:3: ratio 3:2:1 has 3 shares, but tp=2 [contradiction]",
          "plan.yaml:4: head.logits: axis n of 256 in the ratio 1000:1 leaves a device nothing; take a "
          "flatter ratio [does-not-divide]"));
}

TEST(StrategyErrors, AWindowCutTwice) {
  const TrainingGraph images = make_training_graph(build_model("alexnet", {.batch = 8}).value()).value();
  const Strategy strategy = parse_strategy(
                                "mesh: {axes: {x: 2, y: 2}}\n"
                                "rules:\n"
                                "  - {match: '**', compute: {x: h, y: h}}\n",
                                "plan.yaml")
                                .value();
  std::vector<std::string> out;
  for (const Violation& violation : validate(strategy, images, parse_cluster("dgx-h100:1").value(), "plan.yaml"))
    out.push_back(print(violation));
  EXPECT_THAT(out, testing::Contains(testing::MatchesRegex(
                       "plan.yaml:3: .*: axis h has a window and is cut by one mesh axis only, not by y as well "
                       "\\[contradiction\\]")));
}

TEST(StrategyErrors, StagesThatMissOrRepeatLayers) {
  const std::string head = "mesh: {axes: {pp: 2}}\nschedule:\n  micro_batches: 2\n  stages:\n";
  EXPECT_THAT(faults(head + "    - 2\n    - 1\n"),
              ElementsAre("plan.yaml:5: the stages have 2+1 = 3 layers, the model 4 [stages]"));
  EXPECT_THAT(faults(head + "    - 2\n    - 1\n    - 1\n"),
              ElementsAre("plan.yaml:5: 3 stages are listed, but pp=2 with schedule 1f1b has 2 [stages]"));
  EXPECT_THAT(faults(head + "    - [layers.0]\n    - [layers.3]\n"),
              ElementsAre("plan.yaml:5: no stage has layers.1, layers.2; name every layer once [stages]"));
  EXPECT_THAT(faults(head + "    - [layers.0, layers.1, layers.2]\n    - [layers.2, layers.3]\n"),
              ElementsAre("plan.yaml:6: stage 1: 'layers.2' has layers.2.attn_norm which stage 0 has already "
                          "[contradiction]"));
  EXPECT_THAT(faults(head + "    - [layers.2, layers.3]\n    - [layers.0, layers.1]\n"),
              ElementsAre("plan.yaml:5: layers.2.attn_norm is in stage 0 but reads what stage 1 makes; stages follow "
                          "the data [stages]"));
  EXPECT_THAT(faults(head + "    - [layers.0, layers.1]\n    - {layers: 2}\n"),
              ElementsAre("plan.yaml:6: stage 1: write layers or modules, for all stages alike [contradiction]",
                          "plan.yaml:5: no stage has layers.2, layers.3; name every layer once [stages]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 3}}\nschedule:\n  micro_batches: 3\n  stages:\n    - 2\n    - 0\n    - 2\n"),
              ElementsAre("plan.yaml:6: stage 1 has no operator; give it a layer [stages]"));
  EXPECT_THAT(faults("mesh: {axes: {pp: 3}}\nschedule: {micro_batches: 3}\n"),
              ElementsAre("plan.yaml:2: 4 layers do not divide over 3 stages; give the layers of each, stages=2+1+1 "
                          "[stages]"));
}

TEST(StrategyErrors, AxesThatTheMeshOrTheOperatorLacks) {
  EXPECT_THAT(
      faults("mesh: {axes: {dp: 2, tp: 2}}\n"
             "sequence_parallel: {tq: s, tp: sequence}\n"
             "rules:\n"
             "  - {match: layers.*.mlp, compute: {tpp: n}}\n"
             "  - {match: '**', inputs: {bp: 0}, memory: {optimizer: {over: [fsdp]}}}\n"
             "  - {match: layers.*.mlp.down, compute: {tp: z}}\n"),
      ElementsAre("plan.yaml:4: the mesh has no axis 'tpp', only dp, tp; did you mean tp or dp? [unknown-axis]",
                  "plan.yaml:5: the mesh has no axis 'bp', only dp, tp; did you mean dp or tp? [unknown-axis]",
                  "plan.yaml:5: the mesh has no axis 'fsdp', only dp, tp; did you mean dp? [unknown-axis]",
                  "plan.yaml:2: no operator of the model has an axis 'sequence' to scatter sums along [unknown-axis]",
                  "plan.yaml:2: the mesh has no axis 'tq', only dp, tp; did you mean tp or dp? [unknown-axis]",
                  "plan.yaml:6: no operator of 'layers.*.mlp.down' has an axis 'z' to split; they have b, k, n, "
                  "s [unknown-axis]"));
}

TEST(StrategyErrors, PlacementsThatDoNotFit) {
  EXPECT_THAT(
      faults("mesh: {axes: {dp: 4}}\n"
             "rules:\n"
             "  - {match: embed.tokens, place: {degrees: {b: 2}, devices: [7, 8]}}\n"
             "  - {match: head.logits, place: {degrees: {z: 2, b: 3}, devices: [0..5]}}\n"
             "  - {match: head.norm, place: {degrees: {b: 2}, devices: [0, 1, 2]}}\n"
             "  - {match: layers.0.attn.out, place: {degrees: {b: 2}, devices: [1, 1]}}\n"),
      ElementsAre("plan.yaml:3: place: device 8: the cluster has 0 to 7 [mesh]", HasSubstr("plan.yaml:6: place: "),
                  HasSubstr("plan.yaml:5: place: "), "plan.yaml:4: head.logits: no axis 'z' to split [unknown-axis]",
                  "plan.yaml:4: head.logits: axis b of 8 does not divide by 3 [does-not-divide]"));
}

TEST(StrategyErrors, NumbersThatAreNone) {
  EXPECT_THAT(faults("mesh:\n  axes:\n    dp: .nan\n"), ElementsAre("plan.yaml:3: dp '.nan': not a whole number"));
  EXPECT_THAT(faults("mesh: {axes: {dp: -2}}"), ElementsAre("plan.yaml:1: dp '-2': from 1 to 16777216"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2.5}}"), ElementsAre(HasSubstr("plan.yaml:1: dp '2.5': ")));
  EXPECT_THAT(faults("mesh: {axes: {dp: 8}}\nschedule:\n  micro_batches: inf\n"),
              ElementsAre("plan.yaml:3: micro_batches 'inf': not a whole number"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 8}}\nschedule:\n  micro_batches: 0\n"),
              ElementsAre("plan.yaml:3: micro_batches '0': from 1 to 16777216"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2}}\nrules:\n  - match: head\n    compute: {dp: {axis: n, ratio: [3, -1]}}\n"),
              ElementsAre("plan.yaml:4: share '-1': from 1 to 1000000"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2}}\nrules:\n  - match: head\n    inputs: {dp: 99}\n"),
              ElementsAre("plan.yaml:4: dimension '99': from -1 to 63"));
  EXPECT_THAT(faults("mesh: {axes: {dp: 2}, devices: [-1, 0]}\n"),
              ElementsAre("plan.yaml:1: devices: write numbers and ranges, [0, 1, 4..7]"));
}

TEST(StrategyErrors, AllAtOnce) {
  // Lines 1, 2, 4, 5 and 6 are each at fault.
  EXPECT_THAT(faults("mesh: {axes: {dp: 4, tp: 4}}\n"
                     "schedule: {name: zb, micro_batches: 1}\n"
                     "rules:\n"
                     "  - {match: lairs, recompute: full}\n"
                     "  - {match: '**', inputs: {cp: 1}}\n"
                     "  - {match: layers.*.attn.core, compute: {tp: g}}\n"),
              ElementsAre(HasSubstr("plan.yaml:2: schedule 'zb' unknown; did you mean zb-"),
                          HasSubstr("plan.yaml:1: dp·tp = 4·4 needs 16 devices"),
                          HasSubstr("plan.yaml:4: 'lairs' covers no module, operator or tensor"),
                          HasSubstr("plan.yaml:5: the mesh has no axis 'cp', only dp, tp"),
                          HasSubstr("plan.yaml:6: layers.0.attn.core: 2 key/value heads do not divide over tp=4")));
}

}  // namespace
}  // namespace weft
