// The peaks, memory and engines of one device. Every number has its source.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/arithmetic.h"
#include "base/units.h"

namespace weft {

// A number and where it comes from: a data sheet, a driver's report, or "estimate: ...".
template <class T>
struct Figure {
  T value{};
  std::string source;

  bool operator==(const Figure&) const = default;
};

struct DeviceSpec {
  std::string name;             // "h100-sxm": how specs and files call it
  std::string title;            // "H100 SXM 80 GB": how people call it
  std::string architecture;     // "Hopper"
  Figure<Bytes> memory;         // as sold
  Figure<Bytes> memory_usable;  // as the driver reports it: available to a program
  Figure<BytesPerSecond> memory_bandwidth;
  Figure<int> compute_units;  // streaming multiprocessors, compute units or cores
  Figure<int> copy_engines;   // copies that run concurrently with kernels
  std::array<std::optional<Figure<FlopsPerSecond>>, kArithmetics.size()> peaks;

  // The dense peak, or null if the device lacks the arithmetic (the cost model then chooses another).
  const Figure<FlopsPerSecond>* peak(Arithmetic arithmetic) const {
    const auto& figure = peaks[static_cast<std::size_t>(arithmetic)];
    return figure ? &*figure : nullptr;
  }

  bool operator==(const DeviceSpec&) const = default;
};

}  // namespace weft
