#include "validate/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

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
  const Validation found = validate_measured(small_file(), {.worst = 1});
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
  // The worst row tells where its time goes, all of it.
  ASSERT_EQ(found.worst.size(), 1u);
  const Prediction& worst = found.predictions[found.worst[0]];
  ASSERT_TRUE(worst.breakdown);
  EXPECT_NEAR(static_cast<double>(worst.breakdown->total()) * 1e-12, worst.predicted_s, 1e-9);
}

TEST(Validate, TheSameBytesWithAnyNumberOfThreads) {
  const std::string one = json_of(validate_measured(small_file(), {.threads = 1}));
  EXPECT_EQ(one, json_of(validate_measured(small_file(), {.threads = 3})));
  const nlohmann::json json = nlohmann::json::parse(one);
  EXPECT_EQ(json["files"][0]["rows"], 3);
  EXPECT_EQ(json["total"]["skipped"][0]["line"], 5);
  EXPECT_TRUE(json["total"].contains("kendall_tau"));
  EXPECT_EQ(json["predictions"].size(), 3u);
}

TEST(Validate, AStackOfAllRowsTakesTheirPlace) {
  const Validation found = validate_measured(small_file(), {.stack = "pytorch-ddp"});
  for (const Prediction& row : found.predictions) EXPECT_EQ(row.request.stack, "pytorch-ddp");
}

}  // namespace
}  // namespace weft
