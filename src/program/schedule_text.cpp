// Schedules as text: print and parse.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "program/scanner.h"
#include "program/schedule.h"

namespace weft {
namespace {

char letter(Body body) {
  switch (body) {
    case Body::Forward:
      return 'F';
    case Body::Backward:
      return 'B';
    case Body::BackwardInput:
      return 'I';
    case Body::BackwardWeight:
      return 'W';
  }
  return '?';
}

std::string_view plural(std::int32_t count) { return count == 1 ? "" : "s"; }

using Out = std::back_insert_iterator<std::string>;

// "3", or "3.1": chunk 0 is not written.
void print_chunked(Out out, std::int32_t number, std::int32_t chunk) {
  fmt::format_to(out, "{}", number);
  if (chunk != 0) fmt::format_to(out, ".{}", chunk);
}

// "0-3,8": the micro-batches of one route.
void print_micro_batches(Out out, const Schedule& schedule, std::int32_t route) {
  const char* comma = "";
  for (std::int32_t first = 0; first < schedule.micro_batches; ++first) {
    if (schedule.route_of[first] != route) continue;
    std::int32_t last = first;
    while (last + 1 < schedule.micro_batches && schedule.route_of[last + 1] == route) ++last;
    fmt::format_to(out, "{}{}", comma, first);
    if (last > first) fmt::format_to(out, "-{}", last);
    comma = ",";
    first = last;
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Status parse_line(std::string_view line) {
    Scanner in(line.substr(0, line.find('#')));
    if (in.at_end()) return Ok{};
    if (s_.name.empty()) return parse_header(in);
    if (in.take("route ")) return parse_route(in);
    return parse_rank(in);
  }

  Result<Schedule> finish() {
    if (s_.name.empty()) return error("no schedule; begin with 'schedule NAME: 4 ranks, 1 chunk, 8 micro-batches'");
    for (std::int32_t i = 0; i < s_.micro_batches; ++i)
      if (s_.route_of[i] == kNone) return error("micro-batch {} has no route", i);
    for (std::int32_t rank = 0; rank < s_.ranks; ++rank)
      if (!has_line_[rank]) return error("rank {} has no line", rank);
    // With these, what bounds the counts of a text bounds them in its printed form too.
    std::size_t places = 0, actions = 0;
    for (const std::vector<Place>& route : s_.routes) places += route.size();
    for (const std::vector<Action>& line : s_.actions) actions += line.size();
    if (places < std::size_t(s_.chunks)) return error("{} chunks, but routes of {} places", s_.chunks, places);
    if (actions < std::size_t(s_.micro_batches))
      return error("{} micro-batches, but {} actions", s_.micro_batches, actions);
    return std::move(s_);
  }

 private:
  static constexpr std::int32_t kNone = -1;

  // "8 micro-batches"
  Result<std::int32_t> parse_count(Scanner& in, std::string_view what, std::string_view ending = "s") {
    in.skip_blanks();
    const Scanner found = in;
    const std::optional<std::int32_t> count = in.number();
    if (!count || !in.take_after_blanks(what))
      return error("expected a number of {}{}, found {}", what, ending, found.here());
    in.take(ending);
    // Ranks, chunks and micro-batches must all appear in the text, so it bounds what is allocated for them.
    if (*count < 1 || std::size_t(*count) > text_.size())
      return error("{} {}{}: at least 1, and no more than the text can name", *count, what, ending);
    return *count;
  }

  Status parse_header(Scanner& in) {
    if (!in.take("schedule "))
      return error("expected 'schedule NAME: 4 ranks, 1 chunk, 8 micro-batches', found {}", in.here());
    const std::string_view name = in.word();
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; }))
      return error("expected a name after 'schedule', in printable letters");
    if (!in.take_after_blanks(":")) return error("expected ':' after the name, found {}", in.here());
    WEFT_TRY(s_.ranks, parse_count(in, "rank"));
    if (!in.take_after_blanks(",")) return error("expected ', 1 chunk', found {}", in.here());
    WEFT_TRY(s_.chunks, parse_count(in, "chunk"));
    if (!in.take_after_blanks(",")) return error("expected ', 8 micro-batches', found {}", in.here());
    WEFT_TRY(s_.micro_batches, parse_count(in, "micro-batch", "es"));
    if (!in.at_end()) return error("expected the end of the line, found {}", in.here());
    s_.route_of.assign(s_.micro_batches, kNone);
    s_.actions.resize(s_.ranks);
    has_line_.resize(s_.ranks);
    s_.name = name;
    return Ok{};
  }

  // "0-3,8: 0 1 2 3"
  Status parse_route(Scanner& in) {
    const auto route = static_cast<std::int32_t>(s_.routes.size());
    do {
      in.skip_blanks();
      const Scanner found = in;
      const std::optional<std::int32_t> first = in.number();
      const std::optional<std::int32_t> last = first && in.take("-") ? in.number() : first;
      if (!first || !last) return error("expected micro-batches such as 0-3,8, found {}", found.here());
      if (*first > *last || *last >= s_.micro_batches)
        return error("micro-batches {}-{}: there are 0-{}", *first, *last, s_.micro_batches - 1);
      for (std::int32_t i = *first; i <= *last; ++i) {
        if (s_.route_of[i] != kNone) return error("micro-batch {} has a route already", i);
        s_.route_of[i] = route;
      }
    } while (in.take(","));
    if (!in.take_after_blanks(":")) return error("expected ':' after the route's micro-batches, found {}", in.here());
    std::vector<Place> places;
    while (!in.at_end()) {
      const Scanner found = in;
      const std::optional<std::int32_t> rank = in.number();
      const std::optional<std::int32_t> chunk = rank && in.take(".") ? in.number() : 0;
      if (!rank || !chunk) return error("expected a place such as 3 or 3.1 (rank.chunk), found {}", found.here());
      if (*rank >= s_.ranks || *chunk >= s_.chunks)
        return error("place {}.{}: there are {} ranks and {} chunks", *rank, *chunk, s_.ranks, s_.chunks);
      places.push_back({*rank, *chunk});
    }
    if (places.empty()) return error("a route without places");
    s_.routes.push_back(std::move(places));
    return Ok{};
  }

  // "0: F0 F1 F2&B0.1"
  Status parse_rank(Scanner& in) {
    const Scanner found = in;
    const std::optional<std::int32_t> rank = in.number();
    if (!rank || !in.take_after_blanks(":"))
      return error("expected 'route …' or a rank such as '0:', found {}", found.here());
    if (*rank >= s_.ranks) return error("rank {}: there are 0-{}", *rank, s_.ranks - 1);
    if (has_line_[*rank]) return error("rank {} has a line already", *rank);
    has_line_[*rank] = true;
    while (!in.at_end()) {
      do {
        WEFT_TRY(const Action action, parse_action(in));
        s_.actions[*rank].push_back(action);
      } while (s_.actions[*rank].back().with_next);
    }
    return Ok{};
  }

  Result<Action> parse_action(Scanner& in) {
    const Scanner found = in;
    const std::optional<char> kind = in.letter();
    const std::size_t body = kind ? std::string_view("FBIW").find(*kind) : std::string_view::npos;
    const std::optional<std::int32_t> micro_batch = in.number();
    const std::optional<std::int32_t> chunk = micro_batch && in.take(".") ? in.number() : 0;
    if (body == std::string_view::npos || !micro_batch || !chunk)
      return error("expected an action such as F3, B3.1, I3 or W3, found {}", found.here());
    if (*micro_batch >= s_.micro_batches || *chunk >= s_.chunks)
      return error("{}: there are {} micro-batch{} and {} chunk{}", found.here(), s_.micro_batches,
                   s_.micro_batches == 1 ? "" : "es", s_.chunks, plural(s_.chunks));
    return Action{static_cast<Body>(body), *micro_batch, *chunk, in.take("&")};
  }

  std::string_view text_;
  Schedule s_;
  std::vector<bool> has_line_;
};

}  // namespace

std::string name_of(const Action& action) {
  std::string name(1, letter(action.body));
  print_chunked(std::back_inserter(name), action.micro_batch, action.chunk);
  return name;
}

std::string print(const Schedule& s) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "schedule {}: {} rank{}, {} chunk{}, {} micro-batch{}\n", s.name, s.ranks, plural(s.ranks),
                 s.chunks, plural(s.chunks), s.micro_batches, s.micro_batches == 1 ? "" : "es");
  for (std::size_t route = 0; route < s.routes.size(); ++route) {
    text += "route ";
    print_micro_batches(out, s, static_cast<std::int32_t>(route));
    text += ':';
    for (const Place& place : s.routes[route]) {
      text += ' ';
      print_chunked(out, place.rank, place.chunk);
    }
    text += '\n';
  }
  for (std::size_t rank = 0; rank < s.actions.size(); ++rank) {
    fmt::format_to(out, "{}:", rank);
    bool joined = false;
    for (const Action& action : s.actions[rank]) {
      text += joined ? '&' : ' ';
      text += letter(action.body);
      print_chunked(out, action.micro_batch, action.chunk);
      joined = action.with_next;
    }
    text += '\n';
  }
  return text;
}

Result<Schedule> parse_schedule(std::string_view text, std::string_view file) {
  Parser parser(text);
  std::string_view rest = text;
  int line = 0;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    ++line;
    const Status status = parser.parse_line(rest.substr(0, end));
    if (!status.ok()) return status.error().at(file, line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  Result<Schedule> schedule = parser.finish();
  if (!schedule.ok()) return schedule.error().at(file, line);
  return schedule;
}

}  // namespace weft
