#include "synthesis/astar.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace weft {
namespace {

Picoseconds sum_up(Picoseconds a, Picoseconds b) { return std::min<Picoseconds>(kNever, a + b); }

// A function of the forms of some variables.
struct Summand {
  std::vector<std::size_t> scope;  // ascending
  std::vector<std::uint32_t> forms;
  const Picoseconds* values = nullptr;
  std::uintptr_t same = 0;  // equal for equal values

  std::size_t stride_of(std::size_t variable) const {
    std::size_t stride = 1;
    for (std::size_t i = scope.size(); i-- > 0;) {
      if (scope[i] == variable) return stride;
      stride *= forms[i];
    }
    return 0;
  }
};

// The minimum over the forms of `variable` of the sum, by the forms of the other variables.
std::vector<Picoseconds> minimised(const std::vector<Summand>& summands, std::size_t variable, std::uint32_t forms,
                                   const std::vector<std::size_t>& scope, const std::vector<std::uint32_t>& sizes) {
  std::size_t entries = 1;
  for (std::uint32_t size : sizes) entries *= size;
  std::vector<Picoseconds> result;
  result.reserve(entries);
  std::vector<std::uint32_t> at(scope.size(), 0);
  std::vector<std::size_t> offset(summands.size(), 0), own;
  std::vector<std::vector<std::size_t>> strides;
  for (const Summand& each : summands) {
    own.push_back(each.stride_of(variable));
    std::vector<std::size_t>& of = strides.emplace_back();
    for (std::size_t other : scope) of.push_back(each.stride_of(other));
  }
  for (;;) {
    Picoseconds least = kNever;
    for (std::uint32_t form = 0; form < forms; ++form) {
      Picoseconds sum = 0;
      for (std::size_t s = 0; s < summands.size() && sum < least; ++s)
        sum += summands[s].values[offset[s] + form * own[s]];
      least = std::min(least, sum);
    }
    result.push_back(least);
    std::size_t i = scope.size();
    while (i-- > 0) {
      if (++at[i] < sizes[i]) {
        for (std::size_t s = 0; s < summands.size(); ++s) offset[s] += strides[s][i];
        break;
      }
      for (std::size_t s = 0; s < summands.size(); ++s) offset[s] -= strides[s][i] * (sizes[i] - 1);
      at[i] = 0;
    }
    if (i == static_cast<std::size_t>(-1)) return result;
  }
}

void unite(std::vector<std::size_t>& scope, const std::vector<std::size_t>& with, std::size_t without) {
  for (std::size_t each : with)
    if (each != without && std::find(scope.begin(), scope.end(), each) == scope.end()) scope.push_back(each);
  std::sort(scope.begin(), scope.end());
}

}  // namespace

Picoseconds RemainingCost::Bound::at(const std::vector<std::uint32_t>& form) const {
  std::size_t index = 0;
  for (std::size_t i = 0; i < scope.size(); ++i) index = index * forms[i] + form[scope[i]];
  return (*values)[index];
}

RemainingCost::RemainingCost(const ProgramChoices& choices, const LinearPrices& prices, std::size_t most_entries) {
  const std::size_t count = choices.own.size();
  std::vector<std::vector<Picoseconds>> times;  // of each table
  for (const std::vector<ProgramChoices::Move>& table : choices.tables) {
    std::vector<Picoseconds>& of = times.emplace_back();
    for (const ProgramChoices::Move& move : table) of.push_back(move.time);
  }
  std::map<const ProgramChoices::Option*, std::vector<Picoseconds>> owns;  // variables alike share theirs
  std::vector<const std::vector<Picoseconds>*> own_of(count);
  for (VariableId v : choices.own.ids()) {
    const SharedVec<ProgramChoices::Option>& options = choices.own[v];
    std::vector<Picoseconds>& own = owns[options.begin()];
    if (own.empty()) {
      own.assign(choices.forms[v], kNever);
      for (const ProgramChoices::Option& option : options)
        own[option.form] = std::min(own[option.form], own_cost(option, prices));
    }
    own_of[v.index()] = &own;
  }
  std::vector<std::vector<const ProgramChoices::Pair*>> ends_in(count);
  for (const ProgramChoices::Pair& pair : choices.pairs) ends_in[pair.b.index()].push_back(&pair);
  std::vector<std::vector<std::size_t>> bounds_in(count);  // by their last variable
  active_.resize(count + 1);
  constant_.assign(count + 1, 0);
  // Eliminations from equal tables are computed once.
  using Key = std::vector<std::uintptr_t>;
  std::map<Key, std::shared_ptr<const std::vector<Picoseconds>>> known;
  for (std::size_t v = count; v-- > 0;) {
    const std::uint32_t forms = choices.forms[VariableId(v)];
    std::vector<Summand> summands;
    summands.push_back({{v}, {forms}, own_of[v]->data(), reinterpret_cast<std::uintptr_t>(own_of[v])});
    for (const ProgramChoices::Pair* pair : ends_in[v])
      summands.push_back({{pair->a.index(), v},
                          {choices.forms[pair->a], forms},
                          times[pair->table].data(),
                          reinterpret_cast<std::uintptr_t>(times[pair->table].data())});
    for (std::size_t b : bounds_in[v])
      summands.push_back({bounds_[b].scope, bounds_[b].forms, bounds_[b].values->data(),
                          reinterpret_cast<std::uintptr_t>(bounds_[b].values.get())});
    while (!summands.empty()) {
      std::vector<Summand> part;
      std::vector<std::size_t> scope;
      for (std::size_t s = 0; s < summands.size();) {
        std::vector<std::size_t> wider = scope;
        unite(wider, summands[s].scope, v);
        double entries = 1;
        for (std::size_t each : wider) entries *= choices.forms[VariableId(each)];
        if (!part.empty() && entries > static_cast<double>(most_entries)) {
          ++s;
          continue;
        }
        scope = std::move(wider);
        part.push_back(std::move(summands[s]));
        summands.erase(summands.begin() + static_cast<std::ptrdiff_t>(s));
      }
      std::vector<std::uint32_t> sizes;
      for (std::size_t each : scope) sizes.push_back(choices.forms[VariableId(each)]);
      Key key = {forms};
      for (const Summand& each : part) {
        key.push_back(each.same);
        key.push_back(each.scope.size());
        for (std::size_t other : each.scope) key.push_back(v - other);
      }
      std::shared_ptr<const std::vector<Picoseconds>>& values = known[std::move(key)];
      if (!values) values = std::make_shared<std::vector<Picoseconds>>(minimised(part, v, forms, scope, sizes));
      if (scope.empty()) {
        for (std::size_t first = 0; first <= v; ++first) constant_[first] = sum_up(constant_[first], values->front());
        continue;
      }
      for (std::size_t first = scope.back() + 1; first <= v; ++first) active_[first].push_back(bounds_.size());
      bounds_in[scope.back()].push_back(bounds_.size());
      bounds_.push_back({std::move(scope), std::move(sizes), values, v});
    }
  }
}

Picoseconds RemainingCost::from(std::size_t first, const std::vector<std::uint32_t>& form) const {
  Picoseconds sum = constant_[first];
  for (std::size_t bound : active_[first]) sum = sum_up(sum, bounds_[bound].at(form));
  return sum;
}

class AStarSearch {
 public:
  AStarSearch(const ProgramChoices& choices, const LinearPrices& prices, const AStarOptions& options)
      : choices_(choices),
        prices_(prices),
        options_(options),
        remaining_(choices, prices, options.most_entries),
        count_(choices.own.size()),
        live_(count_ + 1),
        pairs_into_(count_),
        layers_(count_ + 1) {
    IdVec<VariableId, std::size_t> last(count_, 0);
    for (std::size_t p = 0; p < choices.pairs.size(); ++p) {
      pairs_into_[choices.pairs[p].b.index()].push_back(p);
      last[choices.pairs[p].a] = std::max<std::size_t>(last[choices.pairs[p].a], choices.pairs[p].b.index());
    }
    for (VariableId v : last.ids())
      for (std::size_t depth = v.index() + 1; depth <= last[v]; ++depth) live_[depth].push_back(v.index());
    find_supersets();
  }

  AStarOutcome run(const std::vector<std::uint32_t>& known) {
    if (!known.empty()) keep(known);
    const SearchClock clock(options_.budget);
    State root;
    for (ProgramChoices::Computation& open : root.open) open.assign(choices_.classes, 0);
    form_.assign(count_, 0);
    root.least = bound_of(root);
    push(std::move(root));
    while (!queue_.empty()) {
      const std::size_t at = queue_.top().state;
      if (outcome_.lower_bound < std::min(best_, queue_.top().least))
        outcome_.lower_bound = std::min(best_, queue_.top().least);
      if (queue_.top().least >= best_) break;
      queue_.pop();
      if (states_[at].dead) continue;
      if ((outcome_.expanded & 255) == 0)
        if (outcome_.stopped_by = clock.after(outcome_.expanded); outcome_.stopped_by != StoppedBy::Itself)
          return std::move(outcome_);
      ++outcome_.expanded;
      expand(at);
    }
    outcome_.lower_bound = best_ < kNever ? best_ : 0;
    return std::move(outcome_);
  }

 private:
  struct State {
    std::size_t depth = 0;
    std::vector<std::uint32_t> forms = {};  // of the live variables
    Picoseconds closed = 0;
    std::array<ProgramChoices::Computation, kPhases> open = {};
    Picoseconds least = 0;
    std::size_t parent = 0;
    std::uint32_t option = 0;
    bool dead = false;
  };
  struct Queued {
    Picoseconds least;
    std::size_t depth, state;

    // The least first; of equals the deepest, then the oldest.
    bool operator<(const Queued& other) const {
      return std::tuple(-least, depth, ~state) < std::tuple(-other.least, other.depth, ~other.state);
    }
  };
  using Superset =
      std::vector<char>;  // by form and form: whether the first is as good as the second for all that remain

  void find_supersets() {
    std::map<std::vector<std::pair<std::size_t, bool>>, std::shared_ptr<const Superset>> known;
    superset_.resize(count_ + 1);
    std::vector<std::vector<std::size_t>> pairs_of(count_);
    for (std::size_t p = 0; p < choices_.pairs.size(); ++p) pairs_of[choices_.pairs[p].a.index()].push_back(p);
    for (std::size_t depth = 0; depth <= count_; ++depth)
      for (std::size_t v : live_[depth]) {
        std::vector<std::pair<std::size_t, bool>> key;
        for (std::size_t p : pairs_of[v])
          if (choices_.pairs[p].b.index() >= depth) key.emplace_back(choices_.pairs[p].table, true);
        std::sort(key.begin(), key.end());
        std::shared_ptr<const Superset>& made = known[key];
        if (!made) made = superset_of(VariableId(v), key);
        superset_[depth].push_back(made);
      }
  }
  std::shared_ptr<const Superset> superset_of(VariableId v,
                                              const std::vector<std::pair<std::size_t, bool>>& tables) const {
    const std::uint32_t forms = choices_.forms[v];
    auto result = std::make_shared<Superset>(std::size_t{forms} * forms, 1);
    for (std::uint32_t a = 0; a < forms; ++a)
      for (std::uint32_t b = 0; b < forms; ++b)
        for (const auto& [t, row] : tables) {
          const std::vector<ProgramChoices::Move>& table = choices_.tables[t];
          const std::size_t width = table.size() / forms;
          for (std::size_t other = 0; other < width && (*result)[a * forms + b]; ++other) {
            const ProgramChoices::Move &of_a = table[a * width + other], &of_b = table[b * width + other];
            (*result)[a * forms + b] = of_a.time <= of_b.time && ((of_a.ends & ~of_b.ends) == 0 || of_b.time >= kNever);
          }
        }
    return result;
  }

  Picoseconds bound_of(const State& state) {
    for (std::size_t i = 0; i < live_[state.depth].size(); ++i) form_[live_[state.depth][i]] = state.forms[i];
    Picoseconds least = state.closed;
    if (state.depth == count_) {
      Picoseconds joined = 0;
      for (std::size_t c = 0; c < choices_.classes; ++c) joined = std::max(joined, state.open[0][c] + state.open[1][c]);
      return sum_up(least, joined + *std::max_element(state.open[2].begin(), state.open[2].end()));
    }
    least += weighted(state.open[0], prices_.stage) + weighted(state.open[1], prices_.stage) +
             weighted(state.open[2], prices_.update);
    return sum_up(least, remaining_.from(state.depth, form_));
  }

  bool dominates(const State& a, const State& b) const {
    if (a.closed > b.closed) return false;
    Picoseconds cost = a.closed;
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      Picoseconds more = 0;
      for (std::size_t c = 0; c < choices_.classes; ++c) more = std::max(more, a.open[phase][c] - b.open[phase][c]);
      cost += more;
    }
    if (cost > b.closed) return false;
    const std::vector<std::size_t>& live = live_[a.depth];
    for (std::size_t i = 0; i < live.size(); ++i)
      if (!(*superset_[a.depth][i])[std::size_t{a.forms[i]} * choices_.forms[VariableId(live[i])] + b.forms[i]])
        return false;
    return true;
  }

  void push(State state) {
    std::vector<std::size_t>& layer = layers_[state.depth];
    for (std::size_t other : layer)
      if (dominates(states_[other], state)) {
        ++outcome_.dominated;
        return;
      }
    std::erase_if(layer, [&](std::size_t other) {
      if (!dominates(state, states_[other])) return false;
      states_[other].dead = true;
      ++outcome_.dominated;
      return true;
    });
    layer.push_back(states_.size());
    queue_.push({state.least, state.depth, states_.size()});
    states_.push_back(std::move(state));
  }

  void expand(std::size_t at) {
    const VariableId v(states_[at].depth);
    for (std::uint32_t o = 0; o < choices_.own[v].size(); ++o) {
      const ProgramChoices::Option& option = choices_.own[v][o];
      const State& from = states_[at];
      State next{from.depth + 1, {}, from.closed, from.open, 0, at, o, false};
      Picoseconds cost = paid(option);
      StageEnds ends = option.ends;
      for (std::size_t i = 0; i < live_[from.depth].size(); ++i) form_[live_[from.depth][i]] = from.forms[i];
      for (std::size_t p : pairs_into_[v.index()]) {
        const ProgramChoices::Pair& pair = choices_.pairs[p];
        const ProgramChoices::Move& move =
            choices_.tables[pair.table][form_[pair.a.index()] * choices_.forms[v] + option.form];
        cost = sum_up(cost, move.time);
        ends |= move.ends;
      }
      if (cost >= kNever) continue;
      next.closed = sum_up(next.closed, cost);
      for (std::size_t phase = 0; phase < kPhases; ++phase) {
        ProgramChoices::Computation& open = next.open[phase];
        if (ends >> phase & 1u) {
          next.closed += *std::max_element(open.begin(), open.end());
          std::fill(open.begin(), open.end(), 0);
        }
        for (std::size_t c = 0; c < option.compute[phase].size(); ++c) open[c] += option.compute[phase][c];
      }
      form_[v.index()] = option.form;
      for (std::size_t each : live_[next.depth]) next.forms.push_back(form_[each]);
      next.least = std::max(from.least, bound_of(next));
      if (next.least >= best_) continue;
      if (next.depth == count_) {
        std::vector<std::uint32_t> all(count_);
        all[v.index()] = o;
        for (std::size_t s = at; states_[s].depth > 0; s = states_[s].parent)
          all[states_[s].depth - 1] = states_[s].option;
        keep(all);
      } else {
        push(std::move(next));
      }
    }
  }

  // What the option communicates, and the memory that it holds at its price.
  Picoseconds paid(const ProgramChoices::Option& option) const {
    LinearPrices memory_only{std::vector<std::int64_t>(choices_.classes, 0),
                             std::vector<std::int64_t>(choices_.classes, 0), prices_.memory};
    return own_cost(option, memory_only);
  }

  void keep(const std::vector<std::uint32_t>& option) {
    StageSum sum = stage_sum(choices_, option);
    Picoseconds cost = sum.total;
    if (!prices_.memory.empty()) {
      cost -= sum.communication;
      for (VariableId v : choices_.own.ids()) cost += paid(choices_.own[v][option[v.index()]]);
      for (const ProgramChoices::Pair& pair : choices_.pairs)
        cost += choices_.move(pair, option[pair.a.index()], option[pair.b.index()]).time;
    }
    if (cost >= best_) return;
    best_ = cost;
    outcome_.option = option;
    outcome_.sum = std::move(sum);
  }

  const ProgramChoices& choices_;
  const LinearPrices& prices_;
  const AStarOptions& options_;
  const RemainingCost remaining_;
  const std::size_t count_;
  std::vector<std::vector<std::size_t>> live_;                          // by depth, ascending
  std::vector<std::vector<std::shared_ptr<const Superset>>> superset_;  // by depth, of each live variable
  std::vector<std::vector<std::size_t>> pairs_into_;
  std::vector<std::vector<std::size_t>> layers_;  // by depth: states that no other dominates
  std::deque<State> states_;
  std::priority_queue<Queued> queue_;
  std::vector<std::uint32_t> form_;
  Picoseconds best_ = kNever;
  AStarOutcome outcome_;
};

AStarOutcome search_astar(const ProgramChoices& choices, const LinearPrices& prices,
                          const std::vector<std::uint32_t>& known, const AStarOptions& options) {
  return AStarSearch(choices, prices, options).run(known);
}

}  // namespace weft
