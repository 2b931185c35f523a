#include "export/megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export_law.h"
#include "models/model_words.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Case {
  const char* model;
  const char* cluster;
  const char* strategy;
  std::int64_t batch;
  const char* dtype = "bf16";
  const char* stack = "megatron-lm";
};

// Exports, reads back and compares the strategy, the shape and the time to the picosecond.
void expect_law(const Case& test) {
  SCOPED_TRACE(fmt::format("{} {} {}", test.model, test.strategy, test.stack));
  PlanRequest request{.model = test.model, .cluster = test.cluster, .strategy = test.strategy};
  request.global_batch = test.batch;
  request.dtype = test.dtype;
  request.stack = test.stack;
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  expect_reads_back(Target::Megatron, *plan);
}

TEST(MegatronLaw, WhatIsWrittenReadsBackAsTheSamePlanAndTime) {
  for (
      const Case& test : {
          Case{"llama3-8b:layers=8", "dgx-h100:2", "tp=4,pp=2,dp=2,zero=1", 32},
          Case{"llama3-8b:layers=8", "dgx-h100:2", "tp=2,pp=2,dp=2,cp=2,cp_mode=ring,vpp=2,recompute=selective", 32},
          Case{"llama3-8b:layers=8", "dgx-h100:2", "dp=16,zero=3,recompute=full,mbs=2", 64, "fp8"},
          Case{"llama3-8b:layers=8", "dgx-h100:2", "tp=2,dp=8,zero=1", 64, "fp8-current"},
          Case{"llama3-8b:layers=8", "dgx-h100:2", "tp=2,dp=8,zero=1", 64, "fp8-blockwise", "nemo"},
          Case{"llama3-8b:layers=8", "dgx-b200:1", "tp=2,dp=4,zero=1", 64, "mxfp8"},
          Case{"mixtral-8x7b:layers=4", "dgx-h100:1", "ep=8,dp=8,zero=1", 64, "fp8",
               "megatron-lm:fused_permutation=false,fused_router=true"},
          Case{"llama3-8b:layers=8", "dgx-h100:2", "fsdp=8,replicate=2", 64},
          Case{"llama3-8b:layers=6", "dgx-h100:1",
               "tp=2,pp=4,vpp=1,stages=1+2+2+1,zero=1,recompute=selective,full=layers.*.mlp", 16},
          Case{"gpt3-1.3b:layers=4", "dgx-a100:1", "tp=4,dp=2,sp=0", 16, "fp16"},
          Case{"gpt3-1.3b:layers=4", "dgx-a100:1", "pp=4,dp=2", 16, "bf16", "megatron-lm-b200"},
          Case{"gpt3-1.3b:layers=4", "dgx-a100:1", "tp=4,dp=2", 16, "bf16", "megatron-lm-tp-overlap"},
          Case{"mixtral-8x7b:layers=4", "dgx-h100:2", "tp=2,etp=1,ep=8,dp=8,zero=1", 64},
          Case{"qwen2-7b:layers=4", "dgx-h100:1", "dp=8,zero=2", 16, "bf16",
               "megatron-lm:moment_dtype=f32,fused_cross_entropy=false"},
          Case{"deepseek-v2-lite:layers=4", "dgx-h100:1", "ep=8,dp=8,zero=1", 16},
          Case{"llama3-8b:layers=4", "dgx-h100:1", "tp=4,dp=2,zero=1", 16, "bf16", "nemo"},
          // Of four stages of two layers the first of each; of stages of 1, 3, 3 and 1 layers two, where there are two.
          Case{"llama3-8b:layers=8", "dgx-h100:1", "tp=4,pp=2,vpp=2,recompute=full:1", 16},
          Case{"llama3-8b:layers=8", "dgx-h100:1", "tp=2,pp=4,stages=1+3+3+1,recompute=full:2", 16},
      })
    expect_law(test);
}

std::string refusal(const char* strategy, const char* model = "llama3-8b:layers=8", const char* stack = "megatron-lm") {
  PlanRequest request{.model = model, .cluster = "dgx-h100:1", .strategy = strategy};
  request.global_batch = 64;
  request.stack = stack;
  const auto plan = make_plan(request);
  if (!plan.ok()) return "no plan: " + plan.error().message;
  const auto text = export_plan(Target::Megatron, *plan);
  return text.ok() ? "written" : text.error().message;
}

TEST(Megatron, WhatItCannotSayIsRefusedWithTheNearestPlanThatItCan) {
  EXPECT_EQ(
      refusal("dp=8,recompute=op"),
      "--to megatron: recompute=op: Megatron-LM recomputes whole layers, core attention or named modules, not all "
      "that is between matrix products\n"
      "the nearest plan that megatron can express: tp=1,pp=1,dp=8,zero=0,mbs=1,recompute=selective");
  EXPECT_THAT(refusal("pp=2,dp=4,schedule=zb-h1"), HasSubstr("schedule=zb-h1: Megatron-LM runs 1f1b"));
  EXPECT_THAT(refusal("dp=8", "bloom-176b:layers=2"), HasSubstr("--to megatron: ALiBi"));
  EXPECT_THAT(refusal("dp=8", "resnet50"), HasSubstr("no decoder-only transformer"));
  EXPECT_THAT(refusal("dp=8,zero=1", "llama3-8b:layers=2", "torchtitan"), HasSubstr("plan with --stack megatron-lm"));
  EXPECT_THAT(refusal("dp=8,order=dp-tp"), HasSubstr("order=dp-tp"));
}

std::string fault(std::string_view text) {
  const auto read = import_run(Target::Megatron, text, "args.txt");
  return read.ok() ? "read: " + read->request.model + " " + read->request.strategy : read.error().message;
}

const std::string kSmall =
    "--num-layers 4 --hidden-size 256 --num-attention-heads 4 --max-position-embeddings 128 --seq-length 128\n"
    "--vocab-size 1000 --micro-batch-size 1 --bf16\n";

TEST(MegatronImport, FaultsAreNamedByLineAndNothingIsGuessed) {
  EXPECT_THAT(fault(kSmall + "--num-layrs 4"),
              HasSubstr("args.txt:3: --num-layrs: no argument of Megatron-LM core 0.20.0; did you mean --num-layers"));
  EXPECT_EQ(fault(kSmall + "--num-layers 8"), "args.txt:3: --num-layers: given twice, on line 1 too; keep one");
  EXPECT_EQ(fault(kSmall + "--fp16"), "args.txt:3: --fp16: contradicts --bf16; keep one");
  EXPECT_EQ(fault(kSmall + "--global-batch-size many"), "args.txt:3: --global-batch-size: 'many' is no whole number");
  EXPECT_EQ(fault(kSmall + "--global-batch-size $GBS"),
            "args.txt:3: --global-batch-size: its value is $GBS, which this file does not set; write the value");
  EXPECT_THAT(fault(kSmall + "--checkpoint-activations"), HasSubstr("args.txt:3: --checkpoint-activations: removed"));
  EXPECT_THAT(fault(kSmall + "--is-hybrid-model"), HasSubstr("args.txt:3: --is-hybrid-model: a model of another kind"));
  EXPECT_THAT(fault("{\"train_batch_size\": 8}"), HasSubstr("args.txt:1: "));
  EXPECT_THAT(fault(kSmall + "--recompute-granularity full"), HasSubstr("--recompute-method: missing"));
  EXPECT_THAT(fault("--bf16"), HasSubstr("args.txt: --num-layers: missing"));
  EXPECT_THAT(fault(kSmall + "--sequence-parallel"), HasSubstr("clears it"));
  EXPECT_THAT(fault(kSmall + "--pipeline-model-parallel-size 3"),
              HasSubstr("4 layers do not divide over 3 pipeline ranks"));
}

TEST(Megatron, WhatIsAskedOfTheOptimizerIsNotDropped) {
  const auto refused = [](std::string PlanRequest::*field, const char* word) {
    PlanRequest request{.model = "llama3-8b:layers=4", .cluster = "dgx-h100:1", .strategy = "dp=8,zero=1"};
    request.*field = word;
    const auto plan = make_plan(request);
    if (!plan.ok()) return "no plan: " + plan.error().message;
    const auto text = export_plan(Target::Megatron, *plan);
    return text.ok() ? "written" : text.error().message;
  };
  EXPECT_THAT(refused(&PlanRequest::optimizer, "sgd"), HasSubstr("--optimizer sgd: configurations are of AdamW"));
  EXPECT_THAT(refused(&PlanRequest::optimizer, "adamw:moments=bf16"),
              HasSubstr("--stack megatron-lm:moment_dtype=bf16"));
  EXPECT_THAT(refused(&PlanRequest::train, "lora:r=16,targets=attn"), HasSubstr("not trained (--freeze, --train)"));
  EXPECT_EQ(refused(&PlanRequest::optimizer, "adamw"), "written");
}

TEST(MegatronImport, BlocksAreTheFirstLayersOfEveryStage) {
  const std::string layers = kSmall + "--recompute-granularity full --recompute-method ";
  EXPECT_THAT(fault(layers + "block --recompute-num-layers 2"), HasSubstr("recompute=full:2"));
  // 2 stages of 2 layers: 0, 1 and 2, 3.
  EXPECT_THAT(fault(layers + "block --recompute-num-layers 1 --pipeline-model-parallel-size 2"),
              HasSubstr("recompute=full:1"));
  EXPECT_THAT(fault(layers + "block --recompute-num-layers 7"), HasSubstr("recompute=full"));
  EXPECT_THAT(fault(layers + "block --recompute-num-layers 0"),
              HasSubstr("args.txt:3: --recompute-num-layers: at least 1"));
  EXPECT_THAT(fault(layers + "uniform --recompute-num-layers 1"), HasSubstr("recompute=full"));
  EXPECT_THAT(fault(layers + "uniform --recompute-num-layers 2"),
              HasSubstr("args.txt:3: --recompute-num-layers: Weft keeps"));
}

TEST(Megatron, LayersThatAreNoBlocksAreRefused) {
  EXPECT_THAT(
      refusal("dp=8,full=layers.1"),
      HasSubstr("full=layers.1: Megatron-LM recomputes core attention, mlp and moe; layers as recompute=full:4"));
  EXPECT_THAT(refusal("dp=8,full=layers.*.mlp:2"), HasSubstr("a module in all layers or in none"));
  EXPECT_THAT(refusal("tp=4,pp=2,recompute=full:1+2"), HasSubstr("recompute=full:1+2: Megatron-LM recomputes as many"));
  EXPECT_THAT(refusal("dp=8,recompute=selective:2"), HasSubstr("as many first layers of every stage"));
}

TEST(MegatronImport, LayoutsFollowTheProjectsGrammar) {
  const auto stages = [](const std::string& layout, int layers, int pp) {
    const std::string read =
        fault("--num-layers " + std::to_string(layers) +
              " --hidden-size 256 --num-attention-heads 4 --max-position-embeddings 128 --seq-length 128 "
              "--vocab-size 1000 --micro-batch-size 1 --bf16 --pipeline-model-parallel-size " +
              std::to_string(pp) + " --pipeline-model-parallel-layout '" + layout + "'");
    const std::size_t at = read.find("stages=");
    return at == std::string::npos ? read : read.substr(at, read.find(',', at) - at);
  };
  // The examples checked with the project's own parser.
  EXPECT_EQ(stages("Ett|(ttt|)*2,ttL", 10, 4), "stages=2+3+3+2");
  EXPECT_EQ(stages("Et|(tt|)*6,tL", 14, 4), "stages=1+6x2+1");
  EXPECT_EQ(stages("E|(tt|)*6,L", 12, 4), "stages=0+6x2+0");
  EXPECT_THAT(stages("Ettt|(tttt|)*2,ttt|mL", 14, 5), HasSubstr("multi-token prediction"));
  EXPECT_THAT(stages("tt|ttL", 4, 2), HasSubstr("E, the embedding, stands first"));
}

TEST(Megatron, PatternsOfLayersReadBack) {
  for (const std::vector<int>& pattern : {std::vector<int>{0, 1, 1}, {1}, {0, 0, 0}, {0, 1, 0, 1}})
    EXPECT_EQ(*read_layer_pattern(write_layer_pattern(pattern), static_cast<std::int64_t>(pattern.size())), pattern);
  EXPECT_THAT(*read_layer_pattern("([0]*2+[1])*2", 6), ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_FALSE(read_layer_pattern("[0]*999999999", 4).ok());
  EXPECT_FALSE(read_layer_pattern("((((", 4).ok());
}

}  // namespace
}  // namespace weft
