// The violations found while a strategy is resolved: all of them, each with its name and its place in the strategy's
// file.
//
//   unknown-module   a glob that covers nothing           does-not-divide    a degree on heads, ffn, vocabulary, …
//   unknown-axis     of the mesh or of an operator        mesh               malformed, or larger than the cluster
//   schedule         unknown, or its needs are not met    stages             layers that do not fit them
//   contradiction    configurations that exclude each other
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strategy/stages.h"
#include "strategy/tree.h"

namespace weft {

struct Violation {
  std::string name;
  std::string place;    // "plan.yaml:12" if the line is known, else the rule or the operator
  std::string message;  // with the values and the remedy

  bool operator==(const Violation&) const = default;
};
std::string print(const Violation& violation);  // "plan.yaml:12: … [does-not-divide]"

class Violations {
 public:
  // `file` names the strategy in places.
  Violations(const Strategy& strategy, std::string_view file) : strategy_(strategy), file_(file) {}

  // At `line` or, if it is unknown, in that part of the strategy.
  void add(std::string_view name, Line line, std::string_view part, std::string message);
  void add(std::string_view name, std::size_t rule, std::string message);
  // A violation of one rule that repeats in every layer is recorded once.
  void add_once(std::string_view name, std::size_t rule, std::string message);
  Report reporter();

  std::vector<Violation> take() { return std::move(all_); }

 private:
  const Strategy& strategy_;
  std::string file_;
  std::set<std::pair<std::size_t, std::string>> added_once_;  // rule and message, layer numbers replaced
  std::vector<Violation> all_;
};

}  // namespace weft
