// The faults found while a strategy is resolved, each with its place in the strategy's file.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "strategy/stages.h"
#include "strategy/validate.h"

namespace weft {

class Faults {
 public:
  // `file` names the strategy in places.
  Faults(const Strategy& strategy, std::string_view file) : strategy_(strategy), file_(file) {}

  // At that line or, if it has none, in that part of the strategy.
  void add(std::string_view name, Line line, std::string_view part, std::string message);
  void add(std::string_view name, std::size_t rule, std::string message);
  // The same fault of the same rule is told once, not once per layer.
  void add_once(std::string_view name, std::size_t rule, std::string message);
  Report reporter();

  std::vector<Violation> take() { return std::move(violations_); }

 private:
  const Strategy& strategy_;
  std::string file_;
  std::set<std::pair<std::size_t, std::string>> told_;
  std::vector<Violation> violations_;
};

}  // namespace weft
