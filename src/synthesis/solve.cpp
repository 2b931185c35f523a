#include "synthesis/solve.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

// Weights in proportion to the time for which each class is the one that its stages wait for.
std::vector<std::int64_t> waited_for(const std::vector<ProgramChoices::Computation>& stages, std::size_t classes) {
  std::vector<double> share(classes, 0);
  double total = 0;
  for (const ProgramChoices::Computation& stage : stages) {
    const auto slowest = std::max_element(stage.begin(), stage.end());
    const auto time = static_cast<double>(*slowest);
    const auto equals = static_cast<double>(std::count(stage.begin(), stage.end(), *slowest));
    for (std::size_t c = 0; c < classes; ++c)
      if (stage[c] == *slowest) share[c] += time / equals;
    total += time;
  }
  std::vector<std::int64_t> weights(classes, 0);
  if (total <= 0) return even_prices(classes).stage;
  std::int64_t left = LinearPrices::kWhole;
  for (std::size_t c = 0; c < classes; ++c) {
    weights[c] = std::min(left, static_cast<std::int64_t>(share[c] / total * LinearPrices::kWhole));
    left -= weights[c];
  }
  *std::max_element(weights.begin(), weights.end()) += left;
  return weights;
}

std::vector<std::int64_t> between(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  std::vector<std::int64_t> mean;
  for (std::size_t c = 0; c < a.size(); ++c) mean.push_back((a[c] + b[c]) / 2);
  std::int64_t sum = 0;
  for (std::size_t c = 1; c < mean.size(); ++c) sum += mean[c];
  mean.front() = LinearPrices::kWhole - sum;
  return mean;
}

class Solver {
 public:
  Solver(const ProgramChoices& choices, const SolveOptions& options) : choices_(choices), options_(options) {}

  SolvedProgram run() {
    LinearPrices prices = even_prices(choices_.classes);
    for (int round = 0; round < options_.rounds; ++round) {
      const std::vector<std::uint32_t> option = eliminate(prices);
      if (option.empty()) return best_;
      if (best_.fits && best_.lower_bound >= best_.sum.total) break;
      if (choices_.classes == 1 && prices.memory.empty() && best_.fits) break;  // the prices are exact
      const std::vector<ProgramChoices::Computation> stages = stages_of(choices_, option);
      const LinearPrices before = prices;
      prices.stage = waited_for({stages.begin(), stages.end() - 1}, choices_.classes);
      prices.update = waited_for({stages.back()}, choices_.classes);
      if (round > 0) {  // no swinging to and fro
        prices.stage = between(before.stage, prices.stage);
        prices.update = between(before.update, prices.update);
      }
      if (prices.stage == before.stage && prices.update == before.update) break;
    }
    if (!best_.fits) find_fitting(prices);
    return best_;
  }

 private:
  // The best program under these prices; keeps it if it is the best so far.
  std::vector<std::uint32_t> eliminate(const LinearPrices& prices) {
    const LinearProblem linear = linear_problem(choices_, prices);
    const Assignment chosen = choose_best(linear.choices);
    best_.eliminations += chosen.eliminations;
    best_.distinct += chosen.distinct;
    if (chosen.option.empty() || chosen.cost >= kNever) return {};
    std::vector<std::uint32_t> option;
    for (VariableId v : linear.option.ids()) option.push_back(linear.option[v][chosen.option[v.index()]]);
    double rebate = 0;
    for (std::size_t c = 0; c < prices.memory.size(); ++c)
      rebate += prices.memory[c] * static_cast<double>(options_.capacity[c]);
    const Picoseconds bound = chosen.lower_bound - static_cast<Picoseconds>(std::ceil(rebate));
    if (bound > best_.lower_bound) {
      best_.lower_bound = bound;
      best_.prices = prices;
    }
    StageSum sum = stage_sum(choices_, option);
    const std::int64_t over = bytes_over(sum, options_.capacity);
    if (best_.option.empty() || std::pair(over, sum.total) < std::pair(over_, best_.sum.total)) {
      best_.option = option;
      best_.sum = std::move(sum);
      best_.fits = over == 0;
      over_ = over;
      if (best_.prices.stage.empty()) best_.prices = prices;
    }
    return option;
  }

  // A price of memory that is just high enough: doubled until the program fits, then halved back.
  void find_fitting(LinearPrices prices) {
    const auto with = [&](double level) {
      prices.memory.clear();
      for (std::int64_t bytes : options_.capacity)
        prices.memory.push_back(bytes > 0 ? level * static_cast<double>(best_.sum.total) / static_cast<double>(bytes)
                                          : 0);
      const std::vector<std::uint32_t> option = eliminate(prices);
      return !option.empty() && bytes_over(stage_sum(choices_, option), options_.capacity) == 0;
    };
    double low = 0, high = 1.0 / 64;
    while (!with(high) && high < 64) {
      low = high;
      high *= 4;
    }
    if (!best_.fits) return;
    for (int i = 0; i < 4; ++i) {
      const double middle = (low + high) / 2;
      (with(middle) ? high : low) = middle;
    }
  }

  const ProgramChoices& choices_;
  const SolveOptions& options_;
  SolvedProgram best_;
  std::int64_t over_ = 0;
};

}  // namespace

std::int64_t bytes_over(const StageSum& sum, const std::vector<std::int64_t>& capacity) {
  std::int64_t over = 0;
  for (std::size_t c = 0; c < capacity.size(); ++c)
    if (capacity[c] > 0) over = std::max(over, sum.memory[c] - capacity[c]);
  return over;
}

SolvedProgram solve(const ProgramChoices& choices, const SolveOptions& options) {
  return Solver(choices, options).run();
}

}  // namespace weft
