#include "hybrid/constraints.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/suggest.h"
#include "base/units.h"
#include "hybrid/hybrid_space.h"
#include "strategy/schedules.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, kDimensions> kDimensionNames = {
    "tp", "cp",  "ep", "etp",     "pp",        "dp",       "vpp",  "zero",    "fsdp",  "replicate",
    "sp", "mbs", "ga", "cp_mode", "recompute", "schedule", "full", "offload", "stages"};

constexpr std::string_view kNone = "none", kEven = "even";

bool is_number(Dimension dimension) { return dimension < Dimension::CpMode; }

std::optional<Dimension> dimension_named(std::string_view name) {
  for (int i = 0; i < kDimensions; ++i)
    if (kDimensionNames[static_cast<std::size_t>(i)] == name) return static_cast<Dimension>(i);
  return std::nullopt;
}

std::vector<std::string> dimension_names() { return {kDimensionNames.begin(), kDimensionNames.end()}; }

// The items of "tp=8,cp=1"; spaces count as commas.
Result<std::vector<std::string>> items_of(std::string_view option, std::string_view text) {
  std::vector<std::string> items{""};
  for (const char c : text) {
    if (c == ',' || c == ' ')
      items.emplace_back();
    else
      items.back().push_back(c);
  }
  std::erase(items, "");
  if (items.empty() && !text.empty()) return error("{} '{}': names nothing", option, text.substr(0, 60));
  return items;
}

// A value as the shorthand reads it, so that what is no value of a key is refused with the shorthand's own message.
Result<PlanValue> parse_value(std::string_view option, Dimension dimension, std::string_view key,
                              std::string_view value) {
  if (dimension == Dimension::Full || dimension == Dimension::Offload || dimension == Dimension::Stages)
    return error("{} {}={}: write it with --without: plans without {}", option, key, value,
                 dimension == Dimension::Stages ? "uneven stages" : name_of(dimension));
  const Result<Shorthand> read = parse_shorthand(fmt::format("{}={}", key, value));
  if (!read.ok()) {
    std::string message = read.error().message;
    if (const std::string prefix = "strategy: "; message.starts_with(prefix)) message.erase(0, prefix.size());
    return error("{} {}", option, message);
  }
  if (!is_number(dimension)) return PlanValue(std::string(value));
  WEFT_TRY(const std::int64_t number, parse_integer(value, key));
  return PlanValue(number);
}

Result<Clause> parse_setting(std::string_view option, Clause::Kind kind, std::string_view item) {
  const std::size_t equals = item.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
    return error("{} '{}': write key=value, {}", option, item.substr(0, 60),
                 kind == Clause::Kind::AtMost ? "vpp=4" : "tp=8");
  const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
  const std::optional<Dimension> dimension = dimension_named(key);
  if (!dimension)
    return error("{} {}: no search decides '{}'{}", option, item.substr(0, 60), key.substr(0, 40),
                 did_you_mean_or_list(key, dimension_names()));
  if (kind == Clause::Kind::AtMost && !is_number(*dimension))
    return error("{} {}: {} is no number; use --fix or --without", option, item.substr(0, 60), key);
  Clause clause{.dimension = *dimension, .kind = kind, .value = {}, .words = fmt::format("{} {}", option, item)};
  WEFT_TRY(clause.value, parse_value(option, *dimension, key, value));
  return clause;
}

// "cp": none of it; "zero3": that value; "recompute=full": that value.
Result<Clause> parse_without(std::string_view item) {
  constexpr std::string_view kOption = "--without";
  if (item.find('=') != std::string_view::npos) return parse_setting(kOption, Clause::Kind::IsNot, item);
  Clause clause{.dimension = {},
                .kind = Clause::Kind::AtMost,
                .value = std::int64_t{1},
                .words = fmt::format("{} {}", kOption, item)};
  if (item.size() == 5 && item.starts_with("zero") && item[4] >= '1' && item[4] <= '3') {
    clause.dimension = Dimension::Zero;
    clause.kind = Clause::Kind::IsNot;
    clause.value = std::int64_t{item[4] - '0'};
    return clause;
  }
  // Other words for the same.
  std::string_view key = item;
  if (item == "hsdp") key = "replicate";
  if (item == "interleaving") key = "vpp";
  if (item == "uneven") key = "stages";
  if (item == "pipeline") key = "pp";
  const std::optional<Dimension> dimension = dimension_named(key);
  if (!dimension) {
    std::vector<std::string> known = dimension_names();
    known.insert(known.end(), {"zero1", "zero2", "zero3", "hsdp", "interleaving", "uneven", "pipeline"});
    return error("{} {}: unknown{}; values can be excluded too: recompute=full", kOption, item.substr(0, 40),
                 did_you_mean_or_list(item, known));
  }
  clause.dimension = *dimension;
  switch (*dimension) {
    case Dimension::Zero:
    case Dimension::Sp:
      clause.value = std::int64_t{0};
      break;
    case Dimension::CpMode:
    case Dimension::Schedule:
    case Dimension::Etp:
    case Dimension::Fsdp:
      return error("{} {}: every plan has one; name the value, {}", kOption, item,
                   *dimension == Dimension::CpMode     ? "cp_mode=ring"
                   : *dimension == Dimension::Schedule ? "schedule=gpipe"
                                                       : fmt::format("{}=2", item));
    case Dimension::Recompute:
    case Dimension::Full:
    case Dimension::Offload:
      clause.kind = Clause::Kind::Is;
      clause.value = std::string(kNone);
      break;
    case Dimension::Stages:
      clause.kind = Clause::Kind::Is;
      clause.value = std::string(kEven);
      break;
    default:
      break;
  }
  return clause;
}

// Two values that one dimension is fixed to, or fixed and excluded.
Status check_together(const std::vector<Clause>& clauses) {
  for (std::size_t i = 0; i < clauses.size(); ++i)
    for (std::size_t j = i + 1; j < clauses.size(); ++j) {
      const Clause &a = clauses[i], &b = clauses[j];
      if (a.dimension != b.dimension) continue;
      const Clause& fixed = a.kind == Clause::Kind::Is ? a : b;
      const Clause& other = a.kind == Clause::Kind::Is ? b : a;
      if (fixed.kind != Clause::Kind::Is) continue;
      const bool together = other.kind == Clause::Kind::Is      ? other.value == fixed.value
                            : other.kind == Clause::Kind::IsNot ? other.value != fixed.value
                                                                : fixed.value <= other.value;
      if (!together) return error("{} contradicts {}; leave one out", a.words, b.words);
    }
  return Ok{};
}

std::string devices_text(const PlanProblem& problem) {
  return fmt::format("{} on {} device{}", problem.model().name, grouped(problem.devices),
                     problem.devices == 1 ? "" : "s");
}

// Why no plan has this value, in a few words; empty: there is no simple reason.
std::string reason_against(const Clause& clause, const PlanProblem& problem) {
  const auto* number = std::get_if<std::int64_t>(&clause.value);
  if (!number || clause.kind != Clause::Kind::Is) return "";
  const std::int64_t value = *number;
  switch (clause.dimension) {
    case Dimension::Tp:
      if (!problem.splits_tensors) return "nothing of the model is split by tp";
      if (problem.heads % value != 0) return fmt::format("it does not divide the {} heads", problem.heads);
      break;
    case Dimension::Cp:
      if (!problem.model().counts_tokens) return "the model has no sequence to cut";
      if (problem.model().seq % (2 * value) != 0)
        return fmt::format("2·{} does not divide the sequence of {}", value, grouped(problem.model().seq));
      break;
    case Dimension::Ep:
      if (problem.experts <= 1) return "the model has no experts";
      if (problem.experts % value != 0) return fmt::format("it does not divide the {} experts", problem.experts);
      return "";
    case Dimension::Pp:
      if (problem.layers.count() == 0) return "the model has no layers that are alike to cut stages from";
      if (value > problem.layers.count())
        return fmt::format("there are more stages than the {} layers", problem.layers.count());
      break;
    case Dimension::Dp:
      if (problem.global_batch % value != 0)
        return fmt::format("it does not divide the global batch of {}", grouped(problem.global_batch));
      break;
    case Dimension::Vpp:
      if (value > 1 && problem.layers.count() % value != 0)
        return fmt::format("the {} layers do not divide into as many chunks", problem.layers.count());
      return "";
    case Dimension::Mbs:
    case Dimension::Ga:
      if (problem.global_batch % value != 0)
        return fmt::format("it does not divide the global batch of {}", grouped(problem.global_batch));
      return "";
    default:
      return "";
  }
  if (problem.devices % value != 0) return fmt::format("it does not divide the {} devices", grouped(problem.devices));
  if (clause.dimension == Dimension::Tp && problem.per_node % value != 0 && value % problem.per_node != 0)
    return fmt::format("groups of {} would straddle nodes of {}", value, problem.per_node);
  return "";
}

// Of the values that plans have, those next to the wanted one: "tp=2 or tp=4".
std::string nearest_text(const Clause& clause, const std::set<PlanValue>& there) {
  std::vector<std::string> shown;
  const auto add = [&](const PlanValue& value) {
    shown.push_back(fmt::format("{}={}", name_of(clause.dimension), print(value)));
  };
  if (is_number(clause.dimension)) {
    const auto above = there.lower_bound(clause.value);
    if (above != there.begin()) add(*std::prev(above));
    if (above != there.end()) add(*above);
  } else {
    for (const PlanValue& value : there) add(value);
  }
  return fmt::format("{}", fmt::join(shown, " or "));
}

}  // namespace

std::string_view name_of(Dimension dimension) { return kDimensionNames[static_cast<std::size_t>(dimension)]; }

PlanValue value_of(const Parallelism& plan, Dimension dimension) {
  switch (dimension) {
    case Dimension::Tp:
      return plan.tp;
    case Dimension::Cp:
      return plan.cp;
    case Dimension::Ep:
      return plan.ep;
    case Dimension::Etp:
      return plan.etp;
    case Dimension::Pp:
      return plan.pp;
    case Dimension::Dp:
      return plan.dp;
    case Dimension::Vpp:
      return plan.vpp;
    case Dimension::Zero:
      return std::int64_t{plan.zero};
    case Dimension::Fsdp:
      return plan.zero == 3 ? plan.fsdp : std::int64_t{1};
    case Dimension::Replicate:
      return plan.dp / plan.fsdp;
    case Dimension::Sp:
      return std::int64_t{plan.sequence_parallel ? 1 : 0};
    case Dimension::Mbs:
      return plan.micro_batch;
    case Dimension::Ga:
      return plan.micro_batches;
    case Dimension::CpMode:
      return std::string(plan.cp > 1 ? name_of(plan.cp_mode) : kNone);
    case Dimension::Recompute:
      return std::string(name_of(plan.recompute));
    case Dimension::Schedule:
      return plan.schedule;
    case Dimension::Full:
      return plan.full.empty() ? std::string(kNone) : print_modules(plan.full);
    case Dimension::Offload:
      return std::string(plan.offload.empty() ? kNone : "some");
    case Dimension::Stages:
      return std::string(std::adjacent_find(plan.stages.begin(), plan.stages.end(), std::not_equal_to<>()) ==
                                 plan.stages.end()
                             ? kEven
                             : "uneven");
  }
  return std::int64_t{0};
}

std::string print(const PlanValue& value) {
  const auto* number = std::get_if<std::int64_t>(&value);
  return number ? fmt::format("{}", *number) : std::get<std::string>(value);
}

bool Clause::allows(const Parallelism& plan) const {
  const PlanValue has = value_of(plan, dimension);
  if (kind == Kind::AtMost) return has <= value;
  if (kind == Kind::IsNot) return has != value;
  // Without a pipeline there is no schedule to speak of, and without cp no mode.
  if (dimension == Dimension::Schedule && plan.pp == 1) return value == PlanValue(std::string("1f1b"));
  // Whole layers are recomputed by full= too.
  if (dimension == Dimension::Recompute && value == PlanValue(std::string(kNone)) && !plan.full.empty()) return false;
  return has == value;
}

bool Constraints::allow(const Parallelism& plan) const {
  return std::all_of(clauses.begin(), clauses.end(), [&](const Clause& clause) { return clause.allows(plan); }) &&
         abilities.include(needed_by(plan));
}

bool Constraints::allow_recomputation(Recompute base, const std::vector<std::string>& full) const {
  Parallelism plan;
  plan.recompute = base;
  plan.full = in_all_layers(full);
  return std::all_of(clauses.begin(), clauses.end(),
                     [&](const Clause& clause) {
                       return (clause.dimension != Dimension::Recompute && clause.dimension != Dimension::Full) ||
                              clause.allows(plan);
                     }) &&
         abilities.include(needed_by(plan));
}

std::optional<std::int64_t> Constraints::fixed(Dimension dimension) const {
  for (const Clause& clause : clauses)
    if (clause.dimension == dimension && clause.kind == Clause::Kind::Is)
      if (const auto* number = std::get_if<std::int64_t>(&clause.value)) return *number;
  return std::nullopt;
}

std::vector<std::string> Constraints::words() const {
  std::vector<std::string> all;
  for (const Clause& clause : clauses) all.push_back(clause.words);
  if (abilities != Abilities::all()) all.push_back(fmt::format("what {} can run (--any-stack: all)", stack));
  return all;
}

Result<Constraints> parse_constraints(const ConstraintWords& words) {
  Constraints constraints;
  WEFT_TRY(const std::vector<std::string> fix, items_of("--fix", words.fix));
  for (const std::string& item : fix) {
    WEFT_TRY(Clause clause, parse_setting("--fix", Clause::Kind::Is, item));
    constraints.clauses.push_back(std::move(clause));
  }
  WEFT_TRY(const std::vector<std::string> limit, items_of("--limit", words.limit));
  for (const std::string& item : limit) {
    WEFT_TRY(Clause clause, parse_setting("--limit", Clause::Kind::AtMost, item));
    constraints.clauses.push_back(std::move(clause));
  }
  WEFT_TRY(const std::vector<std::string> without, items_of("--without", words.without));
  for (const std::string& item : without) {
    WEFT_TRY(Clause clause, parse_without(item));
    constraints.clauses.push_back(std::move(clause));
  }
  WEFT_TRY_OK(check_together(constraints.clauses));
  return constraints;
}

SpaceOptions opened(SpaceOptions options, const Constraints& constraints, const PlanProblem& problem) {
  for (int i = 0; i < kPlanSchedules; ++i) {
    const auto schedule = static_cast<PlanSchedule>(i);
    const bool asked = std::any_of(constraints.clauses.begin(), constraints.clauses.end(), [&](const Clause& clause) {
      return clause.dimension == Dimension::Schedule && clause.kind == Clause::Kind::Is &&
             clause.value == PlanValue(std::string(name_of(schedule)));
    });
    if (asked && std::find(options.schedules.begin(), options.schedules.end(), schedule) == options.schedules.end())
      options.schedules.push_back(schedule);
  }
  for (const Clause& clause : constraints.clauses) {
    if (clause.dimension != Dimension::Recompute || clause.kind != Clause::Kind::Is) continue;
    std::vector<PlanRecompute> sets = recomputations(problem, options);
    for (const PlanRecompute each :
         {PlanRecompute::None, PlanRecompute::Selective, PlanRecompute::Full, PlanRecompute::Op})
      if (PlanValue(std::string(name_of(problem.layers.recompute.sets[static_cast<std::size_t>(each)].base))) ==
              clause.value &&
          std::find(sets.begin(), sets.end(), each) == sets.end())
        sets.push_back(each);
    options.recompute = std::move(sets);
  }
  if (const auto size = constraints.fixed(Dimension::Mbs))
    if (options.most_micro_batch > 0) options.most_micro_batch = std::max(options.most_micro_batch, *size);
  if (const auto cp = constraints.fixed(Dimension::Cp); cp && problem.model().seq > 0)
    options.least_context = std::min(options.least_context, std::max<std::int64_t>(1, problem.model().seq / *cp));
  if (const auto tp = constraints.fixed(Dimension::Tp))
    options.most_tensor = std::max({options.most_tensor, problem.per_node, *tp});
  const auto zero = constraints.fixed(Dimension::Zero);
  if (zero && std::find(options.zero.begin(), options.zero.end(), *zero) == options.zero.end())
    options.zero.push_back(static_cast<int>(*zero));
  const bool pipelined = zero.value_or(0) >= 2 && constraints.fixed(Dimension::Pp).value_or(1) > 1;
  const bool stack_does = !constraints.stack.empty() && constraints.abilities.has(Ability::PipelinedZero);
  options.pipelined_zero = options.pipelined_zero || pipelined || stack_does;
  return options;
}

Error why_nothing(const Constraints& constraints, std::span<const Parallelism> plans, const PlanProblem& problem) {
  const std::vector<Clause>& clauses = constraints.clauses;
  const auto allowed_but = [&](const Parallelism& plan, const Clause* left_out, bool by_stack) {
    return std::all_of(clauses.begin(), clauses.end(),
                       [&](const Clause& clause) { return &clause == left_out || clause.allows(plan); }) &&
           (!by_stack || constraints.abilities.include(needed_by(plan)));
  };
  // The stack alone stands in the way: of what it lacks, the least.
  std::optional<Abilities> lacking;
  for (const Parallelism& plan : plans) {
    if (!allowed_but(plan, nullptr, false)) continue;
    const Abilities missing = needed_by(plan).without(constraints.abilities);
    if (!lacking || missing.count() < lacking->count()) lacking = missing;
  }
  std::vector<std::string> words;
  for (const Clause& clause : clauses) words.push_back(clause.words);
  if (lacking)
    return error(
        "--stack {0}: {1} cannot run {2}: it has no {3} (presets/stacks.yaml); choose another stack, or "
        "--any-stack to plan regardless",
        constraints.stack, constraints.stack,
        words.empty() ? fmt::format("any plan of {}", devices_text(problem)) : fmt::format("{}", fmt::join(words, " ")),
        print(*lacking));
  // One demand that the others leave no room for; of several, the last.
  for (std::size_t i = clauses.size(); i-- > 0;) {
    std::set<PlanValue> there;
    for (const Parallelism& plan : plans)
      if (allowed_but(plan, &clauses[i], true)) there.insert(value_of(plan, clauses[i].dimension));
    if (there.empty()) continue;
    const std::string reason = reason_against(clauses[i], problem);
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    return error("{}: no plan of {}{} has it{}; the nearest possible: {}", clauses[i].words, devices_text(problem),
                 words.empty() ? "" : fmt::format(" with {}", fmt::join(words, ", ")),
                 reason.empty() ? "" : fmt::format(": {}", reason), nearest_text(clauses[i], there));
  }
  // Several at once: those that are impossible even alone, or all of them.
  std::vector<std::string> alone;
  for (const Clause& clause : clauses) {
    if (std::any_of(plans.begin(), plans.end(), [&](const Parallelism& plan) { return clause.allows(plan); })) continue;
    const std::string reason = reason_against(clause, problem);
    alone.push_back(reason.empty() ? clause.words : fmt::format("{}: {}", clause.words, reason));
  }
  if (!alone.empty()) return error("{}: no plan of {} has that", fmt::join(alone, "; "), devices_text(problem));
  return error("{}: each is possible for {}, together they are not; leave one out", fmt::join(words, ", "),
               devices_text(problem));
}

}  // namespace weft
