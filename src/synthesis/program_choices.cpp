#include "synthesis/program_choices.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"

namespace weft {
namespace {

Picoseconds capped(Picoseconds a, Picoseconds b) { return std::min<Picoseconds>(kNever, a + b); }

void add(ProgramChoices::Computation& sum, const ProgramChoices::Computation& more) {
  for (std::size_t c = 0; c < more.size(); ++c) sum[c] += more[c];
}

Picoseconds slowest(const ProgramChoices::Computation& stage) {
  return stage.empty() ? 0 : *std::max_element(stage.begin(), stage.end());
}

// The passes whose stage ends in front of each variable.
std::vector<StageEnds> all_ends(const ProgramChoices& choices, const std::vector<std::uint32_t>& option) {
  std::vector<StageEnds> ends;
  for (VariableId v : choices.own.ids()) ends.push_back(choices.own[v][option[v.index()]].ends);
  for (const ProgramChoices::Pair& pair : choices.pairs)
    ends[pair.b.index()] |= choices.move(pair, option[pair.a.index()], option[pair.b.index()]).ends;
  return ends;
}

}  // namespace

std::vector<ProgramChoices::Computation> stages_of(const ProgramChoices& choices,
                                                   const std::vector<std::uint32_t>& option) {
  const std::vector<StageEnds> ends = all_ends(choices, option);
  std::vector<ProgramChoices::Computation> stages;
  const auto begin = [&] { stages.emplace_back(choices.classes, 0); };
  const auto compute = [&](std::size_t v, Phase phase) {
    add(stages.back(), choices.own[VariableId(v)][option[v]].compute[static_cast<std::size_t>(phase)]);
  };
  begin();
  for (std::size_t v = 0; v < option.size(); ++v) {
    if (ends[v] & ends_of(Phase::Forward)) begin();
    compute(v, Phase::Forward);
  }
  for (std::size_t v = option.size(); v-- > 0;) {
    compute(v, Phase::Backward);
    if (ends[v] & ends_of(Phase::Backward)) begin();
  }
  begin();
  for (std::size_t v = 0; v < option.size(); ++v) compute(v, Phase::Step);
  return stages;
}

StageSum stage_sum(const ProgramChoices& choices, const std::vector<std::uint32_t>& option) {
  StageSum sum;
  sum.memory.assign(choices.classes, 0);
  for (VariableId v : choices.own.ids()) {
    const ProgramChoices::Option& of = choices.own[v][option[v.index()]];
    sum.communication = capped(sum.communication, of.communication);
    for (std::size_t c = 0; c < of.memory.size(); ++c) sum.memory[c] += of.memory[c];
  }
  for (const ProgramChoices::Pair& pair : choices.pairs)
    sum.communication =
        capped(sum.communication, choices.move(pair, option[pair.a.index()], option[pair.b.index()]).time);
  sum.total = sum.communication;
  for (const ProgramChoices::Computation& stage : stages_of(choices, option)) {
    sum.total = capped(sum.total, slowest(stage));
    sum.stages += slowest(stage) > 0;
  }
  return sum;
}

LinearPrices even_prices(std::size_t classes) {
  std::vector<std::int64_t> weights(classes, LinearPrices::kWhole / static_cast<std::int64_t>(classes));
  weights.front() += LinearPrices::kWhole % static_cast<std::int64_t>(classes);
  return {weights, weights, {}};
}

Picoseconds weighted(const ProgramChoices::Computation& computation, const std::vector<std::int64_t>& weights) {
  __int128 sum = 0;
  for (std::size_t c = 0; c < computation.size(); ++c) sum += static_cast<__int128>(computation[c]) * weights[c];
  return static_cast<Picoseconds>(sum / LinearPrices::kWhole);
}

Picoseconds own_cost(const ProgramChoices::Option& option, const LinearPrices& prices) {
  Picoseconds cost = option.communication;
  if (cost >= kNever) return kNever;
  cost += weighted(option.compute[0], prices.stage);
  cost += weighted(option.compute[1], prices.stage);
  cost += weighted(option.compute[2], prices.update);
  double held = 0;
  if (!prices.memory.empty())
    for (std::size_t c = 0; c < option.memory.size(); ++c)
      held += prices.memory[c] * static_cast<double>(option.memory[c]);
  return capped(cost, static_cast<Picoseconds>(std::min(held, static_cast<double>(kNever))));
}

namespace {

// Rows of one variable's forms in the tables of all its pairs, as seen from it.
struct Row {
  const std::vector<ProgramChoices::Move>* table;
  bool first;  // the variable is the pair's first one
  std::uint32_t others;

  bool operator<(const Row& o) const { return std::tie(table, first, others) < std::tie(o.table, o.first, o.others); }
  Picoseconds at(std::uint32_t form, std::uint32_t forms, std::uint32_t other) const {
    return (*table)[first ? form * others + other : other * forms + form].time;
  }
};

// Forms that stay, with the cheapest option of each.
using Kept = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Kept keep_forms(const std::vector<Picoseconds>& own, std::uint32_t forms, const std::vector<std::uint32_t>& form_of,
                const std::vector<Row>& rows) {
  std::vector<std::uint32_t> cheapest(forms, ~0u);
  for (std::uint32_t o = 0; o < own.size(); ++o)
    if (std::uint32_t& best = cheapest[form_of[o]]; best == ~0u || own[o] < own[best]) best = o;
  std::vector<std::uint32_t> order;
  for (std::uint32_t f = 0; f < forms; ++f)
    if (own[cheapest[f]] < kNever) order.push_back(f);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return own[cheapest[a]] < own[cheapest[b]]; });
  std::vector<std::uint32_t> stay;
  for (std::uint32_t f : order) {
    const bool replaced = std::any_of(stay.begin(), stay.end(), [&](std::uint32_t by) {
      Picoseconds left = own[cheapest[f]] - own[cheapest[by]];
      for (const Row& row : rows) {
        Picoseconds more = 0;
        for (std::uint32_t other = 0; other < row.others; ++other) {
          const Picoseconds there = row.at(f, forms, other);
          if (there < kNever) more = std::max(more, row.at(by, forms, other) - there);
          if (more > left) return false;
        }
        left -= more;
      }
      return true;
    });
    if (!replaced) stay.push_back(f);
  }
  std::sort(stay.begin(), stay.end());
  Kept kept;
  for (std::uint32_t f : stay) kept.emplace_back(f, cheapest[f]);
  return kept;
}

}  // namespace

LinearProblem linear_problem(const ProgramChoices& choices, const LinearPrices& prices) {
  IdVec<VariableId, std::vector<Row>> rows(choices.own.size());
  for (const ProgramChoices::Pair& pair : choices.pairs) {
    rows[pair.a].push_back({&choices.tables[pair.table], true, choices.forms[pair.b]});
    rows[pair.b].push_back({&choices.tables[pair.table], false, choices.forms[pair.a]});
  }
  LinearProblem problem;
  IdVec<VariableId, Kept> kept;
  // Variables alike keep alike.
  std::map<std::pair<const ProgramChoices::Option*, std::vector<Row>>, Kept> known;
  std::map<const ProgramChoices::Option*, std::vector<Picoseconds>> costs;
  for (VariableId v : choices.own.ids()) {
    const SharedVec<ProgramChoices::Option>& all = choices.own[v];
    std::vector<Picoseconds>& own = costs[all.begin()];
    if (own.empty())
      for (const ProgramChoices::Option& option : all) own.push_back(own_cost(option, prices));
    std::sort(rows[v].begin(), rows[v].end());
    const auto [found, fresh] = known.try_emplace({all.begin(), rows[v]});
    if (fresh) {
      std::vector<std::uint32_t> form_of;
      for (const ProgramChoices::Option& option : all) form_of.push_back(option.form);
      found->second = keep_forms(own, choices.forms[v], form_of, rows[v]);
    }
    kept.push_back(found->second);
    std::vector<ChoiceProblem::Option> options;
    std::vector<std::uint32_t> meaning;
    for (const auto& [form, option] : kept[v]) {
      options.push_back({own[option], 0});
      meaning.push_back(option);
    }
    if (options.empty()) {  // nothing is possible
      options.push_back({kNever, 0});
      meaning.push_back(0);
      kept[v].emplace_back(choices.own[v].front().form, 0);
    }
    problem.choices.own.push_back(std::move(options));
    problem.option.push_back(std::move(meaning));
  }
  std::map<std::tuple<std::size_t, std::vector<std::uint32_t>, std::vector<std::uint32_t>>, std::size_t> tables;
  const auto forms = [](const Kept& of) {
    std::vector<std::uint32_t> all;
    for (const auto& [form, option] : of) all.push_back(form);
    return all;
  };
  for (const ProgramChoices::Pair& pair : choices.pairs) {
    const std::vector<std::uint32_t> of_a = forms(kept[pair.a]), of_b = forms(kept[pair.b]);
    const auto [found, fresh] = tables.try_emplace({pair.table, of_a, of_b}, problem.choices.tables.size());
    if (fresh) {
      std::vector<std::int64_t> times;
      for (std::uint32_t a : of_a)
        for (std::uint32_t b : of_b) times.push_back(choices.tables[pair.table][a * choices.forms[pair.b] + b].time);
      problem.choices.tables.push_back(std::move(times));
    }
    problem.choices.pairs.push_back({pair.a, pair.b, found->second});
  }
  return problem;
}

}  // namespace weft
