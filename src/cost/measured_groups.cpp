#include "cost/measured_groups.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/logarithm.h"

namespace weft {
namespace {

constexpr double kPerDoubling = 0.1;  // added uncertainty per doubling of the group beyond the measured ones

}  // namespace

MeasuredGroups::MeasuredGroups(Traffic traffic, const std::vector<MeasuredTransfer>& measured) : traffic_(traffic) {
  std::map<MeasuredGroupShape, std::map<std::int64_t, std::vector<MeasuredTransfer>>> by_shape;
  for (const MeasuredTransfer& each : measured) by_shape[each.shape][each.bytes].push_back(each);
  for (auto& [shape, sizes] : by_shape) {
    Curve& curve = curves_.emplace_back(Curve{shape, {}});
    for (auto& [bytes, same] : sizes) {
      MeasuredTransfer mean{shape, bytes, 0, 0};
      for (const MeasuredTransfer& each : same) {
        mean.seconds += each.seconds / static_cast<double>(same.size());
        mean.spread = std::max(mean.spread, each.spread);
      }
      curve.points.push_back(mean);
    }
  }
  // Non-negative least squares of relative errors, by coordinate descent until convergence.
  std::vector<std::array<double, kTerms>> rows;
  for (const Curve& curve : curves_)
    for (const MeasuredTransfer& point : curve.points) {
      rows.push_back(terms(curve.shape, static_cast<double>(point.bytes)));
      for (double& term : rows.back()) term /= point.seconds;
    }
  std::vector<double> left(rows.size(), 1);
  for (int round = 0; round < 2000; ++round)
    for (std::size_t term = 0; term < kTerms; ++term) {
      double along = 0, square = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        along += rows[i][term] * left[i];
        square += rows[i][term] * rows[i][term];
      }
      if (square == 0) continue;
      const double next = std::max(0.0, fit_[term] + along / square), change = next - fit_[term];
      if (change == 0) continue;
      fit_[term] = next;
      for (std::size_t i = 0; i < rows.size(); ++i) left[i] -= rows[i][term] * change;
    }
  double squares = 0;
  for (double wrong : left) squares += wrong * wrong;
  fit_error_ = rows.empty() ? 0 : std::sqrt(squares / static_cast<double>(rows.size()));
}

std::array<double, MeasuredGroups::kTerms> MeasuredGroups::terms(const MeasuredGroupShape& shape, double bytes) const {
  const auto n = static_cast<double>(shape.members), nodes = static_cast<double>(shape.nodes),
             each = static_cast<double>(shape.most_per_node);
  const bool reduces = traffic_ == Traffic::AllReduce;
  const bool point_to_point = traffic_ >= Traffic::Halo;
  const double passes = reduces ? 2 : 1;
  const double volume = point_to_point ? 1 : passes * (n - 1) / n;
  const double inside = point_to_point ? 0 : passes * (each - 1);
  const double between = shape.nodes == 1 || point_to_point ? 0 : reduces ? 2 * log2_of(nodes) : nodes - 1;
  return {1, inside, between, shape.nodes == 1 ? volume * bytes : 0, shape.nodes > 1 ? volume * bytes : 0};
}

double MeasuredGroups::fitted(const MeasuredGroupShape& shape, double bytes) const {
  const std::array<double, kTerms> row = terms(shape, bytes);
  double sum = 0;
  for (std::size_t i = 0; i < kTerms; ++i) sum += row[i] * fit_[i];
  return sum;
}

// Log-log interpolation between two measured sizes; beyond them the time follows the fit.
MeasuredGroups::Answer MeasuredGroups::along(const Curve& curve, std::int64_t bytes) const {
  const auto above = std::lower_bound(curve.points.begin(), curve.points.end(), bytes,
                                      [](const MeasuredTransfer& p, std::int64_t b) { return p.bytes < b; });
  if (above != curve.points.end() && above->bytes == bytes)
    return {above->seconds, {Origin::Measured, static_cast<float>(above->spread)}};
  const auto wanted = static_cast<double>(bytes);
  if (above != curve.points.begin() && above != curve.points.end()) {
    const auto below = above - 1;
    const double from = log2_of(static_cast<double>(below->bytes)), to = log2_of(static_cast<double>(above->bytes));
    const double part = (log2_of(wanted) - from) / (to - from);
    const double time = exp2_of((1 - part) * log2_of(below->seconds) + part * log2_of(above->seconds));
    // Uncertainty: half of the change of rate between the two sizes, as the protocol may change there.
    const double rates = std::abs(log2_of(above->seconds / below->seconds) - (to - from)) / 4;
    return {
        time,
        {Origin::Interpolated, static_cast<float>(std::max(below->spread, above->spread) + (exp2_of(rates) - 1) / 2)}};
  }
  const MeasuredTransfer& end = above == curve.points.end() ? curve.points.back() : curve.points.front();
  const double at_end = fitted(curve.shape, static_cast<double>(end.bytes)), there = fitted(curve.shape, wanted);
  const double time = at_end > 0 && there > 0 ? end.seconds * there / at_end : end.seconds;
  return {time, {Origin::Scaled, static_cast<float>(end.spread + fit_error_)}};
}

std::optional<MeasuredGroups::Answer> MeasuredGroups::at(const MeasuredGroupShape& shape, std::int64_t bytes) const {
  const Curve* nearest = nullptr;
  double distance = 0;
  std::int64_t largest = 0;
  for (const Curve& curve : curves_) {
    if (curve.shape == shape) return along(curve, bytes);
    if ((curve.shape.nodes > 1) != (shape.nodes > 1)) continue;
    largest = std::max(largest, curve.shape.members);
    const auto log = [](std::int64_t value) { return log2_of(static_cast<double>(value)); };
    const double away =
        std::abs(log(curve.shape.members) - log(shape.members)) + std::abs(log(curve.shape.nodes) - log(shape.nodes));
    if (nearest && away >= distance) continue;
    nearest = &curve;
    distance = away;
  }
  if (!nearest) return std::nullopt;
  Answer answer = along(*nearest, bytes);
  const auto size = static_cast<double>(bytes);
  const double from = fitted(nearest->shape, size), to = fitted(shape, size);
  if (from > 0 && to > 0) answer.seconds *= to / from;
  const double beyond =
      shape.members > largest ? log2_of(static_cast<double>(shape.members) / static_cast<double>(largest)) : 0;
  const double extra = fit_error_ + kPerDoubling * beyond;
  answer.evidence = {beyond > 0 ? Origin::Extrapolated : Origin::Interpolated,
                     static_cast<float>(std::sqrt(static_cast<double>(answer.evidence.spread) * answer.evidence.spread +
                                                  extra * extra))};
  return answer;
}

}  // namespace weft
