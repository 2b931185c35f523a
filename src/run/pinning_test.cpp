#include "run/pinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/busy_loops.h"

namespace weft::runtime {
namespace {

using Pinned = std::vector<Cores>;

TEST(Pinning, CoresAreDividedByThreadsAndNobodySharesOne) {
  EXPECT_EQ(pinned_cores("auto", {1, 1}, {0, 1}).value(), (Pinned{{0}, {1}}));
  EXPECT_EQ(pinned_cores("auto", {1, 1, 1}, {2, 3, 5, 7}).value(), (Pinned{{2}, {3}, {5, 7}}));  // ends at 4/3, 8/3, 4
  EXPECT_EQ(pinned_cores("auto", {1, 3}, {0, 1, 2, 3, 4, 5, 6, 7}).value(), (Pinned{{0, 1}, {2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(pinned_cores("auto", {4}, {0, 1, 2, 3}).value(), (Pinned{{0, 1, 2, 3}}));
}

TEST(Pinning, NobodyIsPinnedWhereCoresAreTooFew) {
  EXPECT_EQ(pinned_cores("auto", {1, 2}, {0, 1}).value(), (Pinned{{}, {}}));
  EXPECT_EQ(pinned_cores("none", {1, 1}, {0, 1}).value(), (Pinned{{}, {}}));
}

TEST(Pinning, AListHasAnEntryForEachRank) {
  EXPECT_EQ(pinned_cores("0,2-3", {1, 2}, {0, 1, 2, 3}).value(), (Pinned{{0}, {2, 3}}));
  const auto message = [](std::string_view words) { return pinned_cores(words, {1, 1}, {0, 1, 2, 3}).error().message; };
  EXPECT_EQ(message("0"), "--pin 0: 1 entries for 2 ranks; one for each");
  EXPECT_EQ(message("0,4"), "--pin 0,4: core 4 is not one that this process may use (4 of them, from 0 to 3)");
  for (const char* words : {"", "0,", "0,x", "0,3-2", "0,-1", "0,1-"})
    EXPECT_THAT(message(words), testing::HasSubstr("is no core and no range of cores")) << words;
}

TEST(Pinning, ThreadsAreOneForAllOrOneForEach) {
  EXPECT_EQ(threads_of_ranks("2", 3).value(), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(threads_of_ranks("1,4", 2).value(), (std::vector<int>{1, 4}));
  EXPECT_EQ(threads_of_ranks("1,4", 3).error().message,
            "--threads 1,4: 2 numbers for 3 ranks; one for each, or one for all");
  EXPECT_EQ(threads_of_ranks("0", 1).error().message, "--threads 0: '0' is not a number from 1 to 1024");
}

TEST(BusyLoops, ShareCoresThatARankHasForItself) {
  EXPECT_EQ(loops_of_ranks("0,1", {{0}, {1}}).value(), (std::vector<int>{0, 1}));
  EXPECT_EQ(loops_of_ranks("0", {{}, {}}).value(), (std::vector<int>{0, 0}));
  EXPECT_EQ(loops_of_ranks("1", {{0}, {}}).error().message,
            "--beside 1: rank 1 has no cores of its own to share; name them (--pin 0,1)");
  EXPECT_EQ(loops_of_ranks("0,x", {{0}, {1}}).error().message, "--beside 0,x: 'x' is not a number from 0 to 64");
}

}  // namespace
}  // namespace weft::runtime
