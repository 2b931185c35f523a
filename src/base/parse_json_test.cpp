#include "base/parse_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

TEST(ParseJson, AnErrorNamesTheFileTheLineAndTheColumn) {
  EXPECT_EQ((*parse_json("{\"a\": 1}", "f.json"))["a"], 1);
  EXPECT_EQ(parse_json("{\n \"a\": 1,,\n}", "f.json").error().message, "f.json:2: not valid JSON at column 9");
  EXPECT_EQ(parse_json("{\n", "f.json").error().message,
            "f.json:2: not valid JSON at column 1: the file ends too early");
}

}  // namespace
}  // namespace weft
