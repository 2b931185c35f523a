#include "soap/elimination.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace weft {
namespace {

using Option = ChoiceProblem::Option;

std::int64_t sum(std::int64_t a, std::int64_t b) { return std::min(kNever, a + b); }

// Costs only, without a memory limit.
struct Cheapest {
  using Value = std::int64_t;
  static Value of(const Option& option) { return option.cost; }
  static Value of(std::int64_t cost) { return cost; }
  static Value none() { return kNever; }
  Value plus(Value a, Value b) const { return sum(a, b); }
  void merge(Value& into, Value other) const { into = std::min(into, other); }
  static bool possible(Value value) { return value < kNever; }
};

// Pareto fronts: memory ascending, cost descending.
struct Front {
  using Value = std::vector<Option>;
  std::int32_t limit;

  Value of(const Option& option) const {
    return option.memory <= limit && option.cost < kNever ? Value{option} : Value{};
  }
  static Value of(std::int64_t cost) { return cost < kNever ? Value{{cost, 0}} : Value{}; }
  static Value none() { return {}; }
  Value plus(const Value& a, const Value& b) const {
    Value all;
    for (const Option& x : a)
      for (const Option& y : b)
        if (x.memory + y.memory <= limit) all.push_back({sum(x.cost, y.cost), x.memory + y.memory});
    prune(all);
    return all;
  }
  static void prune(Value& all) {
    std::sort(all.begin(), all.end(), [](const Option& x, const Option& y) {
      return std::pair(x.memory, x.cost) < std::pair(y.memory, y.cost);
    });
    std::size_t kept = 0;
    for (const Option& each : all)
      if (kept == 0 || each.cost < all[kept - 1].cost) all[kept++] = each;
    all.resize(kept);
  }
  static void merge(Value& into, const Value& other) {
    into.insert(into.end(), other.begin(), other.end());
    prune(into);
  }
  static bool possible(const Value& value) { return !value.empty(); }
};

using TableId = Id<struct TableTag>;

// Tables with up to this many entries are cheap in any order of elimination.
constexpr std::size_t kSmallTable = 4096;

template <class Algebra>
class Elimination {
 public:
  using Value = typename Algebra::Value;

  Elimination(const ChoiceProblem& problem, const EliminationOptions& options, Algebra algebra)
      : problem_(problem), options_(options), algebra_(algebra), factors_of_(problem.own.size()) {}

  Assignment run() {
    add_factors();
    Assignment chosen;
    Value rest = algebra_.of(Option{});
    std::vector<VariableId> order;
    // Variables with small tables are eliminated in rounds, and no variable loses two neighbours in one round: equal
    // layers then have equal neighbours, and a chain of them is halved in every round. Otherwise the smallest table
    // comes first.
    struct Turn {
      bool large = false;
      int round = 0;
      std::size_t size = 0;
      VariableId v;
      auto operator<=>(const Turn&) const = default;
    };
    std::set<Turn> waiting;
    IdVec<VariableId, Turn> turn(problem_.own.size());
    const auto wait = [&](VariableId v, int round) {
      const std::size_t size = left_by(v);
      waiting.insert(turn[v] = {size > kSmallTable, round, size, v});
    };
    for (VariableId v : problem_.own.ids()) wait(v, 0);
    while (!waiting.empty()) {
      const Turn next = *waiting.begin();
      waiting.erase(waiting.begin());
      const std::set<VariableId> neighbours = around(next.v);
      eliminate(next.v, chosen, rest);
      if (stopped_) {
        chosen.exact = false;
        chosen.stopped = true;
        return chosen;
      }
      order.push_back(next.v);
      for (VariableId n : neighbours) {
        waiting.erase(turn[n]);
        wait(n, std::max(turn[n].round, next.round + 1));
      }
    }
    finish(chosen, rest, order);
    return chosen;
  }

 private:
  struct Table {
    std::vector<std::size_t> sizes;
    std::vector<Value> entries;  // the last variable fastest
  };
  struct Factor {
    TableId table;
    std::vector<VariableId> scope;  // ascending
    bool used = false;
    Option point;  // of a message with fronts: the chosen point
  };
  // Factors from which a variable was eliminated together, and the resulting message.
  struct Bucket {
    std::vector<std::size_t> factors;
    std::size_t message = 0;
  };

  std::size_t options_of(VariableId v) const { return problem_.own[v].size(); }

  TableId intern(Table table) {
    const auto [found, fresh] = known_.try_emplace({table.sizes, table.entries}, TableId(tables_.size()));
    if (fresh) tables_.push_back(std::move(table));
    return found->second;
  }
  void add_factor(TableId table, std::vector<VariableId> scope) {
    for (VariableId v : scope) factors_of_[v].push_back(factors_.size());
    factors_.push_back({table, std::move(scope), false, {}});
  }
  void add_factors() {
    for (VariableId v : problem_.own.ids()) {
      Table table{{options_of(v)}, {}};
      for (const Option& option : problem_.own[v]) table.entries.push_back(algebra_.of(option));
      add_factor(intern(std::move(table)), {v});
    }
    std::map<std::pair<std::size_t, bool>, TableId> of_pair;
    for (const ChoiceProblem::Pair& pair : problem_.pairs) {
      const bool swapped = pair.b < pair.a;
      const auto [found, fresh] = of_pair.try_emplace({pair.table, swapped});
      if (fresh) {
        const std::size_t rows = options_of(pair.a), columns = options_of(pair.b);
        const std::vector<std::int64_t>& costs = problem_.tables[pair.table];
        WEFT_CHECK(costs.size() == rows * columns, "a table has an entry for every two options");
        Table table{swapped ? std::vector{columns, rows} : std::vector{rows, columns},
                    std::vector<Value>(costs.size())};
        for (std::size_t i = 0; i < rows; ++i)
          for (std::size_t j = 0; j < columns; ++j)
            table.entries[swapped ? j * rows + i : i * columns + j] = algebra_.of(costs[i * columns + j]);
        found->second = intern(std::move(table));
      }
      add_factor(found->second, {std::min(pair.a, pair.b), std::max(pair.a, pair.b)});
    }
  }

  std::set<VariableId> around(VariableId v) const {
    std::set<VariableId> result;
    for (std::size_t f : factors_of_[v])
      if (!factors_[f].used) result.insert(factors_[f].scope.begin(), factors_[f].scope.end());
    result.erase(v);
    return result;
  }
  std::size_t entries_over(const std::set<VariableId>& scope) const {
    std::size_t entries = 1;
    for (VariableId n : scope) {
      entries *= options_of(n);
      if (entries > (std::size_t{1} << 40)) break;
    }
    return entries;
  }
  std::size_t left_by(VariableId v) const { return entries_over(around(v)); }

  // The factors of a variable in groups whose messages are small enough; one group if possible.
  std::vector<std::vector<std::size_t>> groups_of(VariableId v) const {
    std::vector<std::vector<std::size_t>> groups;
    std::vector<std::set<VariableId>> scopes;
    for (std::size_t f : factors_of_[v]) {
      if (factors_[f].used) continue;
      bool placed = false;
      for (std::size_t g = 0; g < groups.size() && !placed; ++g) {
        std::set<VariableId> together = scopes[g];
        together.insert(factors_[f].scope.begin(), factors_[f].scope.end());
        together.erase(v);
        if (entries_over(together) > options_.most_entries) continue;
        groups[g].push_back(f);
        scopes[g] = std::move(together);
        placed = true;
      }
      if (placed) continue;
      groups.push_back({f});
      scopes.emplace_back(factors_[f].scope.begin(), factors_[f].scope.end());
      scopes.back().erase(v);
    }
    return groups;
  }

  void eliminate(VariableId v, Assignment& chosen, Value& rest) {
    std::vector<Bucket>& buckets = buckets_[v];
    for (const std::vector<std::size_t>& group : groups_of(v)) {
      std::set<VariableId> scope;
      for (std::size_t f : group) scope.insert(factors_[f].scope.begin(), factors_[f].scope.end());
      scope.erase(v);
      std::vector<VariableId> local(scope.begin(), scope.end());
      // The factors' tables with positions of variables instead of ids: the same for equal layers.
      std::vector<std::vector<std::size_t>> key;
      for (std::size_t f : group) {
        key.push_back({factors_[f].table.index()});
        for (VariableId n : factors_[f].scope)
          key.back().push_back(
              n == v ? local.size()
                     : static_cast<std::size_t>(std::lower_bound(local.begin(), local.end(), n) - local.begin()));
      }
      std::sort(key.begin(), key.end());
      ++chosen.eliminations;
      const auto [found, fresh] = messages_.try_emplace(std::move(key));
      if (fresh) {
        ++chosen.distinct;
        found->second = intern(message(v, group, local));
        if (stopped_) return;
        chosen.largest_table = std::max(chosen.largest_table, tables_[found->second].entries.size());
      }
      for (std::size_t f : group) factors_[f].used = true;
      buckets.push_back({group, factors_.size()});
      if (local.empty()) rest = algebra_.plus(rest, tables_[found->second].entries[0]);
      add_factor(found->second, std::move(local));
    }
    if (buckets.size() > 1) chosen.exact = false;
  }

  // For each factor, the strides of the local variables, and of v (the last), in its table.
  std::vector<std::vector<std::size_t>> strides(VariableId v, const std::vector<std::size_t>& group,
                                                const std::vector<VariableId>& local) const {
    std::vector<std::vector<std::size_t>> result;
    for (std::size_t f : group) {
      std::vector<std::size_t>& of = result.emplace_back(local.size() + 1, 0);
      std::size_t stride = 1;
      const Factor& factor = factors_[f];
      for (std::size_t i = factor.scope.size(); i-- > 0;) {
        const VariableId n = factor.scope[i];
        const auto at = n == v
                            ? local.size()
                            : static_cast<std::size_t>(std::lower_bound(local.begin(), local.end(), n) - local.begin());
        of[at] = stride;
        stride *= options_of(n);
      }
    }
    return result;
  }

  // The clock is asked once per kAsk sums of values, which take some milliseconds (fronts are a hundred times slower).
  bool asks_to_stop(std::size_t sums) {
    constexpr std::size_t kAsk = std::is_same_v<Algebra, Front> ? 1 << 12 : 1 << 18;
    sums_ += sums;
    if (stopped_ || sums_ < kAsk) return stopped_;
    sums_ = 0;
    stopped_ = options_.clock && options_.clock->after(0) != StoppedBy::Itself;
    return stopped_;
  }

  Table message(VariableId v, const std::vector<std::size_t>& group, const std::vector<VariableId>& local) {
    Table table;
    std::size_t entries = 1;
    for (VariableId n : local) {
      table.sizes.push_back(options_of(n));
      entries *= options_of(n);
    }
    table.entries.assign(entries, algebra_.none());
    const auto stride = strides(v, group, local);
    std::vector<const Value*> from;
    for (std::size_t f : group) from.push_back(tables_[factors_[f].table].entries.data());
    std::vector<std::size_t> at(local.size(), 0);
    std::vector<std::size_t> offset(group.size(), 0);
    for (std::size_t entry = 0; entry < entries; ++entry) {
      Value& best = table.entries[entry];
      if (asks_to_stop(options_of(v) * group.size())) return table;
      for (std::size_t x = 0; x < options_of(v); ++x) {
        Value value = from[0][offset[0] + x * stride[0].back()];
        for (std::size_t f = 1; f < group.size() && algebra_.possible(value); ++f)
          value = algebra_.plus(value, from[f][offset[f] + x * stride[f].back()]);
        algebra_.merge(best, value);
      }
      for (std::size_t i = local.size(); i-- > 0;) {  // the next assignment of the neighbours
        for (std::size_t f = 0; f < group.size(); ++f) offset[f] += stride[f][i];
        if (++at[i] < table.sizes[i]) break;
        for (std::size_t f = 0; f < group.size(); ++f) offset[f] -= stride[f][i] * table.sizes[i];
        at[i] = 0;
      }
    }
    return table;
  }

  const Value& entry_of(std::size_t f, const std::vector<std::uint32_t>& option) const {
    std::size_t at = 0;
    for (VariableId n : factors_[f].scope) at = at * options_of(n) + option[n.index()];
    return tables_[factors_[f].table].entries[at];
  }

  void finish(Assignment& chosen, const Value& rest, const std::vector<VariableId>& order) {
    if (!algebra_.possible(rest)) {
      chosen.lower_bound = kNever;
      return;
    }
    chosen.lower_bound = lowest(rest);
    chosen.option.assign(problem_.own.size(), 0);
    choose_points(rest, order);
    for (std::size_t i = order.size(); i-- > 0;) choose(order[i], chosen.option);
    if (!chosen.exact) improve_choice(problem_, chosen.option);
    const Option judged = judge_choice(problem_, chosen.option);
    chosen.cost = judged.cost;
    chosen.memory = judged.memory;
    const bool fits = !std::is_same_v<Algebra, Front> || judged.memory <= *problem_.memory_limit;
    if (judged.cost >= kNever || !fits) {
      WEFT_CHECK(!chosen.exact, "elimination without a cut finds what it promises");
      chosen.option.clear();
      chosen.cost = kNever;
    }
    WEFT_CHECK(!chosen.exact || chosen.cost == chosen.lower_bound, "the options cost what elimination says");
  }
  static std::int64_t lowest(std::int64_t value) { return value; }
  static std::int64_t lowest(const std::vector<Option>& front) { return front.back().cost; }

  // Chooses points of the final messages, which have no variables, with the cheapest sum.
  void choose_points(const Value& rest, const std::vector<VariableId>& order) {
    if constexpr (std::is_same_v<Algebra, Front>) {
      std::vector<std::size_t> last;
      for (VariableId v : order)
        for (const Bucket& bucket : buckets_[v])
          if (factors_[bucket.message].scope.empty()) last.push_back(bucket.message);
      distribute(rest.back(), last, std::vector<std::uint32_t>(problem_.own.size(), 0));
    } else {
      static_cast<void>(rest), static_cast<void>(order);
    }
  }
  // Chooses points of the factors' fronts whose memory adds up to at most the target's; false if there are none.
  bool distribute(Option target, const std::vector<std::size_t>& factors, const std::vector<std::uint32_t>& option) {
    if constexpr (std::is_same_v<Algebra, Front>) {
      std::vector<Value> sums = {algebra_.of(Option{})};
      for (std::size_t f : factors) sums.push_back(algebra_.plus(sums.back(), entry_of(f, option)));
      const Option* point = nullptr;
      for (const Option& each : sums.back())
        if (each.memory <= target.memory && (!point || each.cost < point->cost)) point = &each;
      if (!point) return false;
      Option left = *point;
      for (std::size_t i = factors.size(); i-- > 0;)
        for (const Option& each : entry_of(factors[i], option)) {
          const Option before{left.cost - each.cost, left.memory - each.memory};
          if (std::find(sums[i].begin(), sums[i].end(), before) == sums[i].end()) continue;
          factors_[factors[i]].point = each;
          left = before;
          break;
        }
    } else {
      static_cast<void>(target), static_cast<void>(factors), static_cast<void>(option);
    }
    return true;
  }

  void choose(VariableId v, std::vector<std::uint32_t>& option) {
    std::uint32_t best = 0;
    std::int64_t lowest_cost = kNever;
    for (std::uint32_t x = 0; x < options_of(v); ++x) {
      option[v.index()] = x;
      std::int64_t cost = 0;
      for (const Bucket& bucket : buckets_[v]) cost = sum(cost, cost_within(bucket, option));
      if (cost >= lowest_cost) continue;
      lowest_cost = cost;
      best = x;
    }
    option[v.index()] = best;
    if constexpr (std::is_same_v<Algebra, Front>)
      for (const Bucket& bucket : buckets_[v]) distribute(factors_[bucket.message].point, bucket.factors, option);
  }
  // The cheapest sum of a bucket within the memory of its message's chosen point.
  std::int64_t cost_within(const Bucket& bucket, const std::vector<std::uint32_t>& option) const {
    Value value = algebra_.of(Option{});
    for (std::size_t f : bucket.factors) value = algebra_.plus(value, entry_of(f, option));
    if constexpr (std::is_same_v<Algebra, Front>) {
      std::int64_t cost = kNever;
      for (const Option& each : value)
        if (each.memory <= factors_[bucket.message].point.memory) cost = std::min(cost, each.cost);
      return cost;
    } else {
      return value;
    }
  }

  const ChoiceProblem& problem_;
  const EliminationOptions& options_;
  const Algebra algebra_;
  IdVec<TableId, Table> tables_;
  std::map<std::pair<std::vector<std::size_t>, std::vector<Value>>, TableId> known_;
  std::map<std::vector<std::vector<std::size_t>>, TableId> messages_;
  std::vector<Factor> factors_;
  IdVec<VariableId, std::vector<std::size_t>> factors_of_;
  std::map<VariableId, std::vector<Bucket>> buckets_;
  std::size_t sums_ = 0;  // since the clock was asked
  bool stopped_ = false;
};

}  // namespace

Assignment choose_best(const ChoiceProblem& problem, const EliminationOptions& options) {
  // Most limits do not bind, and without fronts elimination is faster.
  Assignment free = Elimination(problem, options, Cheapest{}).run();
  if (free.stopped || !problem.memory_limit || free.lower_bound >= kNever ||
      (!free.option.empty() && free.memory <= *problem.memory_limit))
    return free;
  Assignment limited = Elimination(problem, options, Front{*problem.memory_limit}).run();
  limited.lower_bound = std::max(limited.lower_bound, free.lower_bound);
  return limited;
}

ChoiceProblem::Option judge_choice(const ChoiceProblem& problem, const std::vector<std::uint32_t>& option) {
  Option total;
  for (VariableId v : problem.own.ids()) {
    const Option& own = problem.own[v][option[v.index()]];
    total = {sum(total.cost, own.cost), total.memory + own.memory};
  }
  for (const ChoiceProblem::Pair& pair : problem.pairs)
    total.cost =
        sum(total.cost,
            problem.tables[pair.table][option[pair.a.index()] * problem.own[pair.b].size() + option[pair.b.index()]]);
  return total;
}

void improve_choice(const ChoiceProblem& problem, std::vector<std::uint32_t>& option) {
  IdVec<VariableId, std::vector<const ChoiceProblem::Pair*>> pairs(problem.own.size());
  for (const ChoiceProblem::Pair& pair : problem.pairs) {
    pairs[pair.a].push_back(&pair);
    pairs[pair.b].push_back(&pair);
  }
  std::int32_t memory = judge_choice(problem, option).memory;
  const auto cost_of = [&](VariableId v, std::uint32_t x) {
    std::int64_t cost = problem.own[v][x].cost;
    for (const ChoiceProblem::Pair* pair : pairs[v]) {
      const std::size_t a = pair->a == v ? x : option[pair->a.index()], b = pair->b == v ? x : option[pair->b.index()];
      cost = sum(cost, problem.tables[pair->table][a * problem.own[pair->b].size() + b]);
    }
    return cost;
  };
  const auto over = [&](std::int32_t held) {
    return problem.memory_limit ? std::max(0, held - *problem.memory_limit) : 0;
  };
  for (bool better = true; better;) {
    better = false;
    for (VariableId v : problem.own.ids()) {
      std::uint32_t& now = option[v.index()];
      const std::int32_t others = memory - problem.own[v][now].memory;
      std::pair best{over(memory), cost_of(v, now)};
      std::uint32_t choice = now;
      for (std::uint32_t x = 0; x < problem.own[v].size(); ++x) {
        const std::pair each{over(others + problem.own[v][x].memory), cost_of(v, x)};
        if (each < best) best = each, choice = x;
      }
      if (choice == now) continue;
      now = choice;
      memory = others + problem.own[v][now].memory;
      better = true;
    }
  }
}

}  // namespace weft
