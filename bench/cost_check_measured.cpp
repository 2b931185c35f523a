#include "cost_check_measured.h"

#include "base/logarithm.h"
#include "cost_check_fit.h"

namespace weft {

MeasuredRows::MeasuredRows(const std::vector<MeasuredOperator>& rows, const Tuning& tuning) {
  struct Same {
    double logs = 0, count = 0, analytic = 0;
  };
  std::map<Key, std::map<std::vector<std::int64_t>, Same>> shapes;
  for (const MeasuredOperator& op : rows) {
    const double analytic = predicted_seconds(op, tuning);
    if (op.held_out || analytic <= op.overhead) continue;
    PlacedShape placed = place(op.query());
    Same& same = shapes[{op.device_name, op.set, op.label, std::move(placed.family)}][std::move(placed.sizes)];
    same.logs += log2_of(op.seconds / analytic);
    ++same.count;
    same.analytic = analytic;
  }
  for (const auto& [key, by_sizes] : shapes) {
    std::vector<MeasuredPoint> points;
    for (const auto& [sizes, same] : by_sizes)
      points.push_back({sizes, exp2_of(same.logs / same.count), 0, same.analytic});
    families_.emplace(key, FamilyPoints(std::move(points)));
  }
}

double MeasuredRows::predict(const MeasuredOperator& op, double analytic) const {
  const PlacedShape placed = place(op.query());
  const auto family = families_.find({op.device_name, op.set, op.label, placed.family});
  return family == families_.end() ? analytic : analytic * family->second.at(placed.sizes).ratio;
}

}  // namespace weft
