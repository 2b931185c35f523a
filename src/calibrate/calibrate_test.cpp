#include "calibrate/calibrate.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "published_rules.h"
#include "validate/validate.h"

namespace weft {
namespace {

constexpr const char* kHeader =
    "source,gpu,gpus,gpus_per_node,model,global_batch,micro_batch,seq,dtype,tp,pp,dp,zero_stage,recompute,stack,"
    "iter_time_s\n";

MeasuredFile table(const std::string& rows, const std::string& name) {
  return measured_rows(parse_csv(kHeader + rows, name).value(), name).value();
}

// Runs of two sizes on one to eight A100, with the given times; large enough not to be host-bound.
std::string rows(const std::vector<double>& seconds) {
  const char* shapes[] = {"1,8,gpt2-medium,16,8,1024,bf16,1,1,1", "2,8,gpt2-medium,16,8,1024,bf16,2,1,1",
                          "8,8,gpt2-large,64,8,1024,bf16,2,1,4"};
  std::string text;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    text += fmt::format("mine,A100-80GB,{},0,none,megatron-lm,{}\n", shapes[i], seconds[i]);
  return text;
}

// Weft's own predictions with another value of a constant: a measurement whose fit is known.
std::vector<double> seconds_with(double sustained) {
  Calibration changed;
  for (const char* device : {"a100-80-sxm", "a100-40-sxm"})
    for (const char* type : {"fp16", "bf16", "tf32"})
      EXPECT_TRUE(changed.set(fmt::format("devices/{}/sustained/{}", device, type), sustained, "test").ok());
  const std::vector<MeasuredFile> files = {table(rows({1, 1, 1}), "t.csv")};
  const Validation found =
      validate_measured(files, {.rules = published_rules(), .worst = 0, .threads = 1, .calibration = &changed});
  std::vector<double> seconds;
  for (const Prediction& row : found.predictions) seconds.push_back(row.predicted_s);
  return seconds;
}

TEST(Calibrate, FindsTheConstantThatTheRunsWereMadeWith) {
  const std::vector<MeasuredFile> files = {table(rows(seconds_with(0.7)), "t.csv")};
  const Result<CalibrationResult> found =
      calibrate(files, {.rules = published_rules(), .only = {"a100-products"}, .cross_validate = false, .threads = 1});
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->constants.size(), 1u);
  // Three rows against the prior: within 2 % of the truth, from any start.
  EXPECT_NEAR(found->constants[0].fitted, 0.7, 0.014);
  EXPECT_EQ(found->constants[0].rows, 3);
  EXPECT_LT(found->files.back().fitted, 0.02);
  EXPECT_GT(found->files.back().present, found->files.back().fitted);
}

TEST(Calibrate, WritesAFileThatReadsBackToTheSameConstants) {
  const std::vector<MeasuredFile> files = {table(rows(seconds_with(0.7)), "t.csv")};
  const CalibrateOptions options{.rules = published_rules(), .only = {"a100-*", "nic"}, .rounds = 1, .threads = 2};
  const Result<CalibrationResult> found = calibrate(files, options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  const std::string text = overlay_of(*found);
  const Result<Calibration> read = parse_calibration(text, "c.yaml");
  ASSERT_TRUE(read.ok()) << read.error().message << "\n" << text;
  for (const FittedValue& value : found->constants)
    for (const std::string& place : value.constant.places)
      EXPECT_DOUBLE_EQ(read->value(place).value(), found->calibration.value(place).value()) << place;
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream schema(std::string(source) + "/docs/schema/calibrate.schema.json");
  EXPECT_EQ(departures(nlohmann::json::parse(json_of(*found)), nlohmann::json::parse(schema)),
            std::vector<std::string>{});
  // One node: no row depends on the network.
  EXPECT_THAT(found->untouched, testing::Contains("nic"));
  // The same input, the same bytes, however many threads.
  CalibrateOptions alone = options;
  alone.threads = 1;
  EXPECT_EQ(overlay_of(calibrate(files, alone).value()), text);
}

TEST(Calibrate, PredictsWhatAFoldLeavesOut) {
  const std::vector<double> seconds = seconds_with(0.7);
  const std::vector<MeasuredFile> files = {table(rows({seconds[0], seconds[1]}), "a.csv"),
                                           table(rows(seconds), "b.csv")};
  const Result<CalibrationResult> found =
      calibrate(files, {.rules = published_rules(), .only = {"a100-products"}, .rounds = 2, .threads = 1});
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->left_out.size(), 2u);  // no run of 64 devices: no fold by scale
  EXPECT_EQ(found->left_out[0].name, "without a.csv");
  EXPECT_EQ(found->left_out[0].rows, 2);
  EXPECT_LT(found->left_out[0].fitted, 0.03);
}

TEST(Calibrate, SkipsBadRowsByLineAndNamesUnknownConstants) {
  const std::vector<MeasuredFile> files = {
      table("mine,A100-80GB,none,8,gpt2-xl,8,1,1024,bf16,1,1,1,0,none,megatron-lm,1\n" + rows({1, 1}), "t.csv")};
  const Result<CalibrationResult> found =
      calibrate(files, {.rules = published_rules(), .only = {"a100-products"}, .rounds = 1, .threads = 1});
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->skipped.size(), 1u);
  EXPECT_EQ(found->skipped[0].line, 2);
  const Result<CalibrationResult> misspelt =
      calibrate(files, {.rules = published_rules(), .only = {"a100-product"}, .threads = 1});
  ASSERT_FALSE(misspelt.ok());
  EXPECT_THAT(misspelt.error().message, testing::HasSubstr("a100-products"));
  const Result<CalibrationResult> nobody =
      calibrate(files, {.rules = published_rules(), .only = {"h100-*"}, .threads = 1});
  ASSERT_FALSE(nobody.ok());
  EXPECT_THAT(nobody.error().message, testing::HasSubstr("none of the constants"));
}

TEST(FittedConstants, AllHavePlacesBoundsAndAPriorWithinThem) {
  for (const FittedConstant& constant : built_in_fitted_constants()) {
    EXPECT_FALSE(constant.prior.source.empty()) << constant.name;
    for (const std::string& place : constant.places) {
      Calibration calibration;
      EXPECT_TRUE(calibration.set(place, constant.least, "least").ok()) << place;
      EXPECT_TRUE(calibration.set(place, constant.most, "most").ok()) << place;
    }
  }
}

}  // namespace
}  // namespace weft
