#include "profile/event_list.h"

#include <fmt/format.h>

#include <charconv>

namespace weft {
namespace {

constexpr std::string_view kHeader = "weft events 1";

}  // namespace

std::string print_events(std::span<const Event> events) {
  std::string text = fmt::format("{}\n", kHeader);
  for (const Event& event : events)
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", event.op, event.attributes, event.shapes, event.dtype,
                        event.direction, event.part, event.bytes, event.members);
  return text;
}

Result<std::vector<Event>> parse_events(std::string_view text, std::string_view file) {
  std::vector<Event> events;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
    const auto where = fmt::format("{}:{}", file, number);
    if (number == 1) {
      if (line != kHeader) return error("begins with '{}', not with '{}'", line.substr(0, 40), kHeader).at(where);
      continue;
    }
    std::vector<std::string_view> cells;
    for (std::size_t at = 0; at <= line.size();) {
      const std::size_t tab = std::min(line.find('\t', at), line.size());
      cells.push_back(line.substr(at, tab - at));
      at = tab + 1;
    }
    if (cells.size() != 8) return error("{} cells, not 8", cells.size()).at(where);
    Event event{.device = "here",
                .op = std::string(cells[0]),
                .attributes = std::string(cells[1]),
                .shapes = std::string(cells[2]),
                .dtype = std::string(cells[3]),
                .direction = std::string(cells[4]),
                .part = std::string(cells[5])};
    for (const auto& [cell, value] : {std::pair(cells[6], &event.bytes), std::pair(cells[7], &event.members)})
      if (const auto [rest, status] = std::from_chars(cell.data(), cell.data() + cell.size(), *value);
          status != std::errc() || rest != cell.data() + cell.size())
        return error("'{}': not a whole number", cell.substr(0, 40)).at(where);
    event.most_per_node = event.members;
    if (const Status good = check(event); !good.ok()) return good.error().at(where);
    event.device.clear();
    events.push_back(std::move(event));
  }
  if (events.empty()) return error("no events").at(file);
  return events;
}

}  // namespace weft
