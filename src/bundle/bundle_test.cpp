// Bundles: what is written is what is read, and what is no bundle is refused with its place.
#include "bundle/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "program_cases.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Bundle small_bundle() {
  ProgramCase made = program_case(kSmallLlama, "tp=2,pp=2,ga=2");
  return {.model = kSmallLlama,
          .strategy = "tp=2,pp=2,ga=2",
          .numbers = Numbers::Float64,
          .learning_rate = 0.1,
          .seed = 18446744073709551615ULL,
          .vocabulary = 10,
          .graph = std::move(made.training.graph),
          .program = std::move(made.program),
          .schedule = std::move(made.schedule)};
}

std::string message_of(const std::string& text) {
  const Result<Bundle> read = parse_bundle(text, "run.weft");
  return read.ok() ? "" : read.error().message;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(Bundle, IsReadAsItWasWritten) {
  const Bundle bundle = small_bundle();
  const Result<Bundle> read = parse_bundle(print(bundle), "run.weft");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, bundle);
  EXPECT_EQ(print(*read), print(bundle));
}

TEST(Bundle, HasASmallerLastMicroBatchToo) {
  Bundle bundle = small_bundle();
  bundle.last = Bundle::Last{bundle.graph, bundle.program};
  const Result<Bundle> read = parse_bundle(print(bundle), "run.weft");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, bundle);
}

TEST(Bundle, DevicesAreNumberedByRank) {
  Program program;
  const auto mesh = [](std::vector<std::size_t> devices) {
    std::vector<DeviceId> ids;
    for (std::size_t device : devices) ids.emplace_back(device);
    return Mesh::make({{"x", static_cast<int>(ids.size())}}, ids).value();
  };
  program.world = program.meshes.push_back(mesh({0, 1, 8, 9}));
  program.meshes.push_back(mesh({9, 8}));
  const Program numbered = numbered_by_rank(program);
  EXPECT_EQ(numbered.meshes[MeshId(0)], mesh({0, 1, 2, 3}));
  EXPECT_EQ(numbered.meshes[MeshId(1)], mesh({3, 2}));
}

TEST(Bundle, ErrorsNameFileLineAndValue) {
  const std::string text = print(small_bundle());
  EXPECT_EQ(message_of(""), "run.weft: is empty; a bundle begins with 'weft bundle 1'");
  EXPECT_EQ(message_of("graph tiny\n"), "run.weft:1: 'graph tiny': no bundle, which begins with 'weft bundle 1'");
  EXPECT_EQ(message_of("weft bundle 7\n"),
            "run.weft:1: 'weft bundle 7': this weft reads version 1; write the bundle anew");
  EXPECT_EQ(message_of("weft bundle 1\n"), "run.weft: has no graph: 'begin graph' is missing");
  EXPECT_EQ(message_of(replaced(text, "numbers float64", "numbers float65")),
            "run.weft:4: numbers 'float65': write as-stored or float64");
  EXPECT_EQ(message_of(replaced(text, "learning-rate 0.1", "learning-rate ten")),
            "run.weft:5: learning-rate 'ten': not a number");
  EXPECT_EQ(message_of(replaced(text, "learning-rate 0.1", "learning-rate inf")),
            "run.weft:5: learning-rate inf: not finite");
  EXPECT_EQ(
      message_of(replaced(text, "seed 1", "sead 1")),
      "run.weft:6: 'sead': unknown word; write model, strategy, numbers, learning-rate, seed, vocabulary or begin");
  EXPECT_THAT(message_of(replaced(text, "end schedule", "end")), HasSubstr("'begin schedule' without 'end schedule'"));
  EXPECT_THAT(message_of(replaced(text, "\nop ", "\nopp ")), StartsWith("run.weft:"));
  EXPECT_THAT(message_of(replaced(text, "2 micro-batches", "3 micro-batches")), StartsWith("run.weft:"));
}

TEST(Bundle, WhatIsNoProgramIsRefused) {
  const std::string text = print(small_bundle());
  // Read before it is written, on other devices, and with a line that is gone.
  EXPECT_NE(message_of(replaced(text, "#0 ", "#1 ")), "");
  EXPECT_NE(message_of(replaced(text, "world m", "world m9")), "");
  const std::size_t at = text.find("  #3 "), end = text.find('\n', at);
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(message_of(text.substr(0, at) + text.substr(end + 1)), "");
}

// Cut off anywhere, or with a few bytes changed, it is read or refused.
TEST(Bundle, DamagedTextsDoNotCrash) {
  const std::string text = print(small_bundle());
  Rng rng(5);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    std::string damaged = text;
    if (i % 3 == 0) damaged.resize(rng.below(damaged.size()));
    for (int change = 0; change < 3 && i % 3 != 0; ++change)
      damaged[rng.below(damaged.size())] = static_cast<char>(' ' + rng.below(95));
    refused += parse_bundle(damaged, "run.weft").ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace weft
