#include "profile/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weft {
namespace {

using testing::HasSubstr;

constexpr const char* kHeader =
    "family,operator,attributes,shapes,dtype,direction,variant,cache,us_median,us_p10,us_p90,repeats,device,torch\n";

ProfileTable rows(const std::string& text, const ProfileTableOptions& options = {}) {
  return profile_rows(parse_csv(text, "t.csv").value(), "t.csv", options).value();
}

TEST(ProfileTable, ReadsWhatMeasureGpuWrites) {
  const ProfileTable table = rows(
      std::string(kHeader) +
          "gemm,linear,{transposed=1},\"bf16[64,32] bf16[16,32]\",bf16,grad_weight,cublas,cold,20,18,23.1262,60,NVIDIA "
          "H200,2.11\n"
          "copy,copy_to_host,,f32[256],f32,forward,pinned,cold,5,5,5,9,NVIDIA H200,2.11\n",
      {.date = "2026-11-15", .source = "o.csv"});
  ASSERT_TRUE(table.skipped.empty());
  ASSERT_EQ(table.events.size(), 2u);
  const Event& product = table.events[0].event;
  EXPECT_EQ(product, (Event{.device = "NVIDIA H200",
                            .stack = "torch 2.11",
                            .op = "linear",
                            .variant = "cublas",
                            .cache = "cold",
                            .attributes = "{transposed=1}",
                            .shapes = "bf16[64,32] bf16[16,32]",
                            .dtype = "bf16",
                            .direction = "grad_weight"}));
  const Sample& sample = table.events[0].samples.front();
  EXPECT_DOUBLE_EQ(sample.mean_s, 20e-6);
  EXPECT_NEAR(sample.spread_s, 2e-6, 1e-11);  // (23.1262 − 18) / 2.5631
  EXPECT_EQ(sample.date, "2026-11-15");
  const Event& copy = table.events[1].event;
  EXPECT_EQ(copy.op, "host-copy");
  EXPECT_EQ(copy.direction, "to_host");
  EXPECT_EQ(copy.bytes, 1024);
  EXPECT_EQ(signature_of(product)->gradient, "grad_weight");
}

TEST(ProfileTable, RowsThatCannotBeUsedAreSkippedWithTheirLineAndReason) {
  const std::string good = "bf16,forward,cublas,cold,20,18,23,60,H,2\n";
  const ProfileTable table = rows(
      std::string(kHeader) + "gemm,linera,,\"bf16[64,32] bf16[32,16]\"," + good +
      "gemm,linear,,\"bf16[64,32] bf16[31,16]\"," + good +
      "gemm,linear,,\"bf16[64,32] bf16[32,16]\",bf16,backward,cublas,cold,20,18,23,60,H,2\n" +
      "gemm,linear,,\"bf16[64,32] bf16[32,16]\",bf16,forward,cublas,cold,-1,-2,0,60,H,2\n" +
      "gemm,linear,,\"bf16[64,32] bf16[32,16]\",bf16,forward,cublas,cold,fast,1,2,60,H,2\n" +
      "gemm,linear,,\"bf16[64,32] bf16[32,16]\",bf16,forward,cublas,cold,20,18,23,0,H,2\n" +
      "host,linear,,,bf16,forward,no_grad,warm,20,18,23,60,H,2\n" + "gemm,linear,,\"bf16[64,32] bf16[32,16]\"," + good);
  EXPECT_EQ(table.events.size(), 1u);
  ASSERT_EQ(table.skipped.size(), 7u);
  const std::pair<int, const char*> expected[] = {{2, "operator 'linera': Weft has none of that name; did you mean"},
                                                  {3, "linear"},
                                                  {4, "direction 'backward': linear has forward, grad_input, grad_w"},
                                                  {5, "time of -1"},
                                                  {6, "us_median 'fast': not a number"},
                                                  {7, "count 0: from 1"},
                                                  {8, "host time"}};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(table.skipped[i].line, expected[i].first);
    EXPECT_THAT(table.skipped[i].reason, HasSubstr(expected[i].second));
  }
}

TEST(ProfileTable, OtherTablesAreAnError) {
  const auto none = profile_rows(parse_csv("gpu,gpus,model\n", "runs.csv").value(), "runs.csv", {});
  EXPECT_THAT(none.error().message, HasSubstr("runs.csv: no column 'device': neither a profile"));
}

RC_GTEST_PROP(ProfileTableLaws, WhatIsWrittenIsReadBack, ()) {
  std::vector<MeasuredEvent> events;
  const int count = *rc::gen::inRange(0, 8);
  const auto word = [] { return *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab,\"\n 2"))); };
  for (int i = 0; i < count; ++i) {
    Event event{.device = "d" + word() + "e", .stack = "", .variant = "v" + word() + "w"};
    if (*rc::gen::arbitrary<bool>()) {
      event.op = "all-gather";
      event.nodes = *rc::gen::inRange(1, 9);
      event.most_per_node = *rc::gen::inRange(1, 9);
      event.members = event.nodes * event.most_per_node;
      event.bytes = *rc::gen::inRange<std::int64_t>(1, 1 << 30);
    } else {
      event.op = "unary";
      event.attributes = "{fn=\"gelu\"}";
      event.shapes = fmt::format("bf16[{}]", *rc::gen::inRange(1, 99999));
      event.direction = *rc::gen::element<std::string>("forward", "grad");
    }
    const double mean = *rc::gen::inRange(1, 1 << 30) * 1.1e-9;
    events.push_back({event, {{mean, mean / 7, *rc::gen::inRange(1, 100), "2026-01-01", "s" + word() + "t"}}});
  }
  const ProfileTable table = rows(profile_csv(events));
  RC_ASSERT(table.skipped.empty());
  RC_ASSERT(table.events == events);
}

}  // namespace
}  // namespace weft
