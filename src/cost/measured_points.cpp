#include "cost/measured_points.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/logarithm.h"
#include "graph/operators.h"

namespace weft {
namespace {

// Two measurements of the same product differ by 1.2 % in the median and by 6 % in one of ten cases
// (measurements/h200/README.md): relative standard deviation of a repetition.
constexpr double kRepeat = 0.02;
// A point farther than this many doublings along one axis is not representative.
constexpr double kReach = 4;
constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

constexpr std::uint64_t kWholeAxis = std::uint64_t{1} << 62;
constexpr int kOwnAxis = 48;  // bits from here on distinguish axes that must not be multiplied

std::uint64_t arithmetic_of(const ComputeQuery& query) {
  if (query.arithmetic) return static_cast<std::uint64_t>(*query.arithmetic) + 100;
  // The narrower of the factors' types: autocast casts the wider one.
  const std::vector<Operand>& inputs = query.signature->inputs;
  DType narrow = inputs[0].dtype;
  if (inputs.size() > 1 && is_floating(inputs[1].dtype) && bits_of(inputs[1].dtype) < bits_of(narrow))
    narrow = inputs[1].dtype;
  switch (narrow) {
    case DType::F8:
      return static_cast<std::uint64_t>(Arithmetic::kFp8) + 100;
    case DType::F4:
      return static_cast<std::uint64_t>(Arithmetic::kFp4) + 100;
    default:
      return static_cast<std::uint64_t>(narrow);
  }
}

double spread_of(double log2_error) { return exp2_of(log2_error) - 1; }

}  // namespace

PlacedShape place(const ComputeQuery& query) {
  const Signature& signature = *query.signature;
  PlacedShape placed{{.kind = signature.kind, .gradient = signature.gradient}, {}};
  OperatorFamily& family = placed.family;
  family.words = signature.attrs.text("fn", "");
  for (const char* word : {"causal", "window"})
    if (const std::int64_t value = signature.attrs.integer(word, 0)) family.words += fmt::format(" {}={}", word, value);
  if (!signature.contractions.empty()) {
    family.types.push_back(arithmetic_of(query));
  } else {
    for (int i = 0; i < signature.operand_count(); ++i)
      family.types.push_back(static_cast<std::uint64_t>(signature.operand(i).dtype));
  }

  std::vector<std::pair<std::uint64_t, std::int64_t>> roles;
  for (std::size_t axis = 0; axis < signature.axes.size(); ++axis)
    roles.emplace_back(signature.axes[axis].kind == AxisKind::Whole ? kWholeAxis : 0,
                       query.extents.empty() ? signature.axes[axis].size : query.extents[axis]);
  const auto separate = [&](int axis) {
    roles[static_cast<std::size_t>(axis)].first |= static_cast<std::uint64_t>(axis + 1) << kOwnAxis;
  };
  for (int i = 0; i < signature.operand_count(); ++i) {
    const Operand& operand = signature.operand(i);
    const AxisSet axes = operand.axes();
    for (std::size_t axis = 0; axis < roles.size(); ++axis)
      if (axes.contains(static_cast<int>(axis))) roles[axis].first |= std::uint64_t{1} << std::min(i, kOwnAxis - 1);
    for (const DimIndex& dim : operand.dims) {
      if (!dim.windowed()) continue;
      separate(dim.factors[0]);
      separate(dim.window.kernel);
      const Window& window = dim.window;
      const std::string word = fmt::format(" {}:{}/{}-{}-{}", dim.window.kernel, window.stride, window.dilation,
                                           window.pad_low, window.pad_high);
      if (family.words.find(word) == std::string::npos) family.words += word;
    }
  }
  // Masks depend on positions, so queries and keys are not merged with other axes.
  if (signature.kind == OpKind::Attention)
    for (const char* name : {"q", "t"})
      if (const int axis = signature.axis_named(name); axis >= 0) separate(axis);
  std::sort(roles.begin(), roles.end());
  for (const auto& [role, size] : roles) {
    if (family.roles.empty() || family.roles.back() != role) {
      family.roles.push_back(role);
      placed.sizes.push_back(1);
    }
    placed.sizes.back() *= std::max<std::int64_t>(1, size);
  }
  return placed;
}

FamilyPoints::FamilyPoints(std::vector<MeasuredPoint> points) : points_(std::move(points)) {
  WEFT_CHECK(!points_.empty(), "a family without points");
  std::sort(points_.begin(), points_.end(),
            [](const MeasuredPoint& a, const MeasuredPoint& b) { return a.sizes < b.sizes; });
  for (const MeasuredPoint& point : points_) {
    std::vector<double>& logs = logs_.emplace_back();
    for (std::int64_t size : point.sizes) logs.push_back(log2_of(static_cast<double>(size)));
    log_ratio_.push_back(log2_of(point.ratio));
  }
  double bracketed = 0, nearest = 0, mean = 0;
  int bracketed_count = 0, nearest_count = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    mean += log_ratio_[i] / static_cast<double>(points_.size());
    if (points_.size() < 2) break;
    const Found found = look(logs_[i], i);
    const double wrong = log2_of(found.correction.ratio) - log_ratio_[i];
    (found.bracketed ? bracketed : nearest) += wrong * wrong;
    ++(found.bracketed ? bracketed_count : nearest_count);
  }
  double variance = 0;
  for (double ratio : log_ratio_) variance += (ratio - mean) * (ratio - mean) / static_cast<double>(points_.size());
  const double deviation = std::sqrt(variance);
  nearest_error_ = nearest_count > 0 ? std::sqrt(nearest / nearest_count) : deviation;
  interpolation_error_ =
      bracketed_count > 0 ? std::sqrt(bracketed / bracketed_count) : std::max(deviation, nearest_error_);
}

// Finds the nearest point of every orthant around the shape. If these are on both sides of it along every axis, they
// are weighted by inverse distance — along one axis that is linear interpolation —, squared if there are several axes.
FamilyPoints::Found FamilyPoints::look(const std::vector<double>& logs, std::size_t leave_out) const {
  struct Neighbour {
    std::uint64_t orthant;
    double distance;
    std::size_t point;
  };
  std::vector<Neighbour> around;
  std::size_t nearest = kNobody;
  double nearest_distance = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (i == leave_out) continue;
    std::uint64_t orthant = 0;
    double distance = 0;
    bool in_reach = true;
    for (std::size_t axis = 0; axis < logs.size(); ++axis) {
      const double off = logs_[i][axis] - logs[axis];
      orthant = orthant * 3 + (off < 0 ? 0u : off > 0 ? 2u : 1u);
      in_reach = in_reach && std::abs(off) <= kReach;
      distance += off * off;
    }
    if (nearest == kNobody || distance < nearest_distance) {
      nearest = i;
      nearest_distance = distance;
    }
    if (!in_reach) continue;
    const auto found =
        std::find_if(around.begin(), around.end(), [&](const Neighbour& n) { return n.orthant == orthant; });
    if (found == around.end())
      around.push_back({orthant, distance, i});
    else if (distance < found->distance)
      *found = {orthant, distance, i};
  }
  if (nearest == kNobody) return {};
  bool bracketed = !around.empty();
  for (std::size_t axis = 0; axis < logs.size() && bracketed; ++axis) {
    bool below = false, above = false;
    for (const Neighbour& n : around) {
      below = below || logs_[n.point][axis] <= logs[axis];
      above = above || logs_[n.point][axis] >= logs[axis];
    }
    bracketed = below && above;
  }
  Found found{{}, bracketed};
  if (!bracketed) {
    found.correction = {points_[nearest].ratio, {Origin::Scaled, static_cast<float>(spread_of(nearest_error_))}};
    return found;
  }
  double weights = 0, sum = 0;
  for (const Neighbour& n : around) {
    const double weight = 1 / std::max(logs.size() == 1 ? std::sqrt(n.distance) : n.distance, 1e-12);
    weights += weight;
    sum += weight * log_ratio_[n.point];
  }
  found.correction = {exp2_of(sum / weights),
                      {Origin::Interpolated, static_cast<float>(spread_of(interpolation_error_))}};
  return found;
}

Correction FamilyPoints::at(const std::vector<std::int64_t>& sizes) const {
  const auto exact = std::lower_bound(
      points_.begin(), points_.end(), sizes,
      [](const MeasuredPoint& point, const std::vector<std::int64_t>& wanted) { return point.sizes < wanted; });
  if (exact != points_.end() && exact->sizes == sizes)
    return {exact->ratio,
            {Origin::Measured, static_cast<float>(std::sqrt(exact->spread * exact->spread + kRepeat * kRepeat))}};
  std::vector<double> logs;
  for (std::int64_t size : sizes) logs.push_back(log2_of(static_cast<double>(size)));
  return look(logs, kNobody).correction;
}

}  // namespace weft
