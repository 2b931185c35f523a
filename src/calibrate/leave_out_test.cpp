#include "calibrate/leave_out.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "published_rules.h"

namespace weft {
namespace {

using testing::HasSubstr;

LeftOutRow row(const std::string& publication, const std::string& device, const std::string& stack, double left_out,
               double device_left_out = 0.5) {
  return {publication, {{device}, stack, "bf16", 8}, left_out / 2, left_out, device_left_out, {}, 0};
}

TEST(LeaveOut, ARowsDistanceIsFromTheOtherPublications) {
  const LeftOut found = scored({row("a", "h100-sxm", "megatron-lm", 0.1), row("b", "h100-sxm", "megatron-lm", 0.1),
                                row("b", "h100-sxm", "nemo", 0.1), row("c", "b200", "nemo", 0.1)},
                               {});
  EXPECT_EQ(found.rows[0].distance, Distance::AllSeen);
  EXPECT_EQ(found.rows[1].distance, Distance::AllSeen);
  EXPECT_EQ(found.rows[2].distance, Distance::AllSeen);  // c ran nemo, a ran on the device
  EXPECT_EQ(found.rows[3].distance, Distance::DeviceUnseen);
  // The spread has seen all of them.
  EXPECT_EQ(found.spread.seen.distance({{"b200"}, "nemo", "bf16", 8}), Distance::AllSeen);
}

TEST(LeaveOut, APublicationsIntervalsComeFromTheOthersAlone) {
  std::vector<LeftOutRow> rows;
  for (int i = 0; i < 10; ++i) rows.push_back(row("good", "h100-sxm", "megatron-lm", 0.02));
  for (int i = 0; i < 10; ++i) rows.push_back(row("bad", "h100-sxm", "megatron-lm", -0.2));
  const LeftOut found = scored(rows, {0.1, -0.3});
  ASSERT_EQ(found.publications.size(), 2u);
  // All of one lie within the other's spread, and none the other way round.
  EXPECT_DOUBLE_EQ(found.publications[0].half_width, 0.2);
  EXPECT_DOUBLE_EQ(found.publications[0].within, 1);
  EXPECT_DOUBLE_EQ(found.publications[1].half_width, 0.02);
  EXPECT_DOUBLE_EQ(found.publications[1].within, 0);
  EXPECT_DOUBLE_EQ(found.all.within, 0.5);
  EXPECT_NEAR(found.publications[1].left_out, std::exp(0.2) - 1, 1e-12);
  EXPECT_NEAR(found.mean.left_out, (found.publications[0].left_out + found.publications[1].left_out) / 2, 1e-12);
  // Forecasts get the spread of both, and of rows without their device where that was not seen.
  EXPECT_DOUBLE_EQ(found.spread.time[0].value, 0.2);
  EXPECT_DOUBLE_EQ(found.spread.time[3].value, 0.5);
  EXPECT_THAT(found.spread.time[0].source, HasSubstr("20 runs of 2 publications"));
  EXPECT_DOUBLE_EQ(found.spread.memory.value, 0.3);
  EXPECT_TRUE(parse_spread(print(found.spread), "s.yaml").ok());
}

TEST(LeaveOut, RowsWithDoubtsCountAmongThemselves) {
  std::vector<LeftOutRow> rows;
  for (const char* publication : {"a", "b"}) {
    for (int i = 0; i < 5; ++i) rows.push_back(row(publication, "h100-sxm", "nemo", 0.05, 0.05));
    for (int i = 0; i < 5; ++i) rows.push_back(row(publication, "h100-sxm", "nemo", 0.25, 0.25));
    for (std::size_t i = rows.size() - 5; i < rows.size(); ++i) rows[i].kind.doubts = {"layers of experts"};
  }
  const LeftOut found = scored(rows, {});
  EXPECT_DOUBLE_EQ(found.spread.time[0].value, 0.05);
  EXPECT_DOUBLE_EQ(found.spread.doubtful.value, 0.25);
  EXPECT_THAT(found.spread.time[0].source, HasSubstr("10 runs of 2 publications"));
  EXPECT_DOUBLE_EQ(found.all.within, 1);
  for (const LeftOutRow& each : found.rows) EXPECT_DOUBLE_EQ(each.half_width, each.kind.doubts.empty() ? 0.05 : 0.25);
  // Of rows with doubts alone, the others' widths are theirs.
  for (LeftOutRow& each : rows) each.kind.doubts = {"layers of experts"};
  EXPECT_DOUBLE_EQ(scored(rows, {}).spread.time[0].value, 0.25);
}

// Runs of two sizes on A100, as two tables.
std::vector<MeasuredFile> two_tables(const std::vector<double>& seconds) {
  const char* shapes[] = {"1,8,gpt2-medium,16,8,1024,bf16,1,1,1", "2,8,gpt2-medium,16,8,1024,bf16,2,1,1"};
  std::vector<MeasuredFile> files;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string name = i == 0 ? "a.csv" : "b.csv";
    const std::string text = fmt::format(
        "source,gpu,gpus,gpus_per_node,model,global_batch,micro_batch,seq,dtype,tp,pp,dp,zero_stage,recompute,stack,"
        "iter_time_s\nmine,A100-80GB,{},0,none,megatron-lm,{}\n",
        shapes[i], seconds[i]);
    files.push_back(measured_rows(parse_csv(text, name).value(), name).value());
  }
  return files;
}

TEST(LeaveOut, ConstantsAreFittedToTheOthers) {
  const MappingRules rules = published_rules();
  const Validation present = validate_measured(two_tables({1, 1}), {.rules = rules, .worst = 0, .threads = 1});
  std::vector<double> slow;
  for (const Prediction& each : present.predictions) slow.push_back(1.15 * each.predicted_s);
  // Both tables are slower than predicted: each moves the constants towards the other.
  const std::vector<MeasuredFile> files = two_tables(slow);
  const Validation validation = validate_measured(files, {.rules = rules, .worst = 0, .threads = 1});
  const Result<LeftOut> found = leave_out(files, validation, {.rules = rules, .threads = 1});
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->rows.size(), 2u);
  for (const LeftOutRow& each : found->rows) {
    EXPECT_NEAR(each.present, std::log(1.15), 1e-3);
    EXPECT_LT(each.left_out, each.present);
  }
  // A table that nothing is fitted to is predicted with the present constants.
  const Result<LeftOut> held =
      leave_out(files, validation, {.rules = rules, .held_out = {"a.csv", "b.csv"}, .threads = 1});
  ASSERT_TRUE(held.ok()) << held.error().message;
  for (const LeftOutRow& each : held->rows) EXPECT_DOUBLE_EQ(each.left_out, each.present);
  const nlohmann::json json = to_json(*found);
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream schema(std::string(source) + "/docs/schema/validate.schema.json");
  EXPECT_EQ(departures(json, nlohmann::json::parse(schema)["properties"]["left_out"]), std::vector<std::string>{});
  EXPECT_EQ(json["publications"][1]["publication"], "b.csv");
  EXPECT_THAT(describe(*found), HasSubstr("mean over publications"));
}

TEST(LeaveOut, OnePublicationCannotBeLeftOut) {
  std::vector<MeasuredFile> files = two_tables({1, 1});
  files.pop_back();
  const Result<LeftOut> found = leave_out(files, {}, {.rules = published_rules(), .threads = 1});
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("two publications"));
  const Result<LeftOut> misspelt =
      leave_out(two_tables({1, 1}), {}, {.rules = published_rules(), .held_out = {"c.csv"}, .threads = 1});
  ASSERT_FALSE(misspelt.ok());
  EXPECT_THAT(misspelt.error().message, HasSubstr("--held-out 'c.csv': not among the tables"));
}

}  // namespace
}  // namespace weft
