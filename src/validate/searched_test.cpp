#include "validate/searched.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "published_rules.h"

namespace weft {
namespace {

// Two problems, three plans of one and one of the other, also on a part of a node.
std::vector<MeasuredFile> small_file() {
  const Result<CsvTable> table = parse_csv(
      "source,gpu,gpus,gpus_per_node,model,seq,micro_batch,global_batch,dtype,tp,pp,dp,recompute,iter_time_s\n"
      "Megatron-LM,A100,8,8,gpt2,1024,4,64,bf16,1,1,8,full,0.1\n"
      "Megatron-LM,A100,8,8,gpt2,1024,4,64,bf16,2,1,4,none,0.2\n"
      "Megatron-LM,A100,8,8,gpt2,1024,1,64,bf16,2,2,2,none,0.2\n"
      "Megatron-LM,A100,4,2,gpt2,1024,4,64,bf16,2,1,2,none,0.3\n"
      "Megatron-LM,A100,8,8,gpt2,1024,4,64,bf16,5,1,2,none,0.3\n",
      "t.csv");
  return {measured_rows(*table, "t.csv").value()};
}

TEST(Searched, WhatIsFoundIsAtLeastAsFastAsWhatWasRun) {
  const SearchValidation found = validate_search(small_file(), {.rules = published_rules()});
  ASSERT_EQ(found.rows.size(), 4u);
  EXPECT_EQ(found.problems, 2u);
  EXPECT_EQ(found.skipped.size(), 1u);
  for (const SearchedRow& row : found.rows) {
    EXPECT_TRUE(row.holds()) << row.line << ": " << row.found << ", " << row.why;
    EXPECT_TRUE(row.why.empty()) << row.why;
    EXPECT_TRUE(row.published_fits);
  }
  EXPECT_EQ(found.rows[0].found, found.rows[1].found);
  EXPECT_NE(describe(found, 5).find("2 problems searched"), std::string::npos);
}

TEST(Searched, TheSameBytesWithAnyNumberOfThreads) {
  const std::string one = json_of(validate_search(small_file(), {.rules = published_rules(), .threads = 1}));
  EXPECT_EQ(one, json_of(validate_search(small_file(), {.rules = published_rules(), .threads = 3})));
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream schema(std::string(source) + "/docs/schema/validate-plan.schema.json");
  EXPECT_EQ(departures(nlohmann::json::parse(one), nlohmann::json::parse(schema)), std::vector<std::string>{});
}

// The plan that was run did fit: the search may use as much memory as it takes by the model.
TEST(Searched, APlanThatDoesNotFitByTheMemoryModelIsSearchedWithAsMuch) {
  const Result<CsvTable> table = parse_csv(
      "source,gpu,gpus,gpus_per_node,model,seq,micro_batch,global_batch,dtype,tp,pp,dp,recompute,iter_time_s\n"
      "Megatron-LM,A100,8,8,llama3-8b,8192,8,64,bf16,1,1,8,none,0.1\n",
      "t.csv");
  const SearchValidation found =
      validate_search({measured_rows(*table, "t.csv").value()}, {.rules = published_rules()});
  ASSERT_EQ(found.rows.size(), 1u);
  EXPECT_FALSE(found.rows[0].published_fits);
  EXPECT_TRUE(found.rows[0].holds()) << found.rows[0].why;
  EXPECT_NE(describe(found, 5).find("with more memory"), std::string::npos);
}

}  // namespace
}  // namespace weft
