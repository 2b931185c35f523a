#include "base/units.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weft {
namespace {

TEST(Units, ReadsTheSpellingsPeopleUse) {
  EXPECT_EQ(parse_bytes("80GiB")->value, 80LL << 30);
  EXPECT_EQ(parse_bytes("1.5 TB")->value, 1'500'000'000'000);
  EXPECT_EQ(parse_bandwidth("400Gbps")->value, 50e9);  // 400 / 8
  EXPECT_EQ(parse_bandwidth("50GB/s")->value, 50e9);
  EXPECT_EQ(parse_flop_rate("989TFLOPS")->value, 989e12);
  EXPECT_EQ(parse_seconds("2us")->value, 2e-6);
}

TEST(Units, RefusesWhatIsNotAQuantityAndSaysWhatToWrite) {
  EXPECT_EQ(parse_bandwidth("400").error().message, "'400': unit missing; write 400Gbps or 50GB/s");
  EXPECT_EQ(parse_bandwidth("400Gib").error().message, "'400Gib': unknown unit 'Gib'; write 400Gbps or 50GB/s");
  EXPECT_EQ(parse_bytes("-1GB").error().message, "'-1GB': negative");
  EXPECT_EQ(parse_bytes("-0GB").error().message, "'-0GB': negative");
  EXPECT_EQ(parse_bytes("nanGB").error().message, "'nanGB': not a finite number; write 80GiB or 80GB");
  EXPECT_EQ(parse_bytes("").error().message, "'': not a number; write 80GiB or 80GB");
  EXPECT_EQ(parse_bytes("1e400GB").error().message, "'1e400GB': number out of range");
  EXPECT_EQ(parse_bytes("9e18kB").error().message, "'9e18kB': more than 2^63 bytes");
  EXPECT_EQ(parse_integer("12x", "layers").error().message, "layers '12x': not a whole number");
}

TEST(Units, PrintsThreeDigitsForPeople) {
  EXPECT_EQ(human(Bytes{80LL << 30}), "80 GiB");
  EXPECT_EQ(human(Seconds{2.5e-6}), "2.50 us");
  EXPECT_EQ(human(Flops{8.178e9}), "8.18 GFLOP");
  EXPECT_EQ(human(BytesPerSecond{450e9}), "450 GB/s");
  EXPECT_EQ(human_count(70'553'706'496), "70.6 B");
  EXPECT_EQ(human_count(999.6e6), "1.00 B");  // never "1000 M"
  EXPECT_EQ(grouped(70'553'706'496), "70,553,706,496");
  EXPECT_EQ(grouped(-1234), "-1,234");
  EXPECT_EQ(grouped(123), "123");
}

RC_GTEST_PROP(Units, ParseUndoesExact, ()) {
  const auto bytes = *rc::gen::inRange<std::int64_t>(0, 1LL << 52);
  RC_ASSERT(parse_bytes(exact(Bytes{bytes}))->value == bytes);
  const double number =
      static_cast<double>(*rc::gen::inRange<std::int64_t>(0, 1LL << 52)) / *rc::gen::inRange(1, 100000);
  RC_ASSERT(parse_seconds(exact(Seconds{number * 1e-9}))->value == number * 1e-9);
  RC_ASSERT(parse_bandwidth(exact(BytesPerSecond{number}))->value == number);
  RC_ASSERT(parse_flop_rate(exact(FlopsPerSecond{number}))->value == number);
}

}  // namespace
}  // namespace weft
