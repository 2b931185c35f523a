#include "forecast/uncertainty.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cost/tuning.h"
#include "plan/plan.h"

namespace weft {
namespace {

// The devices' own kinds, in the order of ranks, each once.
std::vector<std::string> device_kinds(const Plan& plan, const std::vector<DeviceId>& ranks) {
  std::vector<std::string> kinds;
  const DeviceSpec* last = nullptr;
  for (DeviceId device : ranks) {
    const DeviceSpec& spec = plan.cluster().spec(device);
    if (std::exchange(last, &spec) == &spec) continue;
    if (std::find(kinds.begin(), kinds.end(), spec.name) == kinds.end()) kinds.push_back(spec.name);
  }
  return kinds;
}

// The network between the nodes of these devices, other than InfiniBand, on which the constants of networks were measured;
// empty: there is none, or one node.
std::string other_network(const Cluster& cluster, const std::vector<DeviceId>& ranks) {
  std::string name;
  bool several = false;
  for (DeviceId device : ranks) {
    const NodeId node = cluster.node_of(device);
    several = several || node != cluster.node_of(ranks.front());
    if (const NetworkTraits* network = cluster.type_of(node).network(); network && network->name != "infiniband")
      name = network->name;
  }
  return several ? name : "";
}

std::vector<std::string> doubts_of(const Plan& plan, const std::vector<DeviceId>& ranks) {
  std::vector<std::string> doubts;
  if (plan.job->model.experts > 0) doubts.emplace_back("layers of experts");
  if (const std::string network = other_network(plan.cluster(), ranks); !network.empty())
    doubts.push_back(fmt::format("nodes joined by {}", network));
  return doubts;
}

}  // namespace

RunKind kind_of(const Plan& plan) {
  const std::vector<DeviceId> ranks = plan.ranks();
  const Precision& precision = plan.job->precision;
  return {device_kinds(plan, ranks), plan.stack().name,
          std::string(name(precision.products.value_or(arithmetic_of(precision.stored)))), std::ssize(ranks),
          doubts_of(plan, ranks)};
}

void SeenRuns::add(const RunKind& kind) {
  for (const std::string& device : kind.devices) {
    OnDevice& seen = devices[device];
    ++seen.runs;
    seen.most = std::max(seen.most, kind.count);
    seen.arithmetics.insert(kind.arithmetic);
  }
  ++stacks[kind.stack];
}

std::vector<std::string> SeenRuns::unseen(const RunKind& kind) const {
  std::vector<std::string> words;
  for (const std::string& name : kind.devices) {
    const auto found = devices.find(name);
    if (found == devices.end()) {
      words.push_back(fmt::format("no run on {} was compared", name));
      continue;
    }
    if (!found->second.arithmetics.contains(kind.arithmetic))
      words.push_back(fmt::format("no run in {} on {} was compared", kind.arithmetic, name));
    if (kind.count > found->second.most)
      words.push_back(fmt::format("{} devices are beyond the {} of any run on {} that was compared",
                                  grouped(kind.count), grouped(found->second.most), name));
  }
  if (!stacks.contains(kind.stack)) words.push_back(fmt::format("no run of {} was compared", kind.stack));
  return words;
}

Distance SeenRuns::distance(const RunKind& kind) const {
  if (!std::all_of(kind.devices.begin(), kind.devices.end(),
                   [&](const std::string& name) { return devices.contains(name); }))
    return Distance::DeviceUnseen;
  const std::size_t count = unseen(kind).size();
  return count == 0 ? Distance::AllSeen : count == 1 ? Distance::OneUnseen : Distance::MoreUnseen;
}

TimeInterval Spread::interval(const RunKind& kind, double seconds) const {
  double half = time[static_cast<std::size_t>(seen.distance(kind))].value;
  std::vector<std::string> reasons = seen.unseen(kind);
  if (!kind.doubts.empty()) half = std::max(half, doubtful.value);
  for (const std::string& doubt : kind.doubts)
    reasons.push_back(fmt::format("runs with {} were predicted less well", doubt));
  return {seconds * std::exp(-half), seconds * std::exp(half), half, level, std::move(reasons)};
}

std::string_view name_of(Fit fit) {
  constexpr std::array<std::string_view, 3> names = {"fits", "tight", "does not fit"};
  return names[static_cast<std::size_t>(fit)];
}

Fit Spread::fit_of(Bytes total, Bytes budget, Bytes capacity) const {
  if (capacity.value == 0) return Fit::Fits;
  const double least = static_cast<double>(total.value) * std::exp(-memory.value);
  const double most = static_cast<double>(total.value) * std::exp(memory.value);
  const auto there_is = static_cast<double>(capacity.value);
  if (least > there_is) return Fit::DoesNotFit;
  return total <= budget && most <= there_is ? Fit::Fits : Fit::Tight;
}

double half_width(std::vector<double> errors, double level) {
  if (errors.empty()) return 0;
  for (double& each : errors) each = std::abs(each);
  const double rank = std::ceil(level * static_cast<double>(errors.size()));
  const std::size_t at = std::clamp<std::size_t>(static_cast<std::size_t>(rank), 1, errors.size()) - 1;
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(at), errors.end());
  return errors[at];
}

std::array<double, kDistances> half_widths(const std::array<std::vector<double>, kDistances>& errors, double level) {
  struct Pool {
    std::size_t distances = 0;
    std::vector<double> errors;
    double half = 0;
  };
  std::vector<Pool> pools;
  for (const std::vector<double>& here : errors) {
    pools.push_back({1, here, half_width(here, level)});
    const auto mergeable = [&] {
      if (pools.size() < 2) return false;
      const Pool &before = pools[pools.size() - 2], &last = pools.back();
      return before.errors.empty() || last.errors.empty() || last.half < before.half;
    };
    while (mergeable()) {
      const Pool last = std::move(pools.back());
      pools.pop_back();
      Pool& before = pools.back();
      before.distances += last.distances;
      before.errors.insert(before.errors.end(), last.errors.begin(), last.errors.end());
      before.half = half_width(before.errors, level);
    }
  }
  std::array<double, kDistances> widths{};
  std::size_t at = 0;
  for (const Pool& pool : pools)
    for (std::size_t i = 0; i < pool.distances; ++i) widths[at++] = pool.half;
  return widths;
}

}  // namespace weft
