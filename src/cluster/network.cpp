#include "cluster/network.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/logarithm.h"

namespace weft {

namespace {

// The largest of n normal values is expected about this many standard deviations above their mean.
double of_slowest(std::int64_t n) {
  return n < 2 ? 0 : std::sqrt(2 * std::numbers::ln2 * log2_of(static_cast<double>(n)));
}

}  // namespace

double NetworkTraits::crowding(int nodes) const { return nodes > 1 ? 1 + collisions.value * log2_of(nodes) : 1; }

Seconds NetworkTraits::wait_for_last(int members) const { return jitter.value * of_slowest(members); }

double NetworkTraits::slowdown(std::int64_t devices, std::int64_t devices_of_node) const {
  return devices <= devices_of_node ? 1 : 1 + step_jitter.value * (of_slowest(devices) - of_slowest(devices_of_node));
}

std::string describe(const NetworkTraits& network) {
  if (network.name.empty()) return "not named, nothing is lost at scale";
  if (network.loses_nothing()) return fmt::format("{}: nothing is lost at scale", network.name);
  return fmt::format("{}: collisions {:g} per doubling of nodes, {} a message, jitter {} and {:g} % of steps",
                     network.name, network.collisions.value, human(network.message.value), human(network.jitter.value),
                     100 * network.step_jitter.value);
}

}  // namespace weft
