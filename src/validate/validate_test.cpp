#include "validate/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "published_rules.h"

namespace weft {
namespace {

std::vector<MeasuredFile> small_file() {
  const Result<CsvTable> table = parse_csv(
      "source,gpu,gpus,model,seq,micro_batch,global_batch,dtype,tp,pp,dp,iter_time_s,samples_per_s,mem_gb\n"
      "Megatron-LM,A100,8,gpt2,1024,4,64,bf16,1,1,8,0.1,,10\n"
      "Megatron-LM,A100,8,gpt2,1024,4,64,bf16,2,1,4,0.2,,\n"
      "Megatron-LM,A100,8,gpt2,1024,4,64,bf16,4,1,2,,160,\n"
      "Megatron-LM,A100,8,gpt2,1024,4,64,bf16,5,1,2,0.3,,\n",
      "t.csv");
  return {measured_rows(*table, "t.csv").value()};
}

TEST(Validate, ErrorsAreFractionsOfTime) {
  const Validation found = validate_measured(small_file(), {.rules = published_rules(), .worst = 1});
  ASSERT_EQ(found.predictions.size(), 3u);
  double sum = 0;
  for (const Prediction& row : found.predictions) {
    EXPECT_DOUBLE_EQ(row.error, row.predicted_s / row.measured_s - 1);
    sum += std::abs(row.error);
  }
  EXPECT_DOUBLE_EQ(found.predictions[2].measured_s, 0.4);  // 64 samples at 160 a second
  EXPECT_DOUBLE_EQ(found.total.mape, sum / 3);
  EXPECT_EQ(found.total.order.pairs(), 3);  // one group: three plans of one run
  EXPECT_EQ(found.total.memory_rows, 1);
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_EQ(found.skipped[0], (SkippedRow{"t.csv", 5, "tp·pp·dp·cp = 10, but the row has 8 devices"}));
  // The worst row has a breakdown that sums to its time.
  ASSERT_EQ(found.worst.size(), 1u);
  const Prediction& worst = found.predictions[found.worst[0]];
  ASSERT_TRUE(worst.breakdown);
  EXPECT_NEAR(static_cast<double>(worst.breakdown->total()) * 1e-12, worst.predicted_s, 1e-9);
}

TEST(Validate, TheSameBytesWithAnyNumberOfThreads) {
  const nlohmann::json json = to_json(validate_measured(small_file(), {.rules = published_rules(), .threads = 1}));
  EXPECT_EQ(json, to_json(validate_measured(small_file(), {.rules = published_rules(), .threads = 3})));
  EXPECT_EQ(json["files"][0]["rows"], 3);
  EXPECT_EQ(json["total"]["skipped"][0]["line"], 5);
  EXPECT_TRUE(json["total"].contains("kendall_tau"));
  EXPECT_EQ(json["predictions"].size(), 3u);
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream schema(std::string(source) + "/docs/schema/validate.schema.json");
  EXPECT_EQ(departures(json, nlohmann::json::parse(schema)), std::vector<std::string>{});
}

// One framework whose time is scored and one that is not modelled, each on one device and on eight.
std::vector<MeasuredFile> two_frameworks() {
  const Result<CsvTable> table = parse_csv(
      "source,gpu,gpus,gpus_per_node,model,micro_batch,global_batch,dtype,tp,pp,dp,iter_time_s\n"
      "DLPerf v1 OneFlow,V100-SXM2-16GB,1,1,ResNet50,32,32,fp32,1,1,1,0.09\n"
      "DLPerf v1 OneFlow,V100-SXM2-16GB,8,8,ResNet50,32,256,fp32,1,1,8,0.1\n"
      "DLPerf v1 Other,V100-SXM2-16GB,1,1,ResNet50,32,32,fp32,1,1,1,0.9\n"
      "DLPerf v1 Other,V100-SXM2-16GB,8,8,ResNet50,32,256,fp32,1,1,8,1.8\n",
      "t.csv");
  return {measured_rows(*table, "t.csv").value()};
}

TEST(Validate, FrameworksThatAreNotModelledCountByTheirScalingAlone) {
  const Validation found = validate_measured(two_frameworks(), {.rules = published_rules(), .worst = 0, .threads = 1});
  ASSERT_EQ(found.predictions.size(), 4u) << found.skipped.front().reason;
  const auto& rows = found.predictions;
  EXPECT_DOUBLE_EQ(found.total.mape, (std::abs(rows[0].error) + std::abs(rows[1].error)) / 2);
  EXPECT_EQ(found.total.untimed, 2);
  ASSERT_EQ(found.sets.size(), 2u);
  EXPECT_EQ(found.sets[1].rows, 2);
  // Measured, eight devices take twice as long as one.
  const double ratio = rows[3].predicted_s / rows[2].predicted_s;
  EXPECT_EQ(found.sets[1].scaling_pairs, 1);
  EXPECT_DOUBLE_EQ(found.sets[1].scaling_mape, std::abs(ratio / 2 - 1));
}

TEST(Validate, CurvesOfAllReducesAreComparedWithTheCostModel) {
  const CsvTable table = parse_csv(
                             "gpu,ngpus,op,size_mb,time_ms\n"
                             "A100,8,all reduce,1024,8.2\n"  // 2·7/8·1 GiB at 229 GB/s
                             "A100,8,all gather,1024,8.2\n"  // another collective
                             "A100,9,allreduce,1024,8.2\n"   // more than a node has
                             "A100,8,allreduce,1024,\n",     // not measured
                             "c.csv")
                             .value();
  ASSERT_TRUE(is_table_of_curves(table));
  const CurveValidation found = validate_curves(table, "c.csv", published_rules());
  ASSERT_EQ(found.points.size(), 1u);
  EXPECT_EQ(found.points[0].bytes, std::int64_t{1} << 30);
  EXPECT_LT(std::abs(found.points[0].error), 0.1);
  ASSERT_EQ(found.skipped.size(), 3u);
  EXPECT_EQ(found.skipped[0].line, 3);
}

TEST(Validate, LayersOfExpertsAreComparedWithThoseInsideAStep) {
  const CsvTable table = parse_csv(
                             "gpu,case,forward_ms,backward_ms,max_allocated_bytes,model\n"
                             "H100,small_a2a_tp1ep8_bf16,1,2,1e9,small proxy: seq1024 mbs1 h1024 moe_ffn4096 E8 top2\n"
                             "H100,other_a2a_tp1ep8_bf16,1,2,1e9,small proxy: seq1024 mbs1 h1024 moe_ffn4096 E8 top2\n",
                             "l.csv")
                             .value();
  ASSERT_TRUE(is_table_of_layers(table));
  const LayerValidation found = validate_layers(table, "l.csv", published_rules());
  ASSERT_EQ(found.points.size(), 1u) << found.skipped.front().reason;
  const LayerPoint& point = found.points[0];
  // 1024 tokens to 2 experts of 3 · 1024 · 4096 weights, 2 FLOPs each, at no more than 989 TFLOP/s.
  const double least = 2.0 * 1024 * 2 * 3 * 1024 * 4096 / 989e12;
  EXPECT_GT(point.predicted_forward_s, least);
  EXPECT_GT(point.predicted_backward_s, 2 * least);
  // One expert in bf16 and its gradient in fp32, at least.
  EXPECT_GT(point.predicted_gib, 6.0 * 3 * 1024 * 4096 / (1 << 30));
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_THAT(found.skipped[0].reason, testing::HasSubstr("no shapes of 'other'"));
}

TEST(Validate, ACalibrationLaysItsConstantsOverTheBuiltInOnes) {
  Calibration slow;
  for (const char* type : {"fp16", "bf16"})
    ASSERT_TRUE(slow.set(fmt::format("devices/a100-80-sxm/sustained/{}", type), 0.3, "test").ok());
  const Validation before = validate_measured(small_file(), {.rules = published_rules(), .worst = 0});
  const Validation after =
      validate_measured(small_file(), {.rules = published_rules(), .worst = 0, .calibration = &slow});
  for (std::size_t i = 0; i < before.predictions.size(); ++i)
    EXPECT_GT(after.predictions[i].predicted_s, before.predictions[i].predicted_s);
}

TEST(Validate, ThePlotHasACircleForEveryRow) {
  const Validation found = validate_measured(small_file(), {.rules = published_rules(), .worst = 0});
  const std::string page = plot_of(found);
  std::size_t circles = 0;
  for (std::size_t at = page.find("<circle"); at != std::string::npos; at = page.find("<circle", at + 1)) ++circles;
  EXPECT_EQ(circles, 3u);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_THAT(page, testing::HasSubstr("t.csv: 3 rows"));
}

TEST(Validate, TimesAreCountedWithinTheirIntervals) {
  Validation found = validate_measured(small_file(), {.rules = published_rules(), .worst = 0});
  int within = 0;
  for (const Prediction& row : found.predictions) {
    const double distance = std::abs(std::log(row.measured_s / row.predicted_s));
    EXPECT_EQ(row.within(), distance <= row.interval.half_width) << row.line;
    EXPECT_EQ(row.publication, "t.csv");
    within += row.within() ? 1 : 0;
  }
  EXPECT_DOUBLE_EQ(found.total.within, within / 3.0);
  EXPECT_DOUBLE_EQ(found.total.half_width, found.predictions.front().interval.half_width);
  EXPECT_EQ(found.total.called_out, 0);
}

// Llama 3 70B on one device with AdamW needs a terabyte: the run cannot have been, and is said not to fit.
TEST(Validate, ARunBeyondTheIntervalOfMemoryIsCalledOut) {
  const Result<CsvTable> table = parse_csv(
      "set,model,cluster,devices,strategy,stack,dtype,seq,global_batch,measured_step_s\n"
      "a,llama3-70b,dgx-h100:1,1,dp=1,megatron-lm,bf16,1024,1,10\n"
      "b,gpt2-124m,dgx-h100:1,1,dp=1,megatron-lm,bf16,1024,1,10\n",
      "t.csv");
  const Validation found = validate_measured({measured_rows(*table, "t.csv").value()}, {.worst = 0, .threads = 1});
  ASSERT_EQ(found.predictions.size(), 2u);
  EXPECT_EQ(found.predictions[0].fit, Fit::DoesNotFit);
  EXPECT_EQ(found.predictions[1].fit, Fit::Fits);
  EXPECT_EQ(found.predictions[1].publication, "b");
  EXPECT_EQ(found.total.called_out, 1);
}

// One plan measured with two releases, and once with its memory: predicted alike, each compared with its own.
TEST(Validate, ThePlanOfSeveralRowsIsComparedWithEachOfThem) {
  const Result<CsvTable> table = parse_csv(
      "set,model,cluster,devices,strategy,stack,dtype,seq,global_batch,measured_step_s,measured_mem_gib,mem_kind\n"
      "a,gpt2-124m,dgx-h100:1,1,dp=1,megatron-lm,bf16,1024,8,10,,\n"
      "a,gpt2-124m,dgx-h100:1,1,dp=1,megatron-lm,bf16,1024,8,5,4,allocated\n"
      "a,gpt2-124m,dgx-h100:1,1,dp=1,megatron-lm,bf16,1024,8,20,,\n"
      "a,gpt2-124m,dgx-h100:1,1,dp=1,megatron-lm,bf16,1024,16,20,,\n",
      "t.csv");
  const Validation found = validate_measured({measured_rows(*table, "t.csv").value()}, {.worst = 0, .threads = 1});
  ASSERT_EQ(found.predictions.size(), 4u);
  const double seconds = found.predictions[0].predicted_s;
  const double measured[] = {10, 5, 20};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.predictions[i].predicted_s, seconds);
    EXPECT_DOUBLE_EQ(found.predictions[i].error, seconds / measured[i] - 1);
    EXPECT_EQ(found.predictions[i].line, static_cast<int>(i) + 2);
    EXPECT_EQ(found.predictions[i].predicted_gib.has_value(), i == 1);
  }
  EXPECT_GT(found.predictions[3].predicted_s, seconds);  // another batch is another plan
  EXPECT_EQ(found.total.memory_rows, 1);
}

TEST(Validate, AStackOfAllRowsTakesTheirPlace) {
  const Validation found = validate_measured(small_file(), {.rules = published_rules(), .stack = "pytorch-ddp"});
  for (const Prediction& row : found.predictions) EXPECT_EQ(row.request.stack, "pytorch-ddp");
}

}  // namespace
}  // namespace weft
