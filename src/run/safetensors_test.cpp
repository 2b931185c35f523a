#include "run/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "run/json_text.h"

namespace weft::runtime {
namespace {

using testing::HasSubstr;

TEST(Json, ReadsWhatHeadersHave) {
  const Json json = parse_json(R"( {"a": [1, -2.5e3, true, null], "b\u00e9\ud83d\ude00": {"c": "x\n"}} )").value();
  EXPECT_EQ(json.keys, (std::vector<std::string>{"a", "b\xc3\xa9\xf0\x9f\x98\x80"}));
  EXPECT_EQ(json.find("a")->values[0].whole_number(), 1);
  EXPECT_EQ(json.find("a")->values[1].whole_number(), std::nullopt);
  EXPECT_EQ(json.values[1].find("c")->text, "x\n");
  EXPECT_EQ(parse_json(json_string("\"\\\n\x01 é")).value().text, "\"\\\n\x01 é");
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1,}", "{a:1}", "01", "1.", "1e", "\"\\x\"", "\"\\ud800\"", "\"a",
                           "\"a\nb\"", "[1 2]", "{} {}", "nul", "+1", "{\"a\":1,\"a\":2}", "\"\\u12"})
    EXPECT_FALSE(parse_json(text).ok()) << text;
  EXPECT_THAT(parse_json(std::string(100000, '[')).error().message, HasSubstr("nested too deeply"));
}

SafetensorsHeader two_tensors() {
  return {{{"w", DType::F32, {2, 3}, 0, 24}, {"m \"quoted\"", DType::BF16, {}, 24, 26}}, {{"format", "pt"}}};
}

TEST(Safetensors, WhatIsPrintedIsRead) {
  const std::string text = print(two_tensors());
  EXPECT_EQ(text.size() % 8, 0U);
  EXPECT_EQ(static_cast<std::size_t>(static_cast<unsigned char>(text[0])) + 8, text.size());  // less than 256 bytes
  EXPECT_EQ(parse_safetensors(text, static_cast<std::int64_t>(text.size()) + 26).value(), two_tensors());
}

std::string with_header(std::string json) {
  std::string length(8, '\0');
  length[0] = static_cast<char>(json.size() & 0xff);
  length[1] = static_cast<char>(json.size() >> 8);
  return length + json;
}

TEST(Safetensors, WhatDoesNotFitIsRefusedWithTheReason) {
  const auto message = [](const std::string& json, std::int64_t data_bytes) {
    const std::string text = with_header(json);
    return parse_safetensors(text, static_cast<std::int64_t>(text.size()) + data_bytes).error().message;
  };
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(message(one + "}", 7), "its tensors take 8 bytes, and 7 are there; the file is cut off");
  EXPECT_EQ(message(one + "}", 9), "its tensors take 8 bytes, and 9 are there; the file is longer than it says");
  EXPECT_EQ(message(one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
            "tensor 'b': begins at byte 4, inside the one before it");
  EXPECT_EQ(message(one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16),
            "tensor 'b': begins at byte 12, after a gap");
  EXPECT_EQ(message(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
            "tensor 'a': F32 of shape [3] do not fit the bytes from 0 to 8");
  EXPECT_EQ(message(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
            "tensor 'a': F32 of shape [4294967296, 4294967296] do not fit the bytes from 0 to 0");
  EXPECT_THAT(message(R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", 8), HasSubstr("dtype 'C64'"));
  EXPECT_THAT(message(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", 8), HasSubstr("'-1'"));
  EXPECT_THAT(message(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("has not just dtype"));
  EXPECT_THAT(message("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(parse_safetensors("1234", 4).error().message, HasSubstr("no safetensors file"));
  EXPECT_THAT(parse_safetensors(std::string(16, '\xff'), 16).error().message, HasSubstr("no safetensors file"));
  EXPECT_THAT(parse_safetensors(with_header(one).substr(0, 20), 20).error().message, HasSubstr("within its header"));
}

TEST(Safetensors, AFileIsMappedAndItsTensorsAreWhereTheHeaderSays) {
  const auto path = std::filesystem::temp_directory_path() / ("weft-safetensors-" + std::to_string(::getpid()));
  std::string data(26, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i);
  std::ofstream(path, std::ios::binary) << print(two_tensors()) << data;
  const SafetensorsFile file = SafetensorsFile::open(path).value();
  EXPECT_EQ(file.header(), two_tensors());
  EXPECT_EQ(file.bytes(file.header().tensors[1])[0], std::byte{24});
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THAT(SafetensorsFile::open(path).error().message, HasSubstr("the file is cut off"));
  std::filesystem::remove(path);
  EXPECT_THAT(SafetensorsFile::open(path).error().message, HasSubstr("No such file"));
}

}  // namespace
}  // namespace weft::runtime
