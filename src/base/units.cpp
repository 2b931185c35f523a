#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

namespace weft {
namespace {

struct Unit {
  std::string_view name;
  double factor;  // one of this unit in the base unit
};

constexpr double kKi = 1024.0, kMi = kKi * 1024, kGi = kMi * 1024, kTi = kGi * 1024, kPi = kTi * 1024;

constexpr Unit kByteUnits[] = {{"B", 1},     {"kB", 1e3},  {"KB", 1e3},  {"MB", 1e6},  {"GB", 1e9},  {"TB", 1e12},
                               {"PB", 1e15}, {"KiB", kKi}, {"MiB", kMi}, {"GiB", kGi}, {"TiB", kTi}, {"PiB", kPi}};
constexpr Unit kTimeUnits[] = {{"s", 1},      {"ms", 1e-3}, {"us", 1e-6}, {"µs", 1e-6}, {"ns", 1e-9},
                               {"ps", 1e-12}, {"min", 60},  {"h", 3600},  {"d", 86400}};
constexpr Unit kBandwidthUnits[] = {{"B/s", 1},        {"kB/s", 1e3},     {"KB/s", 1e3},     {"MB/s", 1e6},
                                    {"GB/s", 1e9},     {"TB/s", 1e12},    {"PB/s", 1e15},    {"KiB/s", kKi},
                                    {"MiB/s", kMi},    {"GiB/s", kGi},    {"TiB/s", kTi},    {"bps", 1.0 / 8},
                                    {"kbps", 1e3 / 8}, {"Mbps", 1e6 / 8}, {"Gbps", 1e9 / 8}, {"Tbps", 1e12 / 8},
                                    {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8}, {"Tb/s", 1e12 / 8}};
constexpr Unit kFlopRateUnits[] = {{"FLOPS", 1},      {"MFLOPS", 1e6},  {"GFLOPS", 1e9},  {"TFLOPS", 1e12},
                                   {"PFLOPS", 1e15},  {"FLOP/s", 1},    {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9},
                                   {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// A non-negative finite number followed by one of `units`, in the base unit.
Result<double> parse_quantity(std::string_view text, std::span<const Unit> units, std::string_view examples) {
  const std::string_view body = trim(text);
  double number = 0;
  const auto [rest, status] = std::from_chars(body.data(), body.data() + body.size(), number);
  if (status == std::errc::result_out_of_range) return error("'{}': number out of range", text);
  if (status != std::errc()) return error("'{}': not a number; write {}", text, examples);
  if (!std::isfinite(number)) return error("'{}': not a finite number; write {}", text, examples);
  if (number < 0 || std::signbit(number)) return error("'{}': negative", text);
  const std::string_view unit = trim(body.substr(static_cast<std::size_t>(rest - body.data())));
  if (unit.empty()) return error("'{}': unit missing; write {}", text, examples);
  for (const Unit& candidate : units)
    if (candidate.name == unit) return number * candidate.factor;
  return error("'{}': unknown unit '{}'; write {}", text, unit, examples);
}

// The shortest "number unit" that parses back to exactly `value`: first unit whose number is at least 1 and
// round-trips.
std::string exact_in(double value, std::span<const Unit> largest_first) {
  for (const Unit& unit : largest_first) {
    const double number = value / unit.factor;
    if (number >= 1 && number * unit.factor == value) return fmt::format("{}{}", number, unit.name);
  }
  return fmt::format("{}{}", value, largest_first.back().name);
}

// Three significant digits in the largest unit that keeps the number at or above 1.
std::string human_in(double value, std::span<const Unit> largest_first) {
  const Unit* chosen = &largest_first.back();
  for (const Unit& unit : largest_first)
    if (std::fabs(value) >= unit.factor * 0.9995) {
      chosen = &unit;
      break;
    }
  const double number = value / chosen->factor;
  const double size = std::fabs(number);
  if (number == std::floor(number) && size < 1000) return fmt::format("{:.0f} {}", number, chosen->name);
  return fmt::format("{:.{}f} {}", number, size < 9.995 ? 2 : size < 99.95 ? 1 : 0, chosen->name);
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  WEFT_TRY(const double bytes, parse_quantity(text, kByteUnits, "80GiB or 80GB"));
  if (bytes >= 0x1.0p63) return error("'{}': more than 2^63 bytes", text);
  return Bytes{std::llround(bytes)};
}
Result<Seconds> parse_seconds(std::string_view text) {
  WEFT_TRY(const double seconds, parse_quantity(text, kTimeUnits, "2us or 1.5s"));
  return Seconds{seconds};
}
Result<BytesPerSecond> parse_bandwidth(std::string_view text) {
  WEFT_TRY(const double rate, parse_quantity(text, kBandwidthUnits, "400Gbps or 50GB/s"));
  return BytesPerSecond{rate};
}
Result<FlopsPerSecond> parse_flop_rate(std::string_view text) {
  WEFT_TRY(const double rate, parse_quantity(text, kFlopRateUnits, "989TFLOPS"));
  return FlopsPerSecond{rate};
}

std::string exact(Bytes bytes) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 7> units = {{{"TiB", 1LL << 40},
                                                                               {"GiB", 1LL << 30},
                                                                               {"MiB", 1LL << 20},
                                                                               {"GB", 1'000'000'000},
                                                                               {"MB", 1'000'000},
                                                                               {"KiB", 1LL << 10},
                                                                               {"kB", 1000}}};
  for (const auto& [name, factor] : units)
    if (bytes.value >= factor && bytes.value % factor == 0) return fmt::format("{}{}", bytes.value / factor, name);
  return fmt::format("{}B", bytes.value);
}
std::string exact(Seconds seconds) {
  constexpr Unit units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"s", 1}};
  return exact_in(seconds.value, units);
}
std::string exact(BytesPerSecond rate) {
  constexpr Unit units[] = {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"B/s", 1}};
  return exact_in(rate.value, units);
}
std::string exact(FlopsPerSecond rate) {
  constexpr Unit units[] = {{"PFLOPS", 1e15}, {"TFLOPS", 1e12}, {"GFLOPS", 1e9}, {"FLOPS", 1}};
  return exact_in(rate.value, units);
}

std::string human(Bytes bytes) {
  constexpr Unit units[] = {{"PiB", kPi}, {"TiB", kTi}, {"GiB", kGi}, {"MiB", kMi}, {"KiB", kKi}, {"B", 1}};
  return human_in(static_cast<double>(bytes.value), units);
}
std::string human(Seconds seconds) {
  constexpr Unit units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"ps", 1e-12}};
  return human_in(seconds.value, units);
}
std::string human(Flops flops) {
  constexpr Unit units[] = {{"ZFLOP", 1e21}, {"EFLOP", 1e18}, {"PFLOP", 1e15}, {"TFLOP", 1e12},
                            {"GFLOP", 1e9},  {"MFLOP", 1e6},  {"kFLOP", 1e3},  {"FLOP", 1}};
  return human_in(flops.value, units);
}
std::string human(BytesPerSecond rate) {
  constexpr Unit units[] = {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}};
  return human_in(rate.value, units);
}
std::string human(FlopsPerSecond rate) {
  constexpr Unit units[] = {{"EFLOPS", 1e18}, {"PFLOPS", 1e15}, {"TFLOPS", 1e12},
                            {"GFLOPS", 1e9},  {"MFLOPS", 1e6},  {"FLOPS", 1}};
  return human_in(rate.value, units);
}

std::string human_count(double count) {
  constexpr Unit units[] = {{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1}};
  std::string text = human_in(count, units);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

std::string grouped(std::int64_t count) {
  std::string digits = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

Result<std::int64_t> parse_integer(std::string_view text, std::string_view what) {
  const std::string_view body = trim(text);
  std::int64_t value = 0;
  const auto [rest, status] = std::from_chars(body.data(), body.data() + body.size(), value);
  if (status == std::errc::result_out_of_range) return error("{} '{}': does not fit 64 bits", what, text);
  if (status != std::errc() || rest != body.data() + body.size())
    return error("{} '{}': not a whole number", what, text);
  return value;
}

}  // namespace weft
