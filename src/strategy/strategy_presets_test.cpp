// Presets on small models: the split axis and the stage of every operator, and what is recomputed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/models.h"
#include "strategy/presets.h"
#include "strategy/resolve.h"
#include "strategy/shorthand.h"
#include "strategy/structure.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const kLlama = "llama3-8b:layers=4,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=256";
const char* const kGpt = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=256";
const char* const kMixtral = "mixtral-8x7b:layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=256,experts=4";

Graph model(const std::string& spec, std::int64_t batch = 8) {
  return build_model(spec, {.batch = batch, .seq = 16}).value();
}
TrainingGraph training_of(Graph graph) { return make_training_graph(std::move(graph)).value(); }

// "layers.*.attn.qkv tp=n", with `outer` after a slash: one line per rule.
std::vector<std::string> lines(const std::vector<Rule>& rules) {
  std::vector<std::string> out;
  for (const Rule& rule : rules) {
    std::string line = rule.match;
    for (const auto& [mesh_axis, split] : rule.compute) {
      line += fmt::format(" {}={}", mesh_axis, split.axis.empty() ? "-" : split.axis);
      if (split.outer > 1) line += fmt::format("/{}", split.outer);
    }
    for (const auto& [mesh_axis, split] : rule.inputs) line += fmt::format(" {}:{}", mesh_axis, split.dim);
    out.push_back(std::move(line));
  }
  return out;
}

TEST(TensorParallel, IsColumnsRowsVocabularyAndHeadOfLlama) {
  EXPECT_THAT(lines(tensor_parallel(model(kLlama), "tp")),
              ElementsAre("embed.tokens tp=v", "layers.*.attn.qkv tp=n", "layers.*.attn.out tp=k",
                          "layers.*.mlp.gate_up tp=n/2", "layers.*.mlp.down tp=k", "head.logits tp=n"));
}
TEST(TensorParallel, PassesBiasesAndDropoutOfGpt) {
  EXPECT_THAT(lines(tensor_parallel(model(kGpt), "tp")),
              ElementsAre("embed.tokens tp=v", "layers.*.attn.qkv tp=n", "layers.*.attn.out tp=k",
                          "layers.*.mlp.up tp=n", "layers.*.mlp.down tp=k", "head.logits tp=n"));
}
TEST(TensorParallel, LeavesTheRouterAndSplitsInsideExperts) {
  EXPECT_THAT(lines(tensor_parallel(model(kMixtral), "tp")),
              ElementsAre("embed.tokens tp=v", "layers.*.attn.qkv tp=n", "layers.*.attn.out tp=k",
                          "layers.*.moe.experts.gate_up tp=n/2", "layers.*.moe.experts.down tp=k", "head.logits tp=n"));
}
TEST(TensorParallel, LeavesLatentProjectionsOfDeepSeekWhole) {
  // q_a and kv_a end in a norm over all their features; q_b and kv_b carry heads.
  const std::vector<std::string> rules =
      lines(tensor_parallel(build_model("deepseek-v3:layers=4", {.batch = 1, .seq = 16}).value(), "tp"));
  EXPECT_THAT(rules,
              testing::IsSupersetOf({"layers.*.attn.q_b tp=n", "layers.*.attn.kv_b tp=n", "layers.*.attn.out tp=k",
                                     "layers.*.mlp.gate_up tp=n/2", "layers.*.mlp.down tp=k"}));
  for (const std::string& rule : rules) {
    EXPECT_THAT(rule, testing::Not(HasSubstr("_a "))) << rule;
    EXPECT_THAT(rule, testing::Not(HasSubstr("router"))) << rule;
  }
}
TEST(TensorParallel, IsFoundInEncodersAndDecodersAlike) {
  EXPECT_THAT(
      lines(tensor_parallel(model("t5-small:layers=1"), "tp")),
      testing::IsSupersetOf({"encoder.layers.*.attn.qkv tp=n", "encoder.layers.*.attn.out tp=k",
                             "decoder.layers.*.cross.q tp=n", "decoder.layers.*.cross.kv tp=n",
                             "decoder.layers.*.cross.out tp=k", "decoder.layers.*.mlp.down tp=k", "head.logits tp=n"}));
}
TEST(TensorParallel, IsFoundInAnOnnxFile) {
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  for (const char* name : {"gpt2.onnx", "bert_base.onnx"}) {
    const Result<Graph> graph = build_model(fmt::format("{}/tests/onnx/{}", source, name));
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    int columns = 0, rows = 0;
    for (const TensorParallelOp& op : find_tensor_parallel(*graph, find_layers(*graph)).ops) {
      columns += op.role == TensorRole::Column ? 1 : 0;
      rows += op.role == TensorRole::Row ? 1 : 0;
    }
    // Twelve layers, an attention and an MLP each.
    EXPECT_EQ(rows, 24) << name;
    EXPECT_GE(columns, 24) << name;
  }
}

TEST(DataParallel, SplitsSamplesAndKeepsOtherInputsWhole) {
  const std::vector<std::string> axes = {"dp", "ep"};
  EXPECT_THAT(lines(data_parallel(model(kLlama), axes)), ElementsAre("** dp:0 ep:0"));
  EXPECT_THAT(
      lines(data_parallel(model("t5-small:layers=1"), axes)),
      ElementsAre("** dp:0 ep:0", "decoder.relative_buckets dp:-1 ep:-1", "encoder.relative_buckets dp:-1 ep:-1"));
}
TEST(ContextParallel, TradesTokensForHeadsInAllToAll) {
  EXPECT_THAT(lines(context_parallel(model(kLlama), "cp", ContextMode::Gather)), ElementsAre("** cp:1"));
  EXPECT_THAT(lines(context_parallel(model(kLlama), "cp", ContextMode::AllToAll)),
              ElementsAre("** cp:1", "layers.*.attn.core cp=g", "layers.*.attn.out cp=s"));
}
TEST(ExpertParallel, SplitsExperts) {
  const std::vector<std::string> axes = {"ep"};
  EXPECT_THAT(lines(expert_parallel(model(kMixtral), axes)),
              ElementsAre("layers.*.moe.experts.gate_up ep=e", "layers.*.moe.experts.down ep=e"));
}
TEST(HybridTables, SplitsTablesByColumnsAndTheRestBySamples) {
  const Graph graph = build_model("dlrm", {.batch = 8}).value();
  EXPECT_THAT(lines(hybrid_tables(graph, "dp", 4)),
              ElementsAre("** dp:0", "tables.*.ids dp:-1", "tables.*.lookup dp=d"));
}
TEST(Spatial, SplitsHeightAndWidthOfTheImage) {
  EXPECT_THAT(lines(spatial(build_model("resnet50", {.batch = 2}).value(), "h", "w")), ElementsAre("image h:2 w:3"));
}
TEST(PlacedDataParallel, GivesEveryOperatorItsDevices) {
  const Graph graph = build_model("alexnet", {.batch = 4}).value();
  const std::vector<std::int64_t> devices = {0, 2};
  const std::vector<Rule> rules = placed_data_parallel(graph, devices);
  ASSERT_EQ(rules.size(), graph.ops().size());
  EXPECT_EQ(rules.front().place, (OpPlacement{{{"b", 2}}, {0, 2}}));
  Strategy strategy;
  strategy.mesh.axes = {{"dp", 4}};
  strategy.rules = rules;
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Result<ResolvedStrategy> resolved = resolve(strategy, training_of(graph), cluster);
  ASSERT_TRUE(resolved.ok()) << resolved.error().message;
  EXPECT_EQ(resolved->placed.size(), rules.size());
  EXPECT_LE(resolved->placements.size(), 4u);
}

ResolvedStrategy resolved(const std::string& spec, const std::string& shorthand, const char* cluster_name,
                          std::int64_t global_batch = 32) {
  const Cluster cluster = parse_cluster(cluster_name).value();
  const Parallelism plan =
      complete(parse_shorthand(shorthand).value(), cluster.device_count(), {.global_batch = global_batch}).value();
  Graph graph = build_model(spec, {.batch = plan.graph_batch(), .seq = 16}).value();
  const Strategy strategy = expand(plan, graph);
  Result<ResolvedStrategy> result = resolve(strategy, training_of(std::move(graph)), cluster);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(result).value();
}
TEST(Resolve, CutsLayersIntoStagesWithEmbeddingFirstAndHeadLast) {
  const ResolvedStrategy plan = resolved(kLlama, "tp=2,pp=2,dp=2,zero=1", "dgx-h100:1");
  const TrainingGraph training = training_of(model(kLlama));
  std::map<std::string, int> stage;
  for (OpId op : training.graph.ops().ids()) stage[training.graph.name(op)] = plan.routes.front().stage[op];
  EXPECT_EQ(stage["embed.tokens"], 0);
  EXPECT_EQ(stage["layers.1.mlp_add"], 0);
  EXPECT_EQ(stage["layers.2.attn_norm"], 1);
  EXPECT_EQ(stage["head.norm"], 1);
  EXPECT_EQ(stage["head.loss"], 1);
  EXPECT_EQ(stage["layers.2.attn.qkv@grad_weight"], -1);
  // Ranks are numbered tp, dp, pp: stage 1 has devices 4 to 7, dp major.
  ASSERT_EQ(plan.ranks().size(), 2u);
  EXPECT_EQ(plan.ranks()[1].mesh.devices(),
            (std::vector<DeviceId>{DeviceId(4), DeviceId(5), DeviceId(6), DeviceId(7)}));
  EXPECT_EQ(plan.ranks()[1].mesh.axes(), (std::vector<MeshAxis>{{"dp", 2}, {"tp", 2}}));
  EXPECT_EQ(plan.choices.front().storage.zero(), 1);
  EXPECT_EQ(plan.choices.front().storage.axes_of(Stored::Optimizer), 0b01u);
  EXPECT_EQ(plan.schedule, (ScheduleChoice{"1f1b", 2, 1, 16}));
}
TEST(Resolve, TakesRankOrderFromTheStrategy) {
  // dp innermost: neighbours in dp are neighbouring devices; position is dp·2 + tp, rank tp·2 + dp.
  const ResolvedStrategy plan = resolved(kLlama, "tp=2,dp=4,order=dp-tp", "dgx-h100:1");
  EXPECT_EQ(plan.ranks()[0].mesh.devices(),
            (std::vector<DeviceId>{DeviceId(0), DeviceId(4), DeviceId(1), DeviceId(5), DeviceId(2), DeviceId(6),
                                   DeviceId(3), DeviceId(7)}));
}
TEST(Resolve, RecomputesLayersCoresOrElementwiseOperators) {
  const TrainingGraph training = training_of(model(kLlama));
  const auto names_of = [](const TrainingGraph& of, const ResolvedStrategy& plan) {
    std::map<int, std::vector<std::string>> regions;
    for (OpId op : of.graph.ops().ids())
      if (plan.routes.front().recompute.again(op))
        regions[plan.routes.front().recompute.region[op]].push_back(of.graph.name(op));
    return regions;
  };
  const auto names_in = [&](const char* mode) {
    return names_of(training, resolved(kLlama, fmt::format("dp=8,recompute={}", mode), "dgx-h100:1"));
  };
  EXPECT_THAT(names_in("none"), IsEmpty());
  const auto full = names_in("full"), selective = names_in("selective"), op = names_in("op");
  ASSERT_EQ(full.size(), 4u);  // layers
  EXPECT_EQ(full.at(1).front(), "layers.1.attn_norm");
  EXPECT_EQ(full.at(1).back(), "layers.1.mlp_add");
  ASSERT_EQ(selective.size(), 4u);
  EXPECT_THAT(selective.at(2), ElementsAre("layers.2.attn.core"));
  ASSERT_EQ(op.size(), 4u);
  EXPECT_THAT(op.at(0), ElementsAre("layers.0.attn_norm", "layers.0.attn.split", "layers.0.attn.q_rotary",
                                    "layers.0.attn.k_rotary", "layers.0.attn_add", "layers.0.mlp_norm",
                                    "layers.0.mlp.act"));  // backward does not read the sum
  // With the rest of its layer: alone it would keep what it makes.
  const auto both = names_in("op,full=layers.*.mlp.gate_up");
  ASSERT_EQ(both.size(), 4u);
  EXPECT_THAT(both.at(0), ElementsAre("layers.0.attn_norm", "layers.0.attn.split", "layers.0.attn.q_rotary",
                                      "layers.0.attn.k_rotary", "layers.0.attn_add", "layers.0.mlp_norm",
                                      "layers.0.mlp.gate_up", "layers.0.mlp.act"));
  // In the first layers of every stage, as many of each as is said.
  const auto first = names_in("op:2");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first.at(1), op.at(1));
  const auto staged =
      names_of(training, resolved(kLlama, "pp=2,dp=4,recompute=full:1+0,full=layers.*.mlp:2", "dgx-h100:1"));
  ASSERT_EQ(staged.size(), 5u);  // layer 0; below it, and in layers 1 to 3, the MLP
  EXPECT_EQ(staged.at(0).front(), "layers.0.attn_norm");
  EXPECT_THAT(staged.at(4), ElementsAre("layers.3.mlp.gate_up", "layers.3.mlp.act", "layers.3.mlp.down"));
  // Tokens go to their experts and back once.
  const std::string routed = std::string(kMixtral) + ",weigh_rows=1";
  const auto of_experts =
      names_of(training_of(model(routed)), resolved(routed.c_str(), "dp=8,recompute=op", "dgx-h100:1"));
  ASSERT_EQ(of_experts.size(), 2u);
  for (const std::string& name : of_experts.at(0))
    EXPECT_THAT(name, Not(AnyOf(HasSubstr("dispatch"), HasSubstr("combine"))));
}
TEST(Resolve, FindsUnfusedCores) {
  const Graph graph = model("t5-small:layers=1");
  const IdVec<OpId, int> cores = find_attention_cores(graph);
  std::vector<std::string> first;
  for (OpId op : graph.ops().ids())
    if (cores[op] == 0) first.push_back(graph.name(op).substr(std::string("encoder.layers.0.attn.").size()));
  EXPECT_THAT(first, ElementsAre("scores", "bias", "softmax", "dropout", "context"));
}

TEST(Resolve, SharesUnevenlyInTheRatioGiven) {
  Strategy strategy;
  strategy.mesh.axes = {{"tp", 3}};
  Rule rule;
  rule.match = "layers.*.mlp.down";
  rule.compute["tp"] = {"k", 1, {3, 2, 1}};
  strategy.rules = {rule};
  const TrainingGraph training = training_of(model(kLlama));
  const Result<ResolvedStrategy> plan = resolve(strategy, training, parse_cluster("dgx-h100:1").value());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto& choices = plan->choices[0].sharding.ops[0];
  ASSERT_EQ(choices.size(), 4u);
  // 64 in 3:2:1 is 32 + 21⅓ + 10⅔; the element left over goes to the largest remainder.
  EXPECT_EQ(choices.begin()->second.shares, (std::vector<std::int64_t>{32, 21, 11}));
}
TEST(Resolve, GivesStagesMeshesOfTheirOwn) {
  Strategy strategy;
  strategy.mesh.axes = {{"pp", 2}, {"dp", 2}};
  Stage first{.layers = 3}, second{.layers = 1};
  first.mesh = MeshDeclaration{.axes = {{"dp", 2}, {"tp", 2}}, .devices = {0, 1, 2, 3}};
  second.mesh = MeshDeclaration{.axes = {{"dp", 2}}, .devices = {6, 7}};
  strategy.schedule.stages = {first, second};
  strategy.rules = tensor_parallel(model(kLlama), "tp");
  const TrainingGraph training = training_of(model(kLlama));
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Result<ResolvedStrategy> plan = resolve(strategy, training, cluster);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->ranks()[0].mesh.size(), 4);
  EXPECT_EQ(plan->ranks()[1].mesh.devices(), (std::vector<DeviceId>{DeviceId(6), DeviceId(7)}));
  EXPECT_NE(plan->ranks()[0].choices, plan->ranks()[1].choices);
  EXPECT_FALSE(plan->choices[plan->ranks()[0].choices].sharding.ops[1].empty());
  strategy.schedule.stages[1].mesh->devices = {3, 4};
  EXPECT_THAT(resolve(strategy, training, cluster).error().message, HasSubstr("stages 0 and 1 both have device 3"));
}
TEST(Resolve, StoresParametersAsTheirOwnRuleSays) {
  Strategy strategy;
  strategy.mesh.axes = {{"replicate", 2}, {"fsdp", 4}};
  const std::vector<std::string> fsdp = {"fsdp"};
  strategy.rules = zero(3, fsdp);
  Rule embedding;
  embedding.match = "embed";
  embedding.stored(Stored::Weights).over = std::vector<std::string>{};
  embedding.stored(Stored::Optimizer).offload = true;
  strategy.rules.push_back(embedding);
  const TrainingGraph training = training_of(model(kLlama));
  const Result<ResolvedStrategy> plan = resolve(strategy, training, parse_cluster("dgx-h100:1").value());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const MeshChoices& choices = plan->choices[0];
  EXPECT_EQ(choices.storage.zero(), 3);
  EXPECT_EQ(choices.storage.axes_of(Stored::Weights), 0b10u);  // hybrid: not over replicate
  ASSERT_EQ(choices.parameters.size(), 1u);
  const auto& [parameter, storage] = *choices.parameters.begin();
  EXPECT_EQ(training.graph.name(parameter), "embed.tokens.weight");
  EXPECT_EQ(storage.zero(), 2);
  EXPECT_TRUE(storage.offload[static_cast<std::size_t>(Stored::Optimizer)]);
}
// Whole experts lie over the innermost devices: what etp leaves of tp, then cp, then dp.
TEST(Expand, RefinesTheAxesOfOtherDegreesForExperts) {
  const Graph graph = model(kMixtral);
  const auto axes = [&](const char* shorthand, std::int64_t devices) {
    std::string text;
    for (const MeshAxis& axis : expand(complete(parse_shorthand(shorthand).value(), devices).value(), graph).mesh.axes)
      text += fmt::format("{}{} ", axis.name, axis.size);
    return text;
  };
  EXPECT_EQ(axes("ep=4,tp=2", 16), "dp2 ep4 tp2 ");
  EXPECT_EQ(axes("dp=2,cp=4,ep=4,tp=1", 8), "dp2 ecp4 ");
  EXPECT_EQ(axes("dp=2,cp=2,ep=4,tp=1", 4), "ep2 ecp2 ");
  EXPECT_EQ(axes("tp=8,etp=2,ep=2", 16), "dp2 tp2 etp2 eptp2 ");
  EXPECT_EQ(axes("tp=8,etp=1,ep=8", 16), "dp2 eptp8 ");
  EXPECT_EQ(axes("tp=2,etp=1,cp=2,ep=8", 16), "dp2 ep2 ecp2 eptp2 ");
  EXPECT_EQ(axes("tp=4,etp=4,ep=2", 8), "ep2 tp4 ");  // as without etp
  EXPECT_EQ(axes("fsdp=4,replicate=2,pp=2", 16), "pp2 replicate2 fsdp4 ");
  EXPECT_EQ(axes("tp=2,cp=2,cp_mode=a2a", 8), "dp2 cp2 tp2 ");
}

TEST(Expand, NumbersRanksInTheOrderGiven) {
  const Graph graph = model(kMixtral);
  const auto order = [&](const char* shorthand, std::int64_t devices) {
    return fmt::format(
        "{}", fmt::join(expand(complete(parse_shorthand(shorthand).value(), devices).value(), graph).mesh.order, "-"));
  };
  EXPECT_EQ(order("tp=2,pp=2", 16), "");
  EXPECT_EQ(order("tp=2,pp=2,order=tp-cp-ep-dp-pp", 16), "");  // the usual one
  EXPECT_EQ(order("tp=2,pp=2,order=dp-tp-pp", 16), "dp-tp-pp");
  EXPECT_EQ(order("tp=2,pp=2,ep=2,order=dp-tp-pp", 16), "ep-dp-tp-pp");
  EXPECT_EQ(order("tp=2,pp=2,fsdp=2,replicate=2,order=dp-tp-pp", 16), "fsdp-replicate-tp-pp");
  EXPECT_EQ(order("tp=8,etp=2,ep=2", 16), "etp-eptp-tp-dp");  // an expert's own group first
  EXPECT_EQ(order("tp=2,cp=2,cp_mode=a2a", 16), "");
}
TEST(Expand, SplitsTablesOverOneAxisAndSamplesOverAll) {
  const Graph graph = build_model("dlrm", {.batch = 16}).value();
  const Strategy strategy = expand(complete(parse_shorthand("fsdp=2,replicate=4,tables=1").value(), 8).value(), graph);
  EXPECT_THAT(lines(strategy.rules),
              ElementsAre("** fsdp:0 replicate:0", "tables.*.ids replicate:-1", "tables.*.lookup replicate=d"));
}

std::vector<std::string> violations(const std::string& spec, const Strategy& strategy, std::int64_t batch = 8) {
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  std::vector<std::string> out;
  for (const Violation& violation : validate(strategy, training_of(model(spec, batch)), cluster, "plan.yaml"))
    out.push_back(print(violation));
  return out;
}
Strategy expanded(const std::string& spec, const std::string& shorthand) {
  const Parallelism plan = complete(parse_shorthand(shorthand).value(), 8, {}).value();
  return expand(plan, model(spec));
}
TEST(Validate, FindsNothingWrongWithPresets) {
  for (const char* shorthand : {"dp=8", "tp=2", "tp=2,pp=2,vpp=2", "zero=3", "fsdp=4,replicate=2", "cp=2,cp_mode=a2a",
                                "tp=2,cp=2,cp_mode=ring,recompute=full,offload=optimizer"})
    EXPECT_THAT(violations(kLlama, expanded(kLlama, shorthand)), IsEmpty()) << shorthand;
  // Tokens are routed in groups, one for every part of the sequence.
  for (const auto& [shorthand, groups] :
       {std::pair("ep=4,tp=2,zero=1", "2"), std::pair("dp=2,cp=4,ep=4,pp=1", "4"), std::pair("tp=2,sp=0,ep=4", "1"),
        std::pair("tp=4,etp=2,cp=2,ep=4,zero=1", "2x4"), std::pair("tp=4,etp=1,ep=4,zero=3", "4")}) {
    const std::string routed = std::string(kMixtral) + ",kv_heads=4,groups=" + groups;
    EXPECT_THAT(violations(routed, expanded(routed, shorthand)), IsEmpty()) << shorthand;
  }
}
TEST(Validate, NamesWhatDoesNotDivide) {
  EXPECT_THAT(violations(kLlama, expanded(kLlama, "tp=4")),
              ElementsAre("plan.yaml: rule 'layers.*.attn.qkv': layers.0.attn.core: 2 key/value heads do not divide "
                          "over 4 parts (tp=4); choose a divisor of 2 [does-not-divide]"));
  EXPECT_THAT(
      violations("gpt2-124m:layers=2,hidden=32,heads=4,vocab=251", expanded(kGpt, "tp=2")),
      ElementsAre("plan.yaml: rule 'embed.tokens': embed.tokens: the vocabulary of 251 does not divide over tp=2; pad "
                  "it, vocab=256 [does-not-divide]",
                  "plan.yaml: rule 'head.logits': head.logits: the vocabulary of 251 does not divide over tp=2; pad "
                  "it, vocab=256 [does-not-divide]"));
  EXPECT_THAT(violations(kMixtral, expanded(kMixtral, "ep=8")),
              ElementsAre(HasSubstr("layers.0.moe.experts.gate_up: 4 experts do not divide over ep=8; choose ep so "
                                    "that 8 divides 4"),
                          HasSubstr("layers.0.moe.experts.down: 4 experts")));
  const std::string routed = std::string(kMixtral) + ",kv_heads=4,groups=4";
  EXPECT_THAT(
      violations(routed, expanded(routed, "tp=4,etp=1,ep=8")),
      ElementsAre(HasSubstr("layers.0.moe.experts.gate_up: 4 experts do not divide over 8 parts (ep); choose ep "
                            "so that it divides 4"),
                  HasSubstr("layers.0.moe.experts.down: 4 experts")));
  EXPECT_THAT(
      violations("llama3-8b:layers=4,hidden=32,heads=4,kv_heads=4,ffn=62,vocab=256", expanded(kLlama, "tp=4")),
      ElementsAre(HasSubstr("layers.0.mlp.gate_up: axis n of 124 does not divide over tp=4 within 2 parts; choose "
                            "tp so that 8 divides 124"),
                  HasSubstr("layers.0.mlp.down: axis k of 62 does not divide over tp=4")));
  EXPECT_THAT(violations(kLlama, expanded(kLlama, "dp=8"), 12),
              ElementsAre(HasSubstr("tokens: batch 12 does not divide over 8 parts (dp=8)"),
                          HasSubstr("head.labels: batch 12")));
  Strategy three = expanded(kLlama, "tp=2,dp=4");
  three.mesh.axes = {{"dp", 2}, {"tp", 3}};
  EXPECT_THAT(violations(kLlama, three),
              testing::Contains(HasSubstr("layers.0.attn.out: axis s of 16 does not divide over 3 parts (tp=3); change "
                                          "the sequence or turn sequence parallelism off [does-not-divide]")));
  EXPECT_THAT(violations(kLlama, expanded(kLlama, "pp=8")),
              ElementsAre("plan.yaml: schedule: 4 layers cannot fill 8 stages; lower pp or vpp [stages]"));
}
TEST(Validate, TellsAllViolationsAtOnce) {
  Strategy strategy;
  strategy.mesh.axes = {{"dp", 4}, {"tp", 4}};
  strategy.schedule.name = "1f2b";
  Rule wrong;
  wrong.match = "layer.*.attn";
  wrong.compute["pt"] = {"n"};
  Rule axis;
  axis.match = "layers.*.mlp.down";
  axis.compute["tp"] = {"z"};
  Rule memory;
  memory.match = "**";
  memory.stored(Stored::Weights).over = {"dp"};
  strategy.rules = {wrong, axis, memory};
  EXPECT_THAT(
      violations(kLlama, strategy),
      ElementsAre(
          "plan.yaml: schedule: schedule '1f2b' unknown; did you mean 1f1b? [schedule]",
          "plan.yaml: mesh: dp·tp = 4·4 needs 16 devices, the cluster has 8; change a size [mesh]",
          testing::AllOf(HasSubstr("'layer.*.attn' covers no module, operator or tensor; did you mean layers.*.attn"),
                         HasSubstr("[unknown-module]")),
          "plan.yaml: rule 'layer.*.attn': the mesh has no axis 'pt', only dp, tp; did you mean dp or tp? "
          "[unknown-axis]",
          "plan.yaml: rule '**': memory: weights are spread over no more axes than gradients, gradients no more than "
          "optimizer state [contradiction]",
          "plan.yaml: rule 'layers.*.mlp.down': no operator of 'layers.*.mlp.down' has an axis 'z' to split; they have "
          "b, k, n, s [unknown-axis]"));
}
TEST(Validate, GivesTheLineOfTheFile) {
  const Strategy strategy = parse_strategy(
                                "mesh:\n  axes: {dp: 4, tp: 4}\nschedule:\n  micro_batches: 4\n  name: zb\nrules:\n"
                                "  - match: layers.*.mlp\n    compute: {tq: n}\n  - match: lairs\n    recompute: full\n"
                                "  - match: layers.*.attn.core\n    compute: {tp: g}\n",
                                "plan.yaml")
                                .value();
  EXPECT_THAT(violations(kLlama, strategy),
              ElementsAre(HasSubstr("plan.yaml:4: schedule 'zb' unknown; did you mean zb-"),
                          HasSubstr("plan.yaml:2: dp·tp = 4·4 needs 16 devices, the cluster has 8"),
                          HasSubstr("plan.yaml:7: the mesh has no axis 'tq', only dp, tp"),
                          HasSubstr("plan.yaml:9: 'lairs' covers no module, operator or tensor"),
                          HasSubstr("plan.yaml:11: layers.0.attn.core: 2 key/value heads do not divide over tp=4")));
}
TEST(Validate, ChecksStages) {
  Strategy strategy = expanded(kLlama, "pp=2,dp=4");
  strategy.schedule.stages = {Stage{.modules = {"layers.2", "layers.3"}}, Stage{.modules = {"layers.0", "layers.1"}}};
  EXPECT_THAT(violations(kLlama, strategy), ElementsAre(HasSubstr("stages follow the data [stages]")));
  strategy.schedule.stages = {Stage{.layers = 3}, Stage{.layers = 2}};
  EXPECT_THAT(violations(kLlama, strategy), ElementsAre(HasSubstr("the stages have 3+2 = 5 layers, the model 4")));
  strategy.schedule.stages = {Stage{.layers = 3}, Stage{.layers = 1}};
  EXPECT_THAT(violations(kLlama, strategy), IsEmpty());
}

}  // namespace
}  // namespace weft
