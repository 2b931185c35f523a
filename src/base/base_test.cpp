#include <gtest/gtest.h>

#include <set>

#include "base/checked.h"
#include "base/id.h"
#include "base/random.h"
#include "base/result.h"
#include "base/suggest.h"

namespace weft {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return error("{} is odd", number);
  return number / 2;
}
Result<int> quarter(int number) {
  WEFT_TRY(const int once, half(number));
  return half(once);
}

TEST(Result, TryHandsTheFirstErrorOn) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_EQ(quarter(6).error().at("f.yaml", 3).message, "f.yaml:3: 3 is odd");
}

TEST(ResultDeathTest, ValueOfAnErrorIsOurBug) {
  EXPECT_DEATH((void)half(3).value(), "value\\(\\) of an error: 3 is odd");
}

TEST(Id, ColumnsAreIndexedByTheirOwnIdsOnly) {
  using TaskId = Id<struct TaskTag>;
  using DeviceId = Id<struct DeviceTag>;
  static_assert(!std::is_convertible_v<TaskId, DeviceId>);
  IdVec<TaskId, int> finish;
  const TaskId first = finish.push_back(7);
  EXPECT_EQ(finish[first], 7);
  EXPECT_FALSE(TaskId().valid());
  int visited = 0;
  for (TaskId id : finish.ids()) visited += static_cast<int>(id.index()) + 1;
  EXPECT_EQ(visited, 1);
}

TEST(Checked, OverflowIsReportedNotWrapped) {
  EXPECT_EQ(checked_mul(1LL << 31, 1LL << 31), 1LL << 62);
  EXPECT_EQ(checked_mul(1LL << 32, 1LL << 31), std::nullopt);
  EXPECT_EQ(checked_add(INT64_MAX, 1), std::nullopt);
  const std::int64_t factors[] = {1LL << 40, 1LL << 20, 1LL << 10};
  EXPECT_EQ(checked_product(factors), std::nullopt);
}

TEST(Rng, SameSeedSameNumbersAndSplitsDoNotDependOnDraws) {
  Rng a(7), b(7);
  EXPECT_EQ(a.next(), b.next());
  const std::uint64_t before = Rng(7).split(3).next();
  for (int i = 0; i < 10; ++i) a.next();
  EXPECT_EQ(a.split(3).next(), before);
  EXPECT_NE(a.split(4).next(), before);
}

TEST(Rng, BelowCoversItsRangeEvenly) {
  Rng rng(1);
  int counts[6] = {};
  for (int i = 0; i < 60000; ++i) ++counts[rng.below(6)];
  for (int count : counts) EXPECT_NEAR(count, 10000, 400);  // 4 sigma: 4·sqrt(60000·1/6·5/6) = 365
}

TEST(Suggest, FindsTheNameMeant) {
  const std::string known[] = {"llama3-8b", "llama3-70b", "llama2-70b", "resnet50", "gpt3-175b"};
  EXPECT_EQ(nearest_names("lama3-70b", known).front(), "llama3-70b");
  EXPECT_EQ(nearest_names("ResNet-50", known).front(), "resnet50");
  EXPECT_EQ(nearest_names("llama", known).size(), 3u);
  EXPECT_TRUE(nearest_names("zzzzzzzz", known).empty());
  EXPECT_EQ(did_you_mean("gpt3-175", known), "; did you mean gpt3-175b?");
}

}  // namespace
}  // namespace weft
