// How much a section's computation and data-parallel communication slow each other while they run at once: they share
// the device's compute units and memory bandwidth and, with communication inside the section, links.
#include <algorithm>

#include "hybrid/compose.h"

namespace weft {
namespace {

constexpr double kShortSpan = 0.02;  // of a pass: communication that is not looked at by itself

}  // namespace

Beside Composer::device_sharing(const std::vector<ComputeShare>& shares, const ReplicaData& data) const {
  const auto one = static_cast<double>(kOne);
  const DeviceLoad said{data.sm_share, data.memory_share, 0};
  double alone = 0, beside = 0, moved = 0;
  for (const ComputeShare& share : shares) {
    const DeviceLoad load{share.sm_share, share.memory_share, share.waves};
    const double takes = share.time * one / compute_speed(interference_, load, said);
    alone += share.time;
    beside += takes;
    moved += takes * communication_speed(interference_, load, said) / one;
  }
  return alone > 0 ? Beside{alone / beside, moved / beside} : Beside{};
}

const std::vector<Composer::BesideData>& Composer::device_sharing(const BlockCosts& block,
                                                                  const ReplicaData& data) const {
  const std::lock_guard lock(mutex_);
  std::vector<BesideData>& known = device_sharing_[{&block, data.sm_share, data.memory_share}];
  if (!known.empty()) return known;
  const auto add = [&](const SectionCost& of) {
    known.push_back({device_sharing(of.forward_shares, data), device_sharing(of.backward_shares, data)});
  };
  add(block.before);
  for (const SectionCost& kind : block.kinds) add(kind);
  add(block.after);
  return known;
}

const std::vector<Composer::BesideData>& Composer::sharing_of(const BlockCosts& block, const ReplicaData& data) const {
  const std::vector<BesideData>& device = device_sharing(block, data);
  const std::lock_guard lock(mutex_);
  std::vector<BesideData>& known = sharing_[{&block, &data}];
  if (!known.empty()) return known;
  // What communication inside a section leaves to the replicas' and they to it.
  const auto share = [&](const LinkLoads& inside) {
    Beside beside{0, 0};
    for (const ReplicaData::Step& step : data.steps) {
      const Sharing sharing = share_links(inside, step.links);
      beside.compute += step.part * sharing.one;
      beside.say += step.part * sharing.other;
    }
    return data.steps.empty() ? Beside{} : beside;
  };
  const auto add_pass = [&](double takes, double compute, Beside own, const std::vector<Communicating>& said,
                            const std::vector<Beside>& loads, std::vector<StreamSpan>& spans) {
    if (takes <= 0) return Beside{};
    double say = data.steps.empty() ? 1 : 0;
    for (const ReplicaData::Step& step : data.steps) say += step.part * std::min(1.0, own.say * step.spare);
    double rest = takes, longer = 0, lost = 0;  // seconds that are in no span
    for (const Communicating& each : said) {
      const Beside& beside = loads[each.loads];
      const double start = std::max(each.start, spans.empty() ? 0 : spans.back().end), end = each.start + each.takes;
      if (end <= start || beside.compute + beside.say >= 2) continue;
      const bool short_one = end - start < kShortSpan * takes;
      if (short_one) {  // counted in the mean
        longer += (end - start) * (1 / beside.compute - 1);
        lost += (end - start) / beside.compute * (1 - beside.say);
      } else {
        spans.push_back({start, end, beside});
        rest -= end - start;
      }
    }
    compute = std::min(compute, rest);
    longer += compute * (1 / own.compute - 1);
    lost += compute / own.compute * (1 - say);
    rest = std::max(rest, 1e-12);
    return Beside{rest / (rest + longer), std::max(1.0 / 64, 1 - lost / (rest + longer))};
  };
  const auto add = [&](const SectionCost& of) {
    const BesideData& alone = device[known.size()];
    std::vector<Beside> loads;
    for (const LinkLoads& each : of.loads) loads.push_back(share(each));
    BesideData& made = known.emplace_back();
    made.forward = add_pass(of.forward, of.compute_forward, alone.forward, of.forward_said, loads, made.forward_spans);
    made.backward =
        add_pass(of.backward, of.compute_backward, alone.backward, of.backward_said, loads, made.backward_spans);
  };
  add(block.before);
  for (const SectionCost& kind : block.kinds) add(kind);
  add(block.after);
  return known;
}

}  // namespace weft
