// Quantities carry their unit in their type: Seconds transfer_time(Bytes, BytesPerSecond, Seconds latency).
//
// Text to quantity (`parse_*`) is checked: a number, then a unit that must be present and of the right kind:
//   "80GiB" "1.5TB" · "400Gbps" (bits) "50GB/s" (bytes) · "989TFLOPS" · "2us".
// Decimal prefixes k M G T P are powers of 1000, Ki Mi Gi Ti Pi powers of 1024.
// Quantity to text: `human` for people (three digits), `exact` for files (parse∘exact = identity).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

template <class Tag, class Rep>
struct Quantity {
  Rep value{};

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity other) const { return {value + other.value}; }
  constexpr Quantity operator-(Quantity other) const { return {value - other.value}; }
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity operator*(Rep factor) const { return {value * factor}; }
  constexpr Quantity operator/(Rep divisor) const { return {value / divisor}; }
  // How many of `other` fit: a plain number.
  constexpr double operator/(Quantity other) const {
    return static_cast<double>(value) / static_cast<double>(other.value);
  }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;
using Flops = Quantity<struct FlopsTag, double>;  // floating-point operations; exact up to 2^53
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;

constexpr Seconds operator/(Bytes bytes, BytesPerSecond rate) {
  return {static_cast<double>(bytes.value) / rate.value};
}
constexpr Seconds operator/(Flops flops, FlopsPerSecond rate) { return {flops.value / rate.value}; }

Result<Bytes> parse_bytes(std::string_view text);
Result<Seconds> parse_seconds(std::string_view text);
Result<BytesPerSecond> parse_bandwidth(std::string_view text);
Result<FlopsPerSecond> parse_flop_rate(std::string_view text);

std::string exact(Bytes bytes);
std::string exact(Seconds seconds);
std::string exact(BytesPerSecond rate);
std::string exact(FlopsPerSecond rate);

std::string human(Bytes bytes);          // "63.1 GiB"
std::string human(Seconds seconds);      // "2.00 us"
std::string human(Flops flops);          // "4.09 GFLOP"
std::string human(BytesPerSecond rate);  // "450 GB/s"
std::string human(FlopsPerSecond rate);  // "989 TFLOPS"

// A count for people: "70.6 B" of 70,553,706,496.
std::string human_count(double count);
// An integer with thousands separators: "70,553,706,496".
std::string grouped(std::int64_t count);

// A whole number, nothing before or after it, that fits 64 bits. `what` names it in the error.
Result<std::int64_t> parse_integer(std::string_view text, std::string_view what);

}  // namespace weft
