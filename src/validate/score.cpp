#include "validate/score.h"

#include <algorithm>
#include <cmath>

namespace weft {

double mean(std::span<const double> values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double Concordance::tau() const {
  return pairs() == 0 ? 1 : static_cast<double>(same - other) / static_cast<double>(pairs());
}

Concordance& Concordance::operator+=(const Concordance& more) {
  same += more.same;
  other += more.other;
  return *this;
}

Concordance concordance(std::span<const double> measured, std::span<const double> predicted, double tie) {
  Concordance count;
  for (std::size_t i = 0; i < measured.size(); ++i)
    for (std::size_t j = i + 1; j < measured.size(); ++j) {
      if (std::abs(measured[i] - measured[j]) <= tie * std::min(measured[i], measured[j])) continue;
      if (predicted[i] == predicted[j]) continue;
      ++((measured[i] < measured[j]) == (predicted[i] < predicted[j]) ? count.same : count.other);
    }
  return count;
}

double regret(std::span<const double> measured, std::span<const double> predicted) {
  if (measured.empty()) return 0;
  const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
  return measured[static_cast<std::size_t>(chosen)] / *std::min_element(measured.begin(), measured.end()) - 1;
}

}  // namespace weft
