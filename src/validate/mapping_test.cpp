#include "validate/mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "published_rules.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

MeasuredFile rows_of(const std::string& text) {
  const Result<CsvTable> table = parse_csv(text, "t.csv");
  EXPECT_TRUE(table.ok());
  Result<MeasuredFile> rows = measured_rows(*table, "t.csv");
  EXPECT_TRUE(rows.ok());
  return std::move(rows).value();
}

const std::string kHeader =
    "source,gpu,gpus,gpus_per_node,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,micro_batch,global_batch,dtype,tp,"
    "pp,"
    "dp,cp,zero_stage,recompute,iter_time_s,tokens_per_s_per_gpu,samples_per_s,tflops_per_gpu,mem_gb\n";

TEST(Measured, TakesTimeBeforeTokensBeforeSamplesBeforeFlops) {
  const MeasuredFile file = rows_of(
      "gpu,gpus,model,global_batch,seq,tp,dp,iter_time_s,tokens_per_s_per_gpu,samples_per_s,tflops_per_gpu\n"
      "A100,8,gpt2,8,1024,1,8,2,100,5,50\n"
      "A100,8,gpt2,8,1024,1,8,,100,5,50\n"
      "A100,8,gpt2,8,,1,8,,100,5,50\n"
      "A100,8,gpt2,8,1024,1,8,,,,50\n");
  ASSERT_EQ(file.rows.size(), 4u);
  EXPECT_EQ(file.rows[0].measure, Measure::Time);
  EXPECT_EQ(file.rows[1].measure, Measure::Tokens);
  EXPECT_DOUBLE_EQ(file.rows[1].value, 800);  // 100 · 8 devices
  EXPECT_EQ(file.rows[2].measure, Measure::Samples);
  EXPECT_EQ(file.rows[3].measure, Measure::Tflops);
}

TEST(Measured, AbsurdCellsAreSkippedWithTheirReason) {
  const MeasuredFile file = rows_of(
      "gpu,gpus,model,global_batch,seq,tp,dp,iter_time_s\n"
      "A100,8,gpt2,8,1024,1,8,nan\n"
      "A100,-8,gpt2,8,1024,1,8,1\n"
      "A100,8,,8,1024,1,8,1\n"
      "A100,8,gpt2,8,1024,1,8,\n"
      "A100,8,gpt2,8,1024,1,8,-1\n"
      "A100,8.5,gpt2,8,1024,1,8,1,9\n");
  EXPECT_TRUE(file.rows.empty());
  std::vector<std::string> reasons;
  for (const SkippedRow& row : file.skipped) reasons.push_back(fmt::format("{}: {}", row.line, row.reason));
  EXPECT_THAT(reasons, ElementsAre("2: iter_time_s 'nan': not a number above zero",
                                   "3: gpus '-8': not a whole number of at least 1", "4: model is empty",
                                   HasSubstr("5: nothing measured"), "6: iter_time_s '-1': not a number above zero",
                                   "7: 9 cells, but 8 columns"));
}

TEST(Measured, ATableOfOtherThingsIsAnError) {
  const Result<CsvTable> table = parse_csv("name,size\na,1\n", "t.csv");
  EXPECT_THAT(measured_rows(*table, "t.csv").error().message, HasSubstr("t.csv: no column 'gpu'"));
}

TEST(Mapping, ARowBecomesItsPlan) {
  const MeasuredFile file =
      rows_of(kHeader +
              "Megatron-LM,H100,64,8,Llama 3.1 70B,80,8192,64,8,28672,128256,8192,1,128,bf16,4,4,2,2,1,full,14,,,,\n");
  ASSERT_EQ(file.rows.size(), 1u);
  const Result<MappedRow> mapped = published_rules().map(file.rows[0]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message;
  const PlanRequest& request = mapped->request;
  EXPECT_EQ(request.cluster, "dgx-h100:8");
  EXPECT_EQ(request.stack, "megatron-lm");
  EXPECT_EQ(request.model, "llama3-70b:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=128256");
  EXPECT_EQ(request.strategy, "tp=4,pp=4,dp=2,cp=2,zero=1,recompute=full");
  EXPECT_EQ(request.dtype, "bf16");
  EXPECT_EQ(request.global_batch, 128);
  EXPECT_TRUE(mapped->overrides.empty());
}

TEST(Mapping, FewerDevicesThanNodesHaveAreEvenlyOnThem) {
  const MeasuredFile file = rows_of(kHeader + "Megatron-LM,A100-80GB,4,2,gpt2,,,,,,,1024,1,4,bf16,1,1,4,1,,,1,,,,\n");
  const Result<MappedRow> mapped = published_rules().map(file.rows[0]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message;
  EXPECT_EQ(mapped->request.cluster, "dgx-a100:2");
  EXPECT_EQ(mapped->request.device_count, 4);
  EXPECT_THAT(settle(mapped->request).value().devices, ElementsAre(0, 1, 8, 9));
}

TEST(Mapping, TraysOfARackAreFilledBeforeTheNextRack) {
  const MeasuredFile file = rows_of(kHeader + "Megatron-LM,GB200,8,4,gpt2,,,,,,,1024,1,8,bf16,1,1,8,1,,,1,,,,\n");
  const Result<MappedRow> mapped = published_rules().map(file.rows[0]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message;
  EXPECT_EQ(mapped->request.cluster, "gb200-nvl72:1");
  EXPECT_EQ(mapped->request.device_count, 8);
}

TEST(Mapping, AnUnknownModelIsNeverItsNearestRelative) {
  const MeasuredFile file = rows_of(kHeader + "x,H100,8,8,llama9-70b,,,,,,,1024,1,8,bf16,1,1,8,1,,,1,,,,\n");
  EXPECT_THAT(published_rules().map(file.rows[0]).error().message, HasSubstr("model 'llama9-70b'"));
}

TEST(Mapping, ARowInTheWordsOfTheCommandLineIsItsPlan) {
  const MeasuredFile file = rows_of(
      "set,model,cluster,devices,strategy,stack,dtype,seq,global_batch,measured_step_s,measured_mem_gib,mem_kind\n"
      "mine,\"gpt3-1.3b:layers=10,dropout=0\",p3dn:1,2,\"dp=2,mbs=4\",alpa,fp16,1024,8,0.58,24.4,allocated\n"
      "mine,gpt2,p3dn:1,,dp=8,,,,8,0.1,,\n"
      "mine,gpt2,p3dn:1,0,dp=8,,,,8,0.1,,\n"
      "mine,gpt2,p3dn:1,,,,,,8,0.1,,\n"
      "mine,gpt2,p3dn:1,,dp=8,,,,8,nan,,\n"
      "mine,gpt2,p3dn:1,,dp=8,,,,8,0.1,3,guessed\n");
  ASSERT_EQ(file.rows.size(), 2u);
  const Result<MappedRow> mapped = MappingRules().map(file.rows[0]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message;
  const PlanRequest& request = mapped->request;
  EXPECT_EQ(request.model, "gpt3-1.3b:layers=10,dropout=0");
  EXPECT_EQ(request.cluster, "p3dn:1");
  EXPECT_EQ(request.device_count, 2);
  EXPECT_EQ(request.strategy, "dp=2,mbs=4");
  EXPECT_EQ(request.stack, "alpa");
  EXPECT_EQ(request.dtype, "fp16");
  EXPECT_EQ(request.seq, 1024);
  EXPECT_EQ(request.global_batch, 8);
  EXPECT_EQ(mapped->memory, MemoryKind::Allocated);
  EXPECT_EQ(mapped->set, "mine");
  EXPECT_EQ(file.rows[0].memory_gib, 24.4);
  EXPECT_FALSE(MappingRules().map(file.rows[1])->request.device_count);
  std::vector<std::string> reasons;
  for (const SkippedRow& row : file.skipped) reasons.push_back(row.reason);
  EXPECT_THAT(reasons, ElementsAre("devices '0': not a whole number of at least 1", "strategy is empty",
                                   "measured_step_s 'nan': not a number above zero",
                                   "mem_kind 'guessed': write allocated, reserved or device"));
}

// What had no name when such a row was written may be given one by a rule for its set, and by no other.
TEST(Mapping, ARuleForASetRespellsItsRowsAndSaysSo) {
  const MeasuredFile file = rows_of(
      "set,model,cluster,devices,strategy,stack,dtype,seq,global_batch,measured_step_s\n"
      "titan,llama3-8b,dgx-h100:16,,dp=128,pytorch-fsdp,bf16,8192,256,2.9\n"
      "other,llama3-8b,dgx-h100:16,,dp=128,pytorch-fsdp,bf16,8192,256,2.9\n");
  const Result<MappingRules> rules = parse_mapping_rules(
      "rules:\n"
      "  - {if: {model: llama}, node: dgx-a100, stack: megatron-lm, why: not for rows with a set}\n"
      "  - {if: {set: titan, cluster: dgx-h100}, node: grand-teton, why: 500 W}\n"
      "  - {if: {set: titan, stack: pytorch-fsdp}, stack: torchtitan-eager, why: eager}\n"
      "  - {if: {set: titan, strategy: zero=3}, strategy: \"zero=2,mbs=4\", why: not this row}\n"
      "  - {if: {set: titan, strategy: dp=128}, strategy: \"dp=64,tp=2\", why: page}\n",
      "rules.yaml");
  ASSERT_TRUE(rules.ok()) << rules.error().message;
  const MappedRow titan = rules->map(file.rows[0]).value(), other = rules->map(file.rows[1]).value();
  EXPECT_EQ(titan.request.cluster, "grand-teton:16");
  EXPECT_EQ(titan.request.stack, "torchtitan-eager");
  EXPECT_THAT(titan.overrides,
              ElementsAre("cluster dgx-h100:16 → grand-teton:16: 500 W", "stack pytorch-fsdp → torchtitan-eager: eager",
                          "strategy dp=128 → dp=64,tp=2: page"));
  EXPECT_EQ(other.request.cluster, "dgx-h100:16");
  EXPECT_EQ(other.request.stack, "pytorch-fsdp");
  EXPECT_EQ(other.request.strategy, "dp=128");
  EXPECT_TRUE(other.overrides.empty());
}

TEST(Mapping, RulesThatContradictACellSaySo) {
  const Result<MappingRules> rules = parse_mapping_rules(
      "rules:\n"
      "  - {if: {gpu: h100}, node: dgx-h100, why: name}\n"
      "  - {if: {source: mine, gpus: 8..16}, stack: megatron-lm, model: vocab=50257, fill_model: kv_heads=4, why: "
      "page}\n",
      "r.yaml");
  ASSERT_TRUE(rules.ok());
  const MeasuredFile file =
      rows_of(kHeader + "Mine,H100,8,8,llama2-7b,32,4096,32,8,11008,32000,4096,1,8,bf16,1,1,8,1,,,1,,,,\n");
  const Result<MappedRow> mapped = rules->map(file.rows[0]);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message;
  EXPECT_THAT(mapped->overrides, ElementsAre("vocab 32000 → 50257: page"));
  EXPECT_THAT(mapped->request.model, HasSubstr("kv_heads=8"));
  EXPECT_EQ(rules->map(file.rows[0], "nemo-24.09")->request.stack, "nemo-24.09");
}

TEST(Mapping, WhatCannotBeMappedHasAReason) {
  const MeasuredFile file = rows_of(kHeader +
                                    "x,TPU,8,8,gpt2,,,,,,,1024,1,8,bf16,1,1,8,1,,,1,,,,\n"
                                    "x,H100,8,8,wonder-net,,,,,,,1024,1,8,bf16,1,1,8,1,,,1,,,,\n"
                                    "x,H100,8,8,gpt2,,,,,,,1024,1,8,bf16,2,1,8,1,,,1,,,,\n"
                                    "x,H100,8,8,gpt2,,,,,,,1024,1,8,int3,1,1,8,1,,,1,,,,\n");
  std::vector<std::string> reasons;
  for (const MeasuredRow& row : file.rows) reasons.push_back(published_rules().map(row).error().message);
  EXPECT_THAT(reasons, ElementsAre(HasSubstr("gpu 'TPU'"), HasSubstr("model 'wonder-net'"),
                                   "tp·pp·dp·cp = 16, but the row has 8 devices", HasSubstr("dtype 'int3'")));
}

TEST(Mapping, NamesAndTypesAreReadHoweverTheyAreSpelt) {
  EXPECT_EQ(zoo_model_named("Llama 3.1 405B"), "llama3.1-405b");
  EXPECT_EQ(zoo_model_named("BERT-Large pretrain"), "bert-large");
  EXPECT_EQ(zoo_model_named("ResNet50 v1.5"), "resnet50");
  EXPECT_EQ(zoo_model_named("wonder-net"), "");
  const std::pair<const char*, const char*> types[] = {{"amp_bf16", "amp-bf16"}, {"fp16 (AMP)", "amp-fp16"},
                                                       {"TF32", "tf32"},         {"FP8-MX", "mxfp8"},
                                                       {"amp_fp8", "fp8"},       {"", ""}};
  for (const auto& [cell, word] : types) EXPECT_EQ(dtype_option(cell).value(), word);
}

TEST(Mapping, LayersThatDoNotDivideAreFewerAtTheEnds) {
  const MeasuredFile file = rows_of(
      "gpu,gpus,model,layers,hidden,heads,global_batch,seq,tp,pp,dp,vpp,iter_time_s\n"
      "H100,128,llama,126,16384,128,16,8192,8,16,1,,1\n"
      "H100,128,llama,128,16384,128,16,8192,8,16,1,,1\n");
  ASSERT_EQ(file.rows.size(), 2u);
  const auto strategy = [&](std::size_t i) { return published_rules().map(file.rows[i], "").value().request.strategy; };
  EXPECT_THAT(strategy(0), HasSubstr("stages=7+8+8+8+8+8+8+8+8+8+8+8+8+8+8+7"));
  EXPECT_THAT(strategy(1), testing::Not(HasSubstr("stages=")));
}

}  // namespace
}  // namespace weft
