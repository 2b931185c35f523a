#include "cost/tuning.h"

#include <gmock/gmock.h>

#include "cluster/library.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

DeviceSpec named(std::string name, std::string architecture) {
  DeviceSpec spec;
  spec.name = std::move(name);
  spec.architecture = std::move(architecture);
  return spec;
}

TEST(Tuning, ADeviceIsFoundByNameThenByArchitectureThenByDefault) {
  const Tuning& tuning = built_in_tuning();
  EXPECT_EQ(tuning.of(named("a100-80-sxm", "Ampere")).name, "a100-80-sxm");
  EXPECT_EQ(tuning.of(named("a10", "Ampere")).name, "Ampere");
  EXPECT_EQ(tuning.of(named("n1", "Neptune")).name, "default");
}

TEST(Tuning, EveryPresetDeviceHasAnEntryOfItsOwnOrItsArchitectures) {
  for (const auto& [name, spec] : preset_library().devices)
    EXPECT_NE(built_in_tuning().of(*spec).name, "default") << name;
}

TEST(Tuning, EveryFigureNamesItsSource) {
  for (const DeviceTuning& device : built_in_tuning().devices) {
    for (const ProductTuning& product : device.products) {
      EXPECT_GT(product.sustained.source.size(), 12u) << device.name;
      EXPECT_GT(product.tiles.source.size(), 12u) << device.name;
      EXPECT_GT(product.tile_overhead.source.size(), 12u) << device.name;
      EXPECT_GT(product.wave_quantisation.source.size(), 12u) << device.name;
    }
    for (const Figure<PassTuning>& pass : device.passes) EXPECT_TRUE(pass.value.share == 0 || pass.source.size() > 12);
    EXPECT_GT(device.kernel.source.size(), 12u) << device.name;
    EXPECT_GT(device.stream.source.size(), 12u) << device.name;
    EXPECT_GT(device.nvls.source.size(), 12u) << device.name;
  }
  const CommunicationTuning& communication = built_in_tuning().communication;
  for (const LinkTuning& link : communication.links) {
    EXPECT_GT(link.efficiency.value, 0);
    EXPECT_GT(link.efficiency.source.size(), 12u);
  }
  for (const ProtocolTuning& protocol : communication.protocols) EXPECT_GT(protocol.start.source.size(), 12u);
}

TEST(Tuning, AFileIsLaidOverTheBuiltInFigures) {
  const Result<Tuning> tuning =
      parse_tuning("devices: {h100-sxm: {like: Hopper, kernel: [4us, my bench]}}", "mine.yaml");
  ASSERT_TRUE(tuning.ok()) << tuning.error().message;
  const DeviceTuning& h100 = tuning->of(named("h100-sxm", "Hopper"));
  EXPECT_EQ(h100.kernel, (Figure<Seconds>{{4e-6}, "my bench"}));
  EXPECT_EQ(h100.nvls, built_in_tuning().of(named("h200", "Hopper")).nvls);
}

TEST(Tuning, FaultsNamePlaceValueAndRemedy) {
  const auto message = [](std::string_view text) {
    const Result<Tuning> tuning = parse_tuning(text, "mine.yaml");
    return tuning.ok() ? std::string("accepted") : tuning.error().message;
  };
  EXPECT_THAT(message("devices: {x: {stream: 1.5}}"), HasSubstr("mine.yaml:1: stream 1.5: from 0.001 to 1"));
  EXPECT_THAT(message("devices: {x: {kernel: 4}}"), HasSubstr("unit missing"));
  EXPECT_THAT(message("devices: {x: {like: Hoper}}"), HasSubstr("Hopper"));
  EXPECT_THAT(message("devices: {x: {tiles: [[], me]}}"), HasSubstr("tiles: none"));
  EXPECT_THAT(message("links: {nvlonk: {}}"), HasSubstr("nvlink"));
}

TEST(Tuning, AMissingArithmeticFallsBackOnTheNextWiderOneAndSaysSo) {
  const DeviceSpec& v100 = *preset_library().devices.at("v100-16");
  const ProductRate rate = product_rate(v100, Arithmetic::kBf16);
  EXPECT_EQ(rate.arithmetic, Arithmetic::kFp32);
  EXPECT_EQ(rate.peak.value, 15.7e12);
  EXPECT_THAT(std::string(rate.source), StartsWith("fallback"));
  EXPECT_EQ(product_rate(v100, Arithmetic::kFp16).source, v100.peak(Arithmetic::kFp16)->source);
}

TEST(Tuning, ADeviceWithoutFiguresGetsOnesThatSayTheyStandIn) {
  const DeviceSpec bare = named("bare", "");
  EXPECT_GT(product_rate(bare, Arithmetic::kFp8).peak.value, 0);
  EXPECT_THAT(std::string(product_rate(bare, Arithmetic::kFp8).source), StartsWith("fallback"));
  EXPECT_THAT(std::string(memory_rate(bare).source), StartsWith("fallback"));
  EXPECT_THAT(std::string(compute_units(bare).source), StartsWith("fallback"));
}

}  // namespace
}  // namespace weft
