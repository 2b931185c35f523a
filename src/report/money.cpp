#include "report/money.h"

#include <fmt/format.h>

#include "base/units.h"

namespace weft {

double dollars(double price, std::int64_t devices, double seconds) {
  return price * static_cast<double>(devices) * seconds / 3600;
}

std::string money(double dollars) {
  if (dollars >= 1e6) return fmt::format("${:.3g} M", dollars / 1e6);
  if (dollars >= 1000) return fmt::format("${}", grouped(static_cast<std::int64_t>(dollars + 0.5)));
  return dollars >= 0.01 ? fmt::format("${:.2f}", dollars) : fmt::format("${:.2g}", dollars);
}

}  // namespace weft
