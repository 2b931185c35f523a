// How much a section's computation and data-parallel communication slow each other while they run at once: they share
// the device's compute units and memory bandwidth and, with communication inside the section, links.
#include <algorithm>

#include "hybrid/compose.h"

namespace weft {
namespace {

constexpr double kShortSpan = 0.02;  // share of a pass: shorter communication counts in the pass's mean speed only

}  // namespace

OverlapSpeed Composer::device_sharing(const std::vector<ComputeShare>& shares, const DataParallelCosts& data) const {
  const auto one = static_cast<double>(kOne);
  const DeviceLoad communication{data.sm_share, data.memory_share, 0};
  double alone = 0, overlapped = 0, moved = 0;
  for (const ComputeShare& share : shares) {
    const DeviceLoad load{share.sm_share, share.memory_share, share.waves};
    const double takes = share.time * one / compute_speed(interference_, load, communication);
    alone += share.time;
    overlapped += takes;
    moved += takes * communication_speed(interference_, load, communication) / one;
  }
  return alone > 0 ? OverlapSpeed{alone / overlapped, moved / overlapped} : OverlapSpeed{};
}

const std::vector<Composer::SectionOverlap>& Composer::device_sharing(const BlockCosts& block,
                                                                      const DataParallelCosts& data) const {
  const std::lock_guard lock(mutex_);
  std::vector<SectionOverlap>& known = device_sharing_[{&block, data.sm_share, data.memory_share}];
  if (!known.empty()) return known;
  const auto add = [&](const SectionCost& of) {
    known.push_back({device_sharing(of.forward_shares, data), device_sharing(of.backward_shares, data)});
  };
  for (const SectionCost& kind : block.kinds) add(kind);
  return known;
}

const std::vector<Composer::SectionOverlap>& Composer::sharing_of(const BlockCosts& block,
                                                                  const DataParallelCosts& data) const {
  const std::vector<SectionOverlap>& device = device_sharing(block, data);
  const std::lock_guard lock(mutex_);
  std::vector<SectionOverlap>& known = sharing_[{&block, &data}];
  if (!known.empty()) return known;
  // Speeds of communication inside a section and of data-parallel communication on the links that they share.
  const auto share = [&](const LinkLoads& inside) {
    OverlapSpeed speed{0, 0};
    for (const DataParallelCosts::Step& step : data.steps) {
      const Sharing sharing = share_links(inside, step.links);
      speed.compute += step.part * sharing.one;
      speed.communicate += step.part * sharing.other;
    }
    return data.steps.empty() ? OverlapSpeed{} : speed;
  };
  const auto add_pass = [&](double takes, double compute, OverlapSpeed own,
                            const std::vector<CommunicationSpan>& inside, const std::vector<OverlapSpeed>& loads,
                            std::vector<StreamSpan>& spans) {
    if (takes <= 0) return OverlapSpeed{};
    double communicate = data.steps.empty() ? 1 : 0;
    for (const DataParallelCosts::Step& step : data.steps)
      communicate += step.part * std::min(1.0, own.communicate * step.spare);
    double rest = takes, longer = 0, lost = 0;  // rest: seconds outside of all spans
    for (const CommunicationSpan& each : inside) {
      const OverlapSpeed& speed = loads[each.loads];
      const double start = std::max(each.start, spans.empty() ? 0 : spans.back().end), end = each.start + each.takes;
      if (end <= start || speed.compute + speed.communicate >= 2) continue;
      const bool short_one = end - start < kShortSpan * takes;
      if (short_one) {  // counts in the mean
        longer += (end - start) * (1 / speed.compute - 1);
        lost += (end - start) / speed.compute * (1 - speed.communicate);
      } else {
        spans.push_back({start, end, speed});
        rest -= end - start;
      }
    }
    compute = std::min(compute, rest);
    longer += compute * (1 / own.compute - 1);
    lost += compute / own.compute * (1 - communicate);
    rest = std::max(rest, 1e-12);
    return OverlapSpeed{rest / (rest + longer), std::max(1.0 / 64, 1 - lost / (rest + longer))};
  };
  const auto add = [&](const SectionCost& of) {
    const SectionOverlap& alone = device[known.size()];
    std::vector<OverlapSpeed> loads;
    for (const LinkLoads& each : of.loads) loads.push_back(share(each));
    SectionOverlap& made = known.emplace_back();
    made.forward =
        add_pass(of.forward, of.compute_forward, alone.forward, of.forward_communication, loads, made.forward_spans);
    made.backward = add_pass(of.backward, of.compute_backward, alone.backward, of.backward_communication, loads,
                             made.backward_spans);
  };
  for (const SectionCost& kind : block.kinds) add(kind);
  return known;
}

}  // namespace weft
