#include "report/table.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCellAndLongCellsGoOnBelow) {
  Table table{{{}, {.right = true}, {.most = 7}}};
  table.add({"name", "size", "words"});
  table.add({"·x", "12", "one two three"});
  EXPECT_EQ(table.print(),
            "  name  size  words\n"
            "  ·x      12  one two\n"
            "              three\n");
}

TEST(Table, AWordThatIsTooLongGoesOnAfterAPlus) {
  Table table{{{.most = 9}, {}}};
  table.add({"op full=aa+bb+cc", "x"});
  table.add({"unbreakable", "y"});
  EXPECT_EQ(table.print(),
            "  op           x\n"
            "  full=aa+\n"
            "  bb+cc\n"
            "  unbreakable  y\n");
}

TEST(Table, WordsAreWrappedAtTheWidth) {
  EXPECT_EQ(wrapped({"aa", "bb", "cc"}, ", ", " ", 8), " aa, bb,\n cc\n");  // " aa, bb," is 8 wide
}

TEST(Table, NumbersAreListedAsRanges) {
  EXPECT_EQ(ranges({0, 1, 2, 3, 8, 10, 11}), "0–3, 8, 10, 11");
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(short_list({0, 64, 128, 192, 256, 320}), "0, 64, 128, 192, 256, 320");
  EXPECT_EQ(short_list({0, 64, 128, 192, 256, 320, 384}), "0, 64, 128 … 384");
}

}  // namespace
}  // namespace weft
