// Measured operators by family, and the prediction of operators that were not measured.
//
// A *family* is an operator in one direction and element type, with the attributes that select its kernel (activation,
// mask, windows). In a family a shape is a point: the logarithms of the sizes of its axes, where axes that index the
// same operands are multiplied (batch and sequence of a linear layer are its rows). Every point has the ratio of the
// measured time to the analytic one. Between points that bracket a shape along every axis, the ratio's logarithm is
// interpolated, so the analytic model gives the trend and measurements the level; elsewhere the nearest ratio is used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cost/cost.h"

namespace weft {

struct OperatorFamily {
  OpKind kind{};
  std::string gradient = {}, words = {};
  std::vector<std::uint64_t> types = {}, roles = {};

  auto operator<=>(const OperatorFamily&) const = default;
};

struct PlacedShape {
  OperatorFamily family;
  std::vector<std::int64_t> sizes;  // by role
};
PlacedShape place(const ComputeQuery& query);

struct MeasuredPoint {
  std::vector<std::int64_t> sizes;
  double ratio = 1;   // measured over analytic time
  double spread = 0;  // relative standard deviation of the measured time
  double analytic = 0;
};

// The factor from an analytic time to the measured one.
struct Correction {
  double ratio = 1;
  Evidence evidence = {};
};

class FamilyPoints {
 public:
  explicit FamilyPoints(std::vector<MeasuredPoint> points);

  // Exact, interpolated, or by the nearest point.
  Correction at(const std::vector<std::int64_t>& sizes) const;
  const std::vector<MeasuredPoint>& points() const { return points_; }
  // Standard deviation of interpolated ratios from the measured ones, each point left out in turn.
  double interpolation_error() const { return interpolation_error_; }

 private:
  struct Found {
    Correction correction;
    bool bracketed = false;
  };
  Found look(const std::vector<double>& logs, std::size_t leave_out) const;

  std::vector<MeasuredPoint> points_;
  std::vector<std::vector<double>> logs_;
  std::vector<double> log_ratio_;
  double interpolation_error_ = 0, nearest_error_ = 0;
};

}  // namespace weft
