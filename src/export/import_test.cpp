// What importers must not take for theirs, and what damaged files must not do to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "export_law.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string exported(Target target, const char* model, const char* strategy, const char* stack) {
  PlanRequest request{.model = model, .cluster = "dgx-h100:1", .strategy = strategy};
  request.global_batch = 64;
  request.seq = 2048;
  request.dtype = "bf16";
  request.stack = stack;
  return export_plan(target, make_plan(request).value()).value();
}

const std::map<Target, std::string>& configurations() {
  static const std::map<Target, std::string> made = {
      {Target::Megatron, exported(Target::Megatron, "llama3-8b", "tp=4,pp=2,stages=15+17,zero=1", "megatron-lm")},
      {Target::Torchtitan,
       exported(Target::Torchtitan, "llama3.1-8b", "tp=2,dp=4,zero=3,recompute=full", "torchtitan")},
      {Target::DeepSpeed, exported(Target::DeepSpeed, "gpt3-1.3b", "dp=8,zero=2", "megatron-deepspeed")}};
  return made;
}

TEST(Import, AConfigurationOfAnotherTrainerIsRefusedWithItsName) {
  for (const auto& [reader, own] : configurations())
    for (const auto& [writer, text] : configurations()) {
      SCOPED_TRACE(fmt::format("{} read as {}", name_of(writer), name_of(reader)));
      const auto read = import_run(reader, text, "run.cfg");
      EXPECT_EQ(read.ok(), reader == writer) << (read.ok() ? "" : read.error().message);
      if (!read.ok()) {
        EXPECT_THAT(read.error().message, StartsWith("run.cfg"));
      }
      EXPECT_EQ(trainer_of_configuration(text), writer);
    }
}

TEST(Import, FilesOfNoTrainerAreRefused) {
  for (const Target target : {Target::Megatron, Target::Torchtitan, Target::DeepSpeed})
    for (const char* text :
         {"", "\n\n", "{}", "[]", "42", "model: llama3\n", "\xff\xfe\x00", "<xml/>", "import torch\n", "# nothing\n"}) {
      const auto read = import_run(target, text, "run.cfg");
      EXPECT_FALSE(read.ok()) << name_of(target) << ": " << text;
      if (!read.ok()) {
        EXPECT_THAT(read.error().message, HasSubstr("run.cfg")) << name_of(target) << ": " << text;
      }
    }
}

// Every line of an export said twice: at once an error, or the same run (a comment, an import, a brace).
TEST(Import, WhatIsSaidTwiceIsNeverSilentlyTaken) {
  int refused = 0;
  for (const auto& [target, text] : configurations())
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      const std::string line = text.substr(at, end - at), twice = text.substr(0, end) + line + text.substr(end);
      at = end;
      const auto read = import_run(target, twice, "run.cfg"), once = import_run(target, text, "run.cfg");
      if (read.ok()) {
        EXPECT_EQ(read->request.strategy, once->request.strategy) << line;
        EXPECT_EQ(read->request.global_batch, once->request.global_batch) << line;
        EXPECT_EQ(read->request.stack, once->request.stack) << line;
      } else {
        EXPECT_THAT(read.error().message, StartsWith("run.cfg")) << line;
        ++refused;
      }
    }
  EXPECT_GT(refused, 40);
}

TEST(Import, DamagedFilesAreErrorsWithTheirNameOrRuns) {
  Rng rng(11);
  const std::string_view pieces[] = {
      "",      "--",  "\"",   "'",    "{",  "}",  "[",  "(", ")",  ",",   ":", "=", "*", "-1", "99999999999999999999",
      "1e400", "nan", "True", "null", "\n", "\\", "$X", "#", "\t", "\xff"};
  for (const auto& [target, text] : configurations())
    for (int i = 0; i < 1500; ++i) {
      std::string damaged = text;
      for (std::uint64_t change = 0; change <= rng.below(3); ++change) {
        const std::size_t at = rng.below(damaged.size()),
                          length = std::min<std::size_t>(rng.below(12), damaged.size() - at);
        damaged.replace(at, length, pieces[rng.below(std::size(pieces))]);
      }
      const auto read = import_run(target, damaged, "run.cfg");
      if (!read.ok()) {
        EXPECT_THAT(read.error().message, HasSubstr("run.cfg")) << damaged;
      }
    }
}

}  // namespace
}  // namespace weft
