#include "strategy/violations.h"

#include <fmt/format.h>

#include <algorithm>

#include "strategy/glob.h"

namespace weft {

void Violations::add(std::string_view name, Line line, std::string_view part, std::string message) {
  std::string place = file_;
  if (line.number > 0)
    place += fmt::format(":{}", line.number);
  else if (!part.empty())
    place += fmt::format(": {}", part);
  all_.push_back({std::string(name), std::move(place), std::move(message)});
}

void Violations::add(std::string_view name, std::size_t rule, std::string message) {
  const Rule& at = strategy_.rules[rule];
  add(name, at.line, fmt::format("rule '{}'", at.match), std::move(message));
}

void Violations::add_once(std::string_view name, std::size_t rule, std::string message) {
  const std::size_t colon = message.find(": ");
  if (added_once_.insert({rule, layer_glob(message.substr(0, colon)) + message.substr(std::min(colon, message.size()))})
          .second)
    add(name, rule, std::move(message));
}

Report Violations::reporter() {
  return [this](std::string_view name, Line line, std::string_view part, std::string message) {
    add(name, line, part, std::move(message));
  };
}

std::string print(const Violation& violation) {
  return fmt::format("{}: {} [{}]", violation.place, violation.message, violation.name);
}

}  // namespace weft
