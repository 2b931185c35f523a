#include "ask/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/suggest.h"
#include "base/units.h"

namespace weft {

Result<std::int64_t> parse_sequence(const std::string& text) {
  const bool thousands = !text.empty() && (text.back() == 'k' || text.back() == 'K');
  const Result<std::int64_t> number = parse_integer(text.substr(0, text.size() - (thousands ? 1 : 0)), "--seq");
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  if (!number.ok()) return error("--seq '{}': a number of tokens, 4096 or 8k", text.substr(0, 40));
  if (*number < 1 || *number > kMost) return error("--seq {}: must be between 1 and 2^32", text.substr(0, 40));
  return thousands ? *number * 1024 : *number;
}

Result<double> parse_price(const std::string& text) {
  const std::string number = text.starts_with("$") ? text.substr(1) : text;
  double value = 0;
  const auto [rest, status] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (status != std::errc() || rest != number.data() + number.size() || !(value > 0 && value < 1e6))
    return error("--price '{}': dollars per GPU-hour, 2.5", text.substr(0, 40));
  return value;
}

Result<std::vector<double>> parse_prices(const std::string& text) {
  std::vector<double> prices;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    WEFT_TRY(const double price, parse_price(text.substr(at, end - at)));
    prices.push_back(price);
    at = end + 1;
  }
  return prices;
}

// "15T", "300B", "2e12".
Result<double> parse_tokens(const std::string& text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  const double scale = unit.empty()  ? 1
                       : unit == "k" ? 1e3
                       : unit == "M" ? 1e6
                       : unit == "B" ? 1e9
                       : unit == "T" ? 1e12
                                     : 0;
  if (status != std::errc() || scale == 0 || !(value > 0 && value * scale < 1e18))
    return error("--tokens '{}': a number of tokens, 300B or 15T", text);
  return value * scale;
}

Result<SearchBudget> parse_budget(const std::string& text) {
  SearchBudget budget;
  if (text.empty()) return budget;
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    WEFT_TRY(budget.evaluations, parse_integer(text, "--budget"));
    if (budget.evaluations < 1) return error("--budget {}: at least one simulation; or a time, 30s", text);
    return budget;
  }
  const Result<Seconds> seconds = parse_seconds(text);
  if (!seconds.ok() || seconds->value < 0)
    return error("--budget '{}': a time, 30s, or a number of simulations, 64", text);
  budget.seconds = std::max(seconds->value, 1e-9);  // 0 s: only the baselines are simulated
  return budget;
}

std::optional<std::string> with_nodes(const std::string& cluster, std::int64_t nodes) {
  const std::string_view head = std::string_view(cluster).substr(0, cluster.find(','));
  const bool file = head.ends_with(".yaml") || head.ends_with(".yml") || head.ends_with(".xml");
  if (file || cluster.find('+') != std::string::npos) return std::nullopt;
  return fmt::format("{}:{}{}", head.substr(0, head.rfind(':')), nodes, cluster.substr(head.size()));
}

Result<std::vector<PlanSchedule>> parse_schedules(const std::string& text) {
  std::vector<PlanSchedule> schedules;
  std::vector<std::string> known;
  for (int i = 0; i < kPlanSchedules; ++i) known.emplace_back(name_of(static_cast<PlanSchedule>(i)));
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    const auto found = std::find(known.begin(), known.end(), word);
    if (found == known.end())
      return error("--schedules '{}': write some of {}{}", word, fmt::join(known, ", "), did_you_mean(word, known));
    schedules.push_back(static_cast<PlanSchedule>(found - known.begin()));
    at = end + 1;
  }
  return schedules;
}

}  // namespace weft
