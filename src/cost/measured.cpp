#include "cost/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/check.h"
#include "base/logarithm.h"
#include "cost/rounding.h"

namespace weft {
namespace {

// The words of a name in lower case, without vendors and product lines: "NVIDIA A100-SXM4-80GB" is a100, sxm4, 80gb.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (char c : name) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9'))
      words.back() += lower;
    else if (!words.back().empty())
      words.emplace_back();
  }
  static const std::set<std::string, std::less<>> makers = {"", "nvidia", "amd", "instinct", "tesla", "geforce"};
  std::erase_if(words, [](const std::string& word) { return makers.contains(word); });
  return words;
}

bool updates_tensors(OpKind kind) {
  return kind == OpKind::Sgd || kind == OpKind::Momentum || kind == OpKind::Adam || kind == OpKind::LambUpdate ||
         kind == OpKind::LambApply;
}
bool is_product(OpKind kind) {
  return kind == OpKind::Linear || kind == OpKind::Matmul || kind == OpKind::ExpertLinear;
}

constexpr std::int64_t kManyElements = std::int64_t{1} << 25;  // from here on the start of a call is negligible

std::optional<Arithmetic> arithmetic_of(std::string_view dtype) {
  if (dtype == "tf32") return Arithmetic::kTf32;
  if (dtype == "fp8") return Arithmetic::kFp8;
  return std::nullopt;  // that of the operands' type
}

// How far a measured kernel is from the one that the stack runs: 0 is the same, more is less alike; none: another
// kernel. Unknown variants count as the operator's own kernel.
std::optional<int> fit_of(OpKind kind, const Event& event, const KernelChoice& stack, bool autocast) {
  const std::string_view variant = event.variant;
  const auto is = [&](std::string_view prefix) { return variant.starts_with(prefix); };
  const auto has = [&](std::string_view part) { return variant.find(part) != std::string_view::npos; };
  // Large tensors are rarely in the caches; of events measured both ways the cold one is used.
  const int cache = event.cache == "warm" ? 10 : 0;
  switch (kind) {
    case OpKind::Attention:
      if (!stack.attention) return is("unfused") ? std::optional(cache) : std::nullopt;
      if (is("unfused") || stack.attention_generation < 2) return std::nullopt;
      if (stack.attention_generation >= 3) return cache + (is("cudnn") ? 0 : is("flash") ? 2 : 1);
      return cache + (is("flash") ? 0 : is("cudnn") ? 2 : 1);
    case OpKind::LayerNorm:
    case OpKind::RmsNorm:
      return is("unfused") == stack.norm ? std::nullopt : std::optional(cache);
    case OpKind::CrossEntropy:
      if (is("unfused") == stack.cross_entropy) return std::nullopt;
      return cache + (is("unfused_f32_copy") == autocast ? 0 : 1);  // autocast computes losses on fp32 copies
    case OpKind::Glu:
    case OpKind::Rotary:
      return is("unfused") && stack.bias_activation ? std::nullopt : std::optional(cache);
    case OpKind::Sgd:
    case OpKind::Momentum:
    case OpKind::Adam:
      return is("fused") == stack.optimizer ? std::optional(cache + (is("loop") ? 1 : 0)) : std::nullopt;
    case OpKind::Conv2d:
    case OpKind::BatchNorm:
    case OpKind::Pool2d:
    case OpKind::Reduce:
      if (!has("nchw") && !has("nhwc")) return cache;
      return cache + (has("nhwc") == stack.channels_last ? 0 : 1);
    case OpKind::ExpertLinear:
      return is("grouped_mm_skewed") || is("bmm") ? std::nullopt : std::optional(cache);
    case OpKind::Linear:
      return cache + (event.dtype == "fp8" && !is("cublas_fast") ? 1 : 0);
    default:
      return cache;
  }
}

struct Candidate {
  int fit = 0;
  std::string date;
  MeasuredPoint point;
};

// Of several measurements of one shape the one that fits best, then the latest; equal ones are averaged.
std::vector<MeasuredPoint> best_of(std::vector<Candidate> all) {
  int best = all.front().fit;
  for (const Candidate& each : all) best = std::min(best, each.fit);
  std::map<std::vector<std::int64_t>, std::vector<Candidate>> by_shape;
  for (Candidate& each : all)
    if (each.fit == best) by_shape[each.point.sizes].push_back(std::move(each));
  std::vector<MeasuredPoint> points;
  for (auto& [sizes, same] : by_shape) {
    std::string latest;
    for (const Candidate& each : same) latest = std::max(latest, each.date);
    double count = 0, logs = 0;
    MeasuredPoint point{sizes};
    for (const Candidate& each : same) {
      if (each.date != latest) continue;
      ++count;
      logs += log2_of(each.point.ratio);
      point.spread = std::max(point.spread, each.point.spread);
      point.analytic = each.point.analytic;
    }
    point.ratio = exp2_of(logs / count);
    points.push_back(std::move(point));
  }
  return points;
}

double deviation(const std::vector<MeasuredPoint>& points) {
  double sum = 0, squares = 0;
  const auto count = static_cast<double>(points.size());
  for (const MeasuredPoint& point : points) sum += log2_of(point.ratio) / count;
  for (const MeasuredPoint& point : points) {
    const double off = log2_of(point.ratio) - sum;
    squares += off * off / count;
  }
  return exp2_of(std::sqrt(squares)) - 1;
}

std::optional<Traffic> traffic_named(std::string_view name) {
  for (const Traffic traffic : {Traffic::AllReduce, Traffic::ReduceScatter, Traffic::AllGather, Traffic::AllToAll,
                                Traffic::Halo, Traffic::Transfer, Traffic::HostCopy, Traffic::Shift})
    if (name_of(traffic) == name) return traffic;
  return std::nullopt;
}

}  // namespace

bool is_device(std::string_view measured, const DeviceSpec& device) {
  const std::vector<std::string> reported = words_of(measured), name = words_of(device.name),
                                 title = words_of(device.title);
  if (reported.empty() || name.empty()) return false;
  if (reported == name || reported == title) return true;
  const auto pcie = [](const std::vector<std::string>& words) {
    return std::find(words.begin(), words.end(), "pcie") != words.end();
  };
  return reported.front() == name.front() && pcie(reported) == (pcie(name) || pcie(title));
}

Result<std::unique_ptr<MeasuredCost>> MeasuredCost::make(std::span<const MeasuredEvent> profile, std::string_view file,
                                                         const Cluster& cluster, const SoftwareStack& stack,
                                                         const Tuning& tuning) {
  std::unique_ptr<MeasuredCost> cost(new MeasuredCost(stack, tuning));
  std::set<std::string> names;
  for (std::int64_t i = 0; i < cluster.device_count(); ++i) {
    const DeviceSpec& device = cluster.spec(DeviceId(static_cast<std::size_t>(i)));
    if (cost->devices_.contains(&device)) continue;
    cost->learn(profile, device, stack);
    names.insert(device.name);
  }
  if (cost->operators_ + cost->communications_ == 0) {
    std::set<std::string> known;
    for (const MeasuredEvent& event : profile) known.insert(event.event.device);
    return error("no events of {}; it has those of {} (weft profile import --device NAME renames)",
                 fmt::join(names, ", "), known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")))
        .at(file);
  }
  return cost;
}

void MeasuredCost::learn(std::span<const MeasuredEvent> profile, const DeviceSpec& device, const SoftwareStack& stack) {
  OfDevice& known = devices_[&device];
  const KernelChoice kernels = kernels_of(stack);
  const bool autocast = stack.weight_dtype.value == DType::F32;
  std::map<OperatorFamily, std::vector<Candidate>> families;
  std::map<Traffic, std::vector<MeasuredTransfer>> transfers;
  std::vector<std::pair<PlacedShape, double>> under_load;
  for (const MeasuredEvent& measured : profile) {
    const Event& event = measured.event;
    if (!is_device(event.device, device)) continue;
    const Sample sample = pooled(measured.samples);
    const double spread = sample.spread_s / sample.mean_s;
    if (const auto traffic = traffic_named(event.op)) {
      if (event.variant == "pageable") continue;  // Weft's copies are from pinned memory
      transfers[*traffic].push_back(
          {{event.members, event.nodes, event.most_per_node}, event.bytes, sample.mean_s, spread});
      ++communications_;
      continue;
    }
    const Result<Signature> signature = signature_of(event);
    if (!signature.ok()) continue;  // an operator that this version does not know
    const std::optional<int> fit = fit_of(signature->kind, event, kernels, autocast);
    if (!fit) continue;
    const ComputeQuery query{.signature = &*signature, .device = &device, .arithmetic = arithmetic_of(event.dtype)};
    const Picoseconds analytic = analytic_.compute(query).time;
    if (analytic == 0) continue;  // fused into its neighbour's kernel in this stack
    PlacedShape placed = place(query);
    if (event.variant == "back_to_back") {
      under_load.emplace_back(std::move(placed), sample.mean_s / (seconds_of(analytic)));
      continue;
    }
    if (updates_tensors(signature->kind) && *std::max_element(placed.sizes.begin(), placed.sizes.end()) < kManyElements)
      continue;
    const double seconds = seconds_of(analytic);
    families[std::move(placed.family)].push_back(
        {*fit, sample.date, {std::move(placed.sizes), sample.mean_s / seconds, spread, seconds}});
    ++operators_;
  }
  std::vector<MeasuredPoint> all;
  for (auto& [family, candidates] : families) {
    std::vector<MeasuredPoint> points = best_of(std::move(candidates));
    std::vector<MeasuredPoint>& direction = known.directions[{family.kind, family.gradient}].points;
    direction.insert(direction.end(), points.begin(), points.end());
    all.insert(all.end(), points.begin(), points.end());
    known.families.emplace(family, FamilyPoints(std::move(points)));
  }
  for (auto& [key, direction] : known.directions) {
    std::stable_sort(direction.points.begin(), direction.points.end(),
                     [](const MeasuredPoint& a, const MeasuredPoint& b) { return a.analytic < b.analytic; });
    direction.spread = deviation(direction.points);
  }
  if (!all.empty()) known.model_error = deviation(all);
  double logs = 0, count = 0;
  for (const auto& [placed, ratio] : under_load) {
    const auto family = known.families.find(placed.family);
    if (family == known.families.end()) continue;
    for (const MeasuredPoint& alone : family->second.points()) {
      if (alone.sizes != placed.sizes) continue;
      logs += log2_of(ratio / alone.ratio);
      const double seconds = alone.analytic * alone.ratio;
      known.loaded_from = ++count == 1 ? seconds : std::min(known.loaded_from, seconds);
    }
  }
  if (count > 0) known.loaded = exp2_of(logs / count);
  for (const auto& [traffic, list] : transfers) known.groups.emplace(traffic, MeasuredGroups(traffic, list));
}

void MeasuredCost::compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const {
  WEFT_CHECK(queries.size() == costs.size(), "{} queries, {} costs", queries.size(), costs.size());
  for (std::size_t i = 0; i < queries.size(); ++i) costs[i] = one(queries[i]);
}

void MeasuredCost::communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const {
  WEFT_CHECK(queries.size() == costs.size(), "{} queries, {} costs", queries.size(), costs.size());
  for (std::size_t i = 0; i < queries.size(); ++i) costs[i] = one(queries[i]);
}

std::int64_t MeasuredCost::capacity(const Link& link) const {
  if (communications_ == 0) return analytic_.capacity(link);
  return std::max(analytic_.capacity(link), static_cast<std::int64_t>(std::min(link.bandwidth.value, 4e18)));
}

ComputeCost MeasuredCost::one(const ComputeQuery& query) const {
  ComputeCost cost = analytic_.compute(query);
  const auto known = devices_.find(query.device);
  if (cost.time == 0 || known == devices_.end()) return cost;
  const double seconds = seconds_of(cost.time);
  Correction correction = correct(known->second, query, seconds);
  if (is_product(query.signature->kind) && seconds * correction.ratio >= known->second.loaded_from)
    correction.ratio *= known->second.loaded;
  cost.time = picoseconds(seconds * correction.ratio);
  cost.evidence = correction.evidence;
  // The same compute units and bytes, over another time.
  cost.memory_share = share(static_cast<double>(cost.memory_share) / static_cast<double>(kOne) / correction.ratio);
  return cost;
}

Correction MeasuredCost::correct(const OfDevice& known, const ComputeQuery& query, double analytic) const {
  const PlacedShape placed = place(query);
  if (!updates_tensors(placed.family.kind))
    if (const auto family = known.families.find(placed.family); family != known.families.end()) {
      Correction found = family->second.at(placed.sizes);
      // A part with its own share of the mask differs from the measured whole.
      const bool part = query.attended >= 0 && placed.family.kind == OpKind::Attention &&
                        std::abs(query.attended - attended_share(*query.signature)) > 0.01;
      if (part && found.evidence.origin != Origin::Scaled) found.evidence.origin = Origin::Scaled;
      return found;
    }
  const auto direction = known.directions.find({placed.family.kind, placed.family.gradient});
  if (direction == known.directions.end()) return {1, {Origin::Model, static_cast<float>(known.model_error)}};
  const std::vector<MeasuredPoint>& points = direction->second.points;
  auto above = std::lower_bound(points.begin(), points.end(), analytic,
                                [](const MeasuredPoint& point, double time) { return point.analytic < time; });
  if (above == points.end() ||
      (above != points.begin() && analytic / (above - 1)->analytic < above->analytic / analytic))
    --above;
  return {above->ratio, {Origin::Scaled, static_cast<float>(direction->second.spread)}};
}

CommunicateCost MeasuredCost::one(const CommunicateQuery& query) const {
  CommunicateCost cost = analytic_.communicate(query);
  const Communicator& group = *query.communicator;
  const auto known = devices_.find(group.device);
  if (known == devices_.end() || query.parts == Parts::Grouped || cost.cap == 0) return cost;
  const auto measured = known->second.groups.find(group.traffic);
  if (measured == known->second.groups.end()) return cost;
  if (group.traffic == Traffic::Transfer && group.members.size() != 2) return cost;  // block moves of many
  const std::optional<MeasuredGroups::Answer> answer = measured->second.at(
      {static_cast<std::int64_t>(group.members.size()), group.nodes, group.most_per_node}, query.bytes);
  if (!answer) return cost;
  // The bytes move at the links' rate; the rest of the measured time is latency.
  std::int64_t limit = 0;
  const Route& route = group.routes[cost.route];
  for (std::size_t kind = 0; kind < kLinkKinds; ++kind) {
    const Route::Narrowest& narrow = route.narrowest[kind];
    if (narrow.coefficient == 0) continue;
    const std::int64_t carried = capacity({static_cast<LinkKind>(kind), narrow.bandwidth, {}});
    const auto allowed = static_cast<std::int64_t>(static_cast<__int128>(carried) * kOne / narrow.coefficient);
    if (limit == 0 || allowed < limit) limit = allowed;
  }
  CommunicateQuery in_order = query;  // as measured: without repacking
  in_order.repacked = 0;
  const Picoseconds repacking = query.repacked > 0 ? cost.latency - analytic_.communicate(in_order).latency : 0;
  const Picoseconds wanted = picoseconds(answer->seconds) + repacking, before = isolated_time(cost);
  const double ratio = static_cast<double>(wanted) / static_cast<double>(std::max<Picoseconds>(before, 1));
  const double rate = std::max(1.0, static_cast<double>(cost.cap) / ratio);
  cost.cap = limit > 0 ? std::min(limit, static_cast<std::int64_t>(std::min(rate, 4e18)))
                       : static_cast<std::int64_t>(std::min(rate, 4e18));
  cost.latency = 0;
  cost.latency = std::max<Picoseconds>(0, wanted - isolated_time(cost));
  cost.evidence = answer->evidence;
  return cost;
}

}  // namespace weft
