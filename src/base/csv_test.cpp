#include "base/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Csv, ReadsQuotesCommasLineBreaksAndCarriageReturns) {
  const Result<CsvTable> table =
      parse_csv("\xef\xbb\xbfGPU , notes,n\r\nA100,\"a, \"\"b\"\"\nc\",1\r\n\r\n H100 ,,\r\nlast\n", "t.csv");
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(table->columns, ElementsAre("gpu", "notes", "n"));
  ASSERT_EQ(table->rows.size(), 3u);
  EXPECT_THAT(table->rows[0].cells, ElementsAre("A100", "a, \"b\"\nc", "1"));
  EXPECT_EQ(table->rows[0].line, 2);
  EXPECT_THAT(table->rows[1].cells, ElementsAre("H100", "", ""));
  EXPECT_EQ(table->rows[1].line, 5);  // the quoted line break and the blank line count
  EXPECT_THAT(table->rows[2].cells, ElementsAre("last", "", ""));
}

TEST(Csv, RowsThatCannotBeReadAreAtFault) {
  const Result<CsvTable> table = parse_csv("a,b\n1,2,3\n\"open,4\n5,6\n", "t.csv");
  ASSERT_TRUE(table.ok());
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->rows[0].fault, "3 cells, but 2 columns");
  EXPECT_THAT(table->rows[1].fault, HasSubstr("never closed"));
}

TEST(Csv, AFileWithoutAHeaderOrWithAColumnTwiceIsAnError) {
  EXPECT_THAT(parse_csv("\n\n", "t.csv").error().message, HasSubstr("t.csv: no header"));
  EXPECT_THAT(parse_csv("a,b,A\n", "t.csv").error().message, HasSubstr("t.csv:1: column 'a' is there twice"));
  EXPECT_THAT(read_csv("/nowhere.csv").error().message, HasSubstr("/nowhere.csv: cannot be read: No such file"));
}

RC_GTEST_PROP(CsvLaws, WhatIsQuotedComesBack, ()) {
  const auto cells = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(
      rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab,\"\n ")))));
  std::string text, header;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    header += fmt::format("{}c{}", i == 0 ? "" : ",", i);
    text += i == 0 ? "\"" : ",\"";
    for (char c : cells[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
    text += '"';
  }
  const Result<CsvTable> table = parse_csv(header + "\n" + text + "\n", "t.csv");
  RC_ASSERT(table.ok());
  RC_ASSERT(table->rows.size() == 1u);
  RC_ASSERT(table->rows[0].cells == cells);
}

}  // namespace
}  // namespace weft
