// Megatron-LM's own rules, checked on its arguments: stated here once more from its sources, independently of the
// exporter, and its table of flags where ../shared/targets is present.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "export/megatron.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// Rules of NVIDIA/Megatron-LM d98e8a64dd that the arguments break; A = arguments.py, T = transformer_config.py,
// P = parallel_state.py, S = schedules.py, L = pipeline_parallel_layer_layout.py.
std::vector<std::string> broken_rules(const Arguments& a, std::int64_t world) {
  std::vector<std::string> broken;
  const auto rule = [&](bool holds, const char* what) {
    if (!holds) broken.emplace_back(what);
  };
  const auto n = [&](const char* flag, std::int64_t otherwise) { return a.integer(flag, otherwise); };
  const auto has = [&](const char* flag) { return a.has(flag); };
  const std::int64_t tp = n("--tensor-model-parallel-size", 1), pp = n("--pipeline-model-parallel-size", 1),
                     cp = n("--context-parallel-size", 1), ep = n("--expert-model-parallel-size", 1),
                     etp = n("--expert-tensor-parallel-size", tp), layers = n("--num-layers", 0),
                     heads = n("--num-attention-heads", 0), experts = n("--num-experts", 0);
  rule(world % (tp * pp * cp) == 0, "A:432 world divides by tp pp cp");
  const std::int64_t dp = world / (tp * pp * cp);
  rule(world % (etp * ep * pp) == 0, "P:874 world divides by etp ep pp");
  if (has("--use-tp-pp-dp-mapping") && pp > 1) rule(world / (etp * ep * pp) == dp, "P:898 edp equals dp");
  rule(heads % tp == 0, "T:1446 heads");
  const std::int64_t groups = has("--group-query-attention") ? n("--num-query-groups", 1) : heads;
  rule(groups % tp == 0 || tp % groups == 0, "T:1462 query groups");
  rule(!has("--num-query-groups") || has("--group-query-attention"), "argument_utils.py:330");
  rule(ep == 1 || experts > 0, "A:1655 experts for ep");
  if (experts > 0) {
    rule(experts % ep == 0, "A:1655 experts divide by ep");
    rule(tp == 1 || has("--sequence-parallel"), "moe_layer.py:636 sequence parallel");
  }
  rule(!has("--sequence-parallel") || tp > 1, "A:1433 sequence parallel needs tp");
  const std::int64_t seq = n("--seq-length", 0), micro = n("--micro-batch-size", 0),
                     global = n("--global-batch-size", 0);
  rule(cp == 1 || seq % (2 * cp) == 0, "A:1335 sequence divides by 2 cp");
  for (const char* needed :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings", "--micro-batch-size"})
    rule(has(needed), needed);
  rule(n("--max-position-embeddings", 0) >= seq, "A:1353 positions");
  rule(micro > 0 && global % (micro * dp) == 0, "num_microbatches_calculator.py:381 batch");
  rule(has("--num-layers-per-virtual-pipeline-stage") + has("--num-virtual-stages-per-pipeline-rank") +
               has("--pipeline-model-parallel-layout") <=
           1,
       "A:927 one way of stages");
  std::int64_t vpp = n("--num-virtual-stages-per-pipeline-rank", 1);
  if (has("--pipeline-model-parallel-layout")) {
    const std::string layout = a.word("--pipeline-model-parallel-layout", "");
    std::int64_t stages = 1, placed = 0, last = 0;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout[i] == '|') ++stages;
      if (layout[i] == 't') last = 1, ++placed;
      if (layout[i] == '*') placed += std::atoll(layout.c_str() + i + 1) - last;
    }
    rule(stages % pp == 0 && placed == layers, "L:86 layout");
    rule(layout.starts_with("E") && layout.ends_with("L"), "L:86 embedding first, loss last");
    vpp = stages / pp;
  } else {
    rule(layers % pp == 0 && layers / pp % vpp == 0, "A:968 layers divide");
  }
  if (vpp > 1) {
    const std::int64_t count = global / std::max<std::int64_t>(micro * dp, 1);
    rule(pp > (has("--no-overlap-p2p-communication") ? 2 : 1), "A:1000 interleaving");
    rule(count >= pp && (count % pp == 0), "S:1160 micro-batches in groups of pp");
  }
  const bool fsdp = has("--use-megatron-fsdp"), distributed = has("--use-distributed-optimizer") || fsdp;
  rule(!has("--overlap-param-gather") || (has("--overlap-grad-reduce") && distributed), "A:1024 overlap-param-gather");
  rule(!fsdp || a.word("--ckpt-format", "") == "fsdp_dtensor", "A:1118 checkpoint of FSDP");
  rule(dp * cp % n("--num-distributed-optimizer-instances", 1) == 0, "P:922 instances");
  rule(!(has("--fp16") && has("--bf16")), "A:1196 one type");
  rule(!(has("--fp8-format") && has("--fp4-format")), "A:1100 one narrow type");
  rule(!has("--fp8-param-gather") || (distributed && has("--fp8-format")), "A:1095 fp8 gather");
  rule(!(has("--exp-avg-dtype")) || has("--use-precision-aware-optimizer"), "optimizer_config.py:433");
  rule(!has("--optimizer-cpu-offload") || has("--use-precision-aware-optimizer"), "A:1884 offload");
  const std::string granularity = a.word("--recompute-granularity", "");
  rule(granularity != "full" || (has("--recompute-method") && has("--recompute-num-layers")), "T:1901 full");
  rule(granularity == "full" || !(has("--recompute-method") || has("--recompute-num-layers")), "T:1925 selective");
  rule(!has("--tp-comm-overlap") || has("--sequence-parallel"), "A:1441 tp overlap");
  rule(!(has("--swiglu") && has("--squared-relu")), "one activation");
  return broken;
}

// A random strategy of a job, complete but not yet known to be expressible.
std::optional<Parallelism> random_strategy(const TrainingJob& job, Rng& random) {
  const auto pick = [&](std::initializer_list<const char*> words) {
    return std::string(*(words.begin() + random.below(words.size())));
  };
  std::string words = "tp=" + pick({"1", "1", "2", "4", "8"}) + ",pp=" + pick({"1", "1", "2", "4"});
  const std::string cp = pick({"1", "1", "1", "2"});
  if (cp != "1") words += ",cp=2,cp_mode=" + pick({"gather", "a2a", "ring"});
  words += "," + pick({"zero=0", "zero=1", "zero=1", "zero=2", "zero=3", "fsdp=4,replicate=2", "fsdp=2,replicate=2"});
  if (!words.starts_with("tp=1")) words += pick({"", "", ",sp=0"});
  if (words.find("pp=1") == std::string::npos)
    words += pick({"", ",vpp=2", ",vpp=4", ",schedule=gpipe", ",schedule=zb-h1"});
  words += pick({"", ",recompute=selective", ",recompute=full", ",recompute=full:1", ",recompute=op",
                 ",full=layers.*.mlp", ",recompute=selective,full=layers.*.moe"});
  if (job.model.experts > 0) words += pick({"", ",ep=2", ",ep=4", ",ep=8,etp=1", ",etp=1"});
  words += ",mbs=" + pick({"1", "2", "3", "4"}) +
           pick({"", "", "", ",offload=optimizer", ",order=tp-cp-ep-pp-dp", ",order=dp-tp"});
  const auto shorthand = parse_shorthand(words);
  if (!shorthand.ok()) return {};
  const std::int64_t batches[] = {32, 64, 96, 128};
  const auto complete_one = complete(*shorthand, job.device_count(), {.global_batch = batches[random.below(4)]});
  if (!complete_one.ok()) return {};
  Parallelism strategy = *complete_one;
  if (strategy.pp > 1 && strategy.vpp == 1 && random.below(2) == 0) {
    // A layer from the last stage to the first, or one that no stage has.
    strategy.stages.assign(static_cast<std::size_t>(strategy.pp), job.model.layers / strategy.pp);
    ++strategy.stages.front();
    if (random.below(4) > 0) --strategy.stages.back();
  }
  return strategy;
}

std::vector<TrainingJob> jobs() {
  std::vector<TrainingJob> made;
  for (const auto& [model, cluster, stack, dtype] :
       {std::tuple{"llama3-8b", "dgx-h100:2", "megatron-lm", "bf16"},
        std::tuple{"gpt3-13b", "dgx-a100:4", "megatron-lm-b200", "fp16"},
        std::tuple{"mixtral-8x7b", "dgx-h100:4", "nemo", "fp8"},
        std::tuple{"deepseek-v2-lite", "dgx-h100:2", "megatron-lm", "bf16"},
        std::tuple{"qwen2.5-0.5b", "dgx-h100:1", "megatron-lm:graph_capture=true", "bf16"},
        std::tuple{"nemotron-4-15b", "dgx-h200:2", "megatron-lm:moment_dtype=bf16", "mxfp8"}}) {
    PlanRequest request{.model = model, .cluster = cluster};
    request.stack = stack;
    request.dtype = dtype;
    auto job = settle(request);
    EXPECT_TRUE(job.ok()) << job.error().message;
    made.push_back(std::move(job).value());
  }
  return made;
}

// Calls `visit` with the arguments of random expressible strategies, at least `least`.
template <class Visit>
int visit_random(int least, Visit visit) {
  Rng random(20260822);
  int visited = 0;
  const std::vector<TrainingJob> all = jobs();
  std::vector<Expressible> subjects;
  for (const TrainingJob& job : all) subjects.emplace_back(Target::Megatron, job);
  for (int tries = 0; visited < least && tries < 200'000; ++tries) {
    const std::size_t which = random.below(all.size());
    const auto strategy = random_strategy(all[which], random);
    if (!strategy || subjects[which].why_not(*strategy)) continue;
    const auto arguments = megatron_arguments_of(all[which], decoder_of(all[which]).value(), *strategy);
    EXPECT_TRUE(arguments.ok());
    ++visited;
    if (arguments.ok()) visit(all[which], *strategy, *arguments);
  }
  return visited;
}

TEST(MegatronRules, AThousandRandomExpressibleStrategiesBreakNone) {
  int interleaved = 0, experts = 0, sharded = 0, layouts = 0;
  const int visited =
      visit_random(1200, [&](const TrainingJob& job, const Parallelism& strategy, const Arguments& arguments) {
        EXPECT_THAT(broken_rules(arguments, job.device_count()), IsEmpty())
            << print(shorthand_of(strategy)) << " of " << job.words.model;
        interleaved += strategy.vpp > 1;
        experts += strategy.ep > 1;
        sharded += strategy.zero > 1;
        layouts += !strategy.stages.empty();
      });
  EXPECT_GE(visited, 1200);
  // The draw is of all kinds.
  EXPECT_GT(interleaved, 20);
  EXPECT_GT(experts, 20);
  EXPECT_GT(sharded, 20);
  EXPECT_GT(layouts, 20);
}

TEST(MegatronRules, ThreePlantedErrorsAreCaught) {
  const auto rebuilt = [](const Arguments& arguments, const char* without, std::vector<std::string> with) {
    Arguments changed;
    for (const Argument& each : arguments.all())
      if (each.flag != without) changed.add(each.flag, each.values);
    if (!with.empty()) changed.add(with[0], std::vector<std::string>(with.begin() + 1, with.end()));
    return changed;
  };
  int sequences = 0, batches = 0, types = 0;
  visit_random(200, [&](const TrainingJob& job, const Parallelism& strategy, const Arguments& arguments) {
    const std::int64_t world = job.device_count();
    if (job.model.experts > 0 && strategy.tp > 1 && !arguments.has("--tp-comm-overlap")) {
      // Sequence parallelism forgotten beside experts.
      EXPECT_THAT(broken_rules(rebuilt(arguments, "--sequence-parallel", {}), world),
                  testing::Contains(HasSubstr("moe_layer.py:636")));
      ++sequences;
    }
    // A batch of one sample too many.
    if (strategy.micro_batch * strategy.dp > 1) {
      EXPECT_THAT(broken_rules(rebuilt(arguments, "--global-batch-size",
                                       {"--global-batch-size", std::to_string(strategy.global_batch() + 1)}),
                               world),
                  testing::Contains(HasSubstr("batch")));
      ++batches;
    }
    if (arguments.has("--bf16")) {
      EXPECT_THAT(broken_rules(rebuilt(arguments, "", {"--fp16"}), world), testing::Contains(HasSubstr("A:1196")));
      ++types;
    }
  });
  EXPECT_GT(sequences, 0);
  EXPECT_GT(batches, 0);
  EXPECT_GT(types, 0);
}

// The project's table of flags, if it lies beside the repository.
std::optional<nlohmann::json> project_table(const char* name) {
  const char* root = std::getenv("WEFT_SOURCE_DIR");
  std::ifstream file(std::string(root ? root : ".") + "/../shared/targets/" + name);
  if (!file) return {};
  return nlohmann::json::parse(file, nullptr, false);
}

TEST(MegatronRules, EveryArgumentIsInTheProjectsTableWithItsTypeAndChoices) {
  const auto table = project_table("megatron.json");
  if (!table) GTEST_SKIP() << "../shared/targets/megatron.json is absent: arguments are not compared with it";
  std::map<std::string, nlohmann::json> flags;
  for (const auto& flag : (*table)["flags"]) flags[flag["flag"]] = flag;
  for (const KnownArgument& known : megatron_arguments()) {
    if (known.role != ArgumentRole::Read) continue;
    ASSERT_TRUE(flags.contains(known.flag)) << known.flag;
    const auto& flag = flags[known.flag];
    EXPECT_EQ(known.type == "switch", flag["kind"] != "value") << known.flag;
    if (known.type == "int" || known.type == "number") {
      EXPECT_EQ(flag["type"], known.type == "int" ? "int" : "float") << known.flag;
    }
    EXPECT_EQ(known.several, flag.contains("nargs")) << known.flag;
    if (flag.contains("choices")) {
      std::vector<std::string> choices;
      for (const auto& choice : flag["choices"])
        choices.push_back(choice.is_string() ? choice.get<std::string>() : choice.dump());
      EXPECT_EQ(known.choices, choices) << known.flag;
    }
    EXPECT_FALSE(flag.contains("note") && flag["note"].get<std::string>().find("no effect") != std::string::npos)
        << known.flag;
  }
  // Every spelling that the parser knows is in the table of this repository.
  for (const auto& [name, flag] : flags) EXPECT_NE(find_megatron_argument(name), nullptr) << name;
  for (const auto& name : (*table)["other_flags"])
    EXPECT_NE(find_megatron_argument(name.get<std::string>()), nullptr) << name;
}

TEST(DeepSpeedRules, EveryKeyIsInTheProjectsTable) {
  const auto table = project_table("deepspeed.json");
  if (!table) GTEST_SKIP() << "../shared/targets/deepspeed.json is absent: keys are not compared with it";
  std::set<std::string> keys;
  for (const auto& [section, entries] : table->items())
    if (entries.is_array())
      for (const auto& entry : entries)
        if (entry.is_object() && entry.contains("key")) keys.insert(entry["key"].get<std::string>());
  for (const KnownArgument& known : deepspeed_keys())
    if (known.role == ArgumentRole::Read) {
      EXPECT_TRUE(keys.contains(known.flag)) << known.flag;
    }
}

TEST(TorchtitanRules, EveryFieldIsInTheProjectsTable) {
  const auto table = project_table("torchtitan.json");
  if (!table) GTEST_SKIP() << "../shared/targets/torchtitan.json is absent: fields are not compared with it";
  std::set<std::string> fields = {"activation_checkpoint", "model_spec"};  // of Trainer.Config itself
  for (const auto& field : (*table)["fields"]) fields.insert(field["path"].get<std::string>());
  for (const KnownArgument& known : torchtitan_fields())
    if (known.role == ArgumentRole::Read) {
      EXPECT_TRUE(fields.contains(known.flag)) << known.flag;
    }
}

}  // namespace
}  // namespace weft
