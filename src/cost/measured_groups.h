// Measured communications of one kind on one device: a curve of time over bytes for every measured shape of group, and
// a fit for shapes that were not measured.
//
//   time = start + inside·steps inside nodes + between·steps between nodes + bytes·volume / bandwidth of the level
//
// with the steps and volumes of rings inside nodes and, for all-reduce, trees between them; a level is inside one node
// or between nodes. The fit gives the change of time with the group; the nearest measured shape the absolute time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cost/cost.h"

namespace weft {

struct MeasuredGroupShape {
  std::int64_t members = 1, nodes = 1, most_per_node = 1;

  auto operator<=>(const MeasuredGroupShape&) const = default;
};

struct MeasuredTransfer {
  MeasuredGroupShape shape;
  std::int64_t bytes = 0;
  double seconds = 0, spread = 0;  // spread: relative standard deviation
};

class MeasuredGroups {
 public:
  MeasuredGroups(Traffic traffic, const std::vector<MeasuredTransfer>& measured);

  struct Answer {
    double seconds = 0;
    Evidence evidence = {};
  };
  // None if no event was measured at the level of this shape.
  std::optional<Answer> at(const MeasuredGroupShape& shape, std::int64_t bytes) const;

  double fit_error() const { return fit_error_; }  // root mean square of relative errors

 private:
  static constexpr int kTerms = 5;
  struct Curve {
    MeasuredGroupShape shape;
    std::vector<MeasuredTransfer> points;  // by bytes
  };
  std::array<double, kTerms> terms(const MeasuredGroupShape& shape, double bytes) const;
  double fitted(const MeasuredGroupShape& shape, double bytes) const;
  Answer along(const Curve& curve, std::int64_t bytes) const;

  Traffic traffic_;
  std::vector<Curve> curves_;  // by shape
  std::array<double, kTerms> fit_ = {};
  double fit_error_ = 0;
};

}  // namespace weft
