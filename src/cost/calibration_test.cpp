#include "cost/calibration.h"

#include <gmock/gmock.h>

namespace weft {
namespace {

TEST(Calibration, LaysConstantsOverTheBuiltInOnes) {
  const Result<Calibration> read = parse_calibration(
      "sources: {mine: twelve runs}\n"
      "devices: {a100-80-sxm: {sustained: {bf16: [0.5, mine]}, kernel: [7us, mine]}}\n"
      "links: {nic: {efficiency: 0.8}}\n"
      "stacks: {megatron-lm: {host_per_operator: [9us, mine], product_rate: [0.5, mine]}}\n",
      "c.yaml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_DOUBLE_EQ(read->value("devices/a100-80-sxm/sustained/bf16").value(), 0.5);
  EXPECT_DOUBLE_EQ(read->value("devices/a100-80-sxm/kernel").value(), 7e-6);
  EXPECT_DOUBLE_EQ(read->value("links/nic/efficiency").value(), 0.8);
  EXPECT_DOUBLE_EQ(read->value("stacks/megatron-lm/host_per_operator").value(), 9e-6);
  const SoftwareStack stack = read->over(find_stack("megatron-lm").value());
  EXPECT_DOUBLE_EQ(stack.host_per_operator.value.value, 9e-6);
  EXPECT_EQ(stack.product_rate.source, "twelve runs");
  // Constants that it does not contain are unchanged.
  const Calibration before;
  EXPECT_DOUBLE_EQ(read->value("devices/h100-sxm/sustained/bf16").value(),
                   before.value("devices/h100-sxm/sustained/bf16").value());
  EXPECT_EQ(read->over(find_stack("pytorch-fsdp").value()), find_stack("pytorch-fsdp").value());
}

TEST(Calibration, SaysWhatIsWrongInPlace) {
  const auto message = [](const char* text) {
    const Result<Calibration> read = parse_calibration(text, "c.yaml");
    return read.ok() ? std::string("read") : read.error().message;
  };
  EXPECT_THAT(message("stacks: {megatron: {product_rate: 0.5}}\n"), testing::HasSubstr("c.yaml:1"));
  EXPECT_THAT(message("stacks:\n  megatron-lm: {product_rate: 1.5}\n"), testing::HasSubstr("at most 1"));
  EXPECT_THAT(message("stacks:\n  megatron-lm: {nvls: 1}\n"), testing::HasSubstr("nvls"));
  EXPECT_THAT(message("devices: {a100-80-sxm: {kernl: 3us}}\n"), testing::HasSubstr("kernel"));
  EXPECT_THAT(message("surprises: {}\n"), testing::HasSubstr("surprises"));
  Calibration calibration;
  EXPECT_FALSE(calibration.set("devices/a100-80-sxm/tiles", 1, "").ok());
  EXPECT_FALSE(calibration.set("links/nic/efficiency", 1.5, "").ok());
  EXPECT_FALSE(calibration.value("devices/nobody/kernel").ok());
  EXPECT_TRUE(is_time("protocols/simple/start"));
  EXPECT_FALSE(is_time("links/nic/efficiency"));
}

}  // namespace
}  // namespace weft
