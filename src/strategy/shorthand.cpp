#include "strategy/shorthand.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/checked.h"
#include "base/suggest.h"
#include "base/units.h"
#include "strategy/presets.h"
#include "strategy/schedules.h"

namespace weft {
namespace {

// Bounds that keep every product of a degree, a micro-batch and a count of them within 64 bits.
constexpr std::int64_t kMostDegree = std::int64_t{1} << 24, kMostBatch = std::int64_t{1} << 19;
constexpr std::int64_t kMostStages = 1 << 20;
constexpr std::int64_t kMostGlobalBatch = std::int64_t{1} << 40;

// Keys with a whole number, and the range of each.
struct NumberKey {
  std::string_view name;
  std::optional<std::int64_t> Shorthand::*field;
  std::int64_t least, most;
};
constexpr std::array<NumberKey, 16> kNumbers = {{
    {"tp", &Shorthand::tp, 1, kMostDegree},
    {"cp", &Shorthand::cp, 1, kMostDegree},
    {"pp", &Shorthand::pp, 1, kMostDegree},
    {"dp", &Shorthand::dp, 1, kMostDegree},
    {"ep", &Shorthand::ep, 1, kMostDegree},
    {"etp", &Shorthand::etp, 1, kMostDegree},
    {"vpp", &Shorthand::vpp, 1, 1024},
    {"zero", &Shorthand::zero, 0, 3},
    {"fsdp", &Shorthand::fsdp, 1, kMostDegree},
    {"replicate", &Shorthand::replicate, 1, kMostDegree},
    {"sp", &Shorthand::sp, 0, 1},
    {"mbs", &Shorthand::mbs, 1, kMostBatch},
    {"ga", &Shorthand::ga, 1, kMostBatch},
    {"h", &Shorthand::h, 1, kMostDegree},
    {"w", &Shorthand::w, 1, kMostDegree},
    {"tables", &Shorthand::tables, 0, 1},
}};
constexpr std::array<std::string_view, 8> kTexts = {"cp_mode", "recompute", "full",  "schedule",
                                                    "stages",  "shares",    "order", "offload"};
constexpr std::array<std::string_view, 9> kOrderAxes = {"tp", "cp", "ep", "dp", "pp", "h", "w", "replicate", "fsdp"};

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (const NumberKey& key : kNumbers) keys.emplace_back(key.name);
  keys.insert(keys.end(), kTexts.begin(), kTexts.end());
  return keys;
}

std::string shown(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

std::vector<std::string_view> split_on(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Tables of plans have spaces for commas: "tp=8 pp=2" or "tp=8, pp=2" → "tp=8,pp=2".
std::string with_commas(std::string_view text) {
  std::string items;
  bool space = false;
  for (const char c : text) {
    if (c == ' ') {
      space = true;
      continue;
    }
    if (space && !items.empty() && items.back() != ',' && c != ',') items.push_back(',');
    space = false;
    items.push_back(c);
  }
  return items;
}

// "62x2" or "62×2": 62 stages of 2 layers each; "8": one of 8. No layers: not a number.
std::pair<std::int64_t, std::optional<std::int64_t>> counted(std::string_view part) {
  constexpr std::string_view kTimes = "×";
  std::size_t at = part.find(kTimes), width = kTimes.size();
  if (at == std::string_view::npos) at = part.find('x'), width = 1;
  std::int64_t count = 1;
  if (at != std::string_view::npos) {
    const Result<std::int64_t> times = parse_integer(part.substr(0, at), "");
    count = times.ok() ? *times : 0;
    part.remove_prefix(at + width);
  }
  const Result<std::int64_t> layers = parse_integer(part, "");
  return {count, layers.ok() && *layers >= 0 ? std::optional(*layers) : std::nullopt};
}

// The inverse: runs of at least three alike numbers are counted.
std::string print_counted(const std::vector<std::int64_t>& stages) {
  std::string text;
  for (std::size_t i = 0; i < stages.size();) {
    std::size_t end = i;
    while (end < stages.size() && stages[end] == stages[i]) ++end;
    const std::size_t run = end - i;
    if (run >= 3) {
      text += fmt::format("{}{}x{}", text.empty() ? "" : "+", run, stages[i]);
      i = end;
    } else {
      text += fmt::format("{}{}", text.empty() ? "" : "+", stages[i++]);
    }
  }
  return text;
}

Status parse_text(std::string_view key, std::string_view value, Shorthand& into) {
  if (key == "cp_mode") {
    into.cp_mode = context_mode_named(value);
    if (!into.cp_mode) return error("cp_mode={}: write gather, a2a or ring", shown(value));
  } else if (key == "recompute") {
    into.recompute = recompute_named(value);
    if (!into.recompute) return error("recompute={}: write none, selective, full or op", shown(value));
  } else if (key == "full") {
    for (std::string_view part : split_on(value, '+')) {
      if (part.empty()) return error("full={}: write modules, layers.*.mlp, joined by +", shown(value));
      into.full.emplace_back(part);
    }
  } else if (key == "schedule") {
    if (!find_schedule(value))
      return error("schedule={}: unknown{}", shown(value), did_you_mean(shown(value), pipeline_schedule_names()));
    into.schedule = value;
  } else if (key == "stages") {
    for (std::string_view part : split_on(value, '+')) {
      const auto [count, layers] = counted(part);
      if (!layers || *layers > kMostDegree || count < 1 ||
          count + static_cast<std::int64_t>(into.stages.size()) > kMostStages)
        return error("stages={}: write the layers of every stage, 8+8+7+9, or alike ones counted, 1+62x2+1",
                     shown(value));
      into.stages.insert(into.stages.end(), static_cast<std::size_t>(count), *layers);
    }
  } else if (key == "shares") {
    for (std::string_view part : split_on(value, '+')) {
      const auto [count, share] = counted(part);
      if (!share || *share > kMostBatch || count < 1 ||
          count + static_cast<std::int64_t>(into.shares.size()) > kMostStages)
        return error("shares={}: write the share of every replica, 3+3+1+1, or alike ones counted, 2x3+2x1",
                     shown(value));
      if (*share == 0)
        return error("shares={}: a replica without samples waits all the time; leave its devices out (--devices)",
                     shown(value));
      into.shares.insert(into.shares.end(), static_cast<std::size_t>(count), *share);
    }
  } else if (key == "order") {
    for (std::string_view part : split_on(value, '-')) {
      if (std::find(kOrderAxes.begin(), kOrderAxes.end(), part) == kOrderAxes.end())
        return error("order={}: '{}' is none of {}; write innermost first, tp-cp-ep-dp-pp", shown(value), shown(part),
                     fmt::join(kOrderAxes, ", "));
      if (std::find(into.order.begin(), into.order.end(), part) != into.order.end())
        return error("order={}: {} given twice", shown(value), part);
      into.order.emplace_back(part);
    }
  } else {
    for (std::string_view part : split_on(value, '+')) {
      const std::size_t colon = std::min(part.find(':'), part.size());
      int kind = 0;
      while (kind < kStoredKinds && name_of(static_cast<Stored>(kind)) != part.substr(0, colon)) ++kind;
      if (kind == kStoredKinds)
        return error("offload={}: write weights, gradients, optimizer or activations, joined by +", shown(value));
      Offload offload{static_cast<Stored>(kind), std::string(part.substr(std::min(colon + 1, part.size())))};
      if (colon + 1 == part.size())
        return error("offload={}: write the modules, {}:layers.*.mlp, or leave the colon out", shown(value),
                     name_of(offload.kind));
      if (std::find(into.offload.begin(), into.offload.end(), offload) != into.offload.end())
        return error("offload={}: {} given twice", shown(value), shown(part));
      into.offload.push_back(std::move(offload));
    }
  }
  return Ok{};
}

// The batches next to `wanted` that `unit` divides: "96 or 104".
std::string nearest_batches(std::int64_t wanted, std::int64_t unit) {
  const std::int64_t below = wanted / unit * unit;
  if (below == 0) return fmt::format("{}", unit);
  return fmt::format("{} or {}", below, below + unit);
}

}  // namespace

Result<Shorthand> parse_shorthand(std::string_view text) {
  Shorthand shorthand;
  if (text.empty()) return error("strategy: empty; write degrees, tp=8,pp=2, or the name of a .yaml file");
  std::vector<std::string_view> seen;
  const std::string items = with_commas(text);
  for (std::string_view item : split_on(items, ',')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
      return error("strategy '{}': write key=value, tp=8", shown(item));
    const std::string_view name = item.substr(0, equals), value = item.substr(equals + 1);
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      return error("strategy: {} given twice; keep one", shown(name));
    seen.push_back(name);
    const auto number =
        std::find_if(kNumbers.begin(), kNumbers.end(), [&](const auto& key) { return key.name == name; });
    if (number != kNumbers.end()) {
      const Result<std::int64_t> parsed = parse_integer(value, name);
      if (!parsed.ok() || *parsed < number->least || *parsed > number->most)
        return error("strategy: {}={}: a whole number from {} to {}", name, shown(value), number->least, number->most);
      shorthand.*number->field = *parsed;
    } else if (std::find(kTexts.begin(), kTexts.end(), name) != kTexts.end()) {
      const Status status = parse_text(name, value, shorthand);
      if (!status.ok()) return status.error().at("strategy");
    } else {
      return error("strategy: unknown key '{}'{}", shown(name), did_you_mean(shown(name), known_keys()));
    }
  }
  return shorthand;
}

std::string print(const Shorthand& shorthand) {
  std::vector<std::string> items;
  for (const NumberKey& key : kNumbers)
    if (const auto& value = shorthand.*key.field) items.push_back(fmt::format("{}={}", key.name, *value));
  if (shorthand.cp_mode) items.push_back(fmt::format("cp_mode={}", name_of(*shorthand.cp_mode)));
  if (shorthand.recompute) items.push_back(fmt::format("recompute={}", name_of(*shorthand.recompute)));
  if (!shorthand.full.empty()) items.push_back(fmt::format("full={}", fmt::join(shorthand.full, "+")));
  if (!shorthand.schedule.empty()) items.push_back("schedule=" + shorthand.schedule);
  if (!shorthand.stages.empty()) items.push_back("stages=" + print_counted(shorthand.stages));
  if (!shorthand.shares.empty()) items.push_back("shares=" + print_counted(shorthand.shares));
  if (!shorthand.order.empty()) items.push_back(fmt::format("order={}", fmt::join(shorthand.order, "-")));
  std::vector<std::string> offload;
  for (const auto& [kind, modules] : shorthand.offload)
    offload.push_back(std::string(name_of(kind)) + (modules.empty() ? "" : ":") + modules);
  if (!offload.empty()) items.push_back(fmt::format("offload={}", fmt::join(offload, "+")));
  return fmt::format("{}", fmt::join(items, ","));
}

bool names_a_file(std::string_view argument) {
  return argument.ends_with(".yaml") || argument.ends_with(".yml") || argument.find('=') == std::string_view::npos;
}

namespace {

// dp, and how it divides into shards and replicas.
Status complete_degrees(const Shorthand& given, std::int64_t devices, Parallelism& plan) {
  plan.cp = given.cp.value_or(1);
  plan.h = given.h.value_or(1);
  plan.w = given.w.value_or(1);
  std::optional<std::int64_t> tp = given.tp, pp = given.pp, dp = given.dp;
  if (given.replicate && !given.fsdp)
    return error("replicate={} needs fsdp, the devices that one copy is spread over: fsdp=8,replicate={}",
                 *given.replicate, *given.replicate);
  if (given.fsdp) {
    if (given.replicate) {
      const std::int64_t product = *given.fsdp * *given.replicate;
      if (dp && *dp != product)
        return error("dp={} is not fsdp·replicate = {}·{} = {}; leave dp out", *dp, *given.fsdp, *given.replicate,
                     product);
      dp = product;
    } else if (dp && *dp % *given.fsdp != 0) {
      return error("fsdp={} does not divide dp={}", *given.fsdp, *dp);
    }
    if (given.zero && *given.zero != 3)
      return error("zero={} contradicts fsdp={}, which spreads weights too (zero=3); leave one out", *given.zero,
                   *given.fsdp);
  }
  // An omitted degree of tp, pp and dp is inferred from the cluster: dp if omitted, else the only omitted one.
  const std::optional<std::int64_t> written =
      checked_product(std::array{tp.value_or(1), pp.value_or(1), dp.value_or(1), plan.cp, plan.h, plan.w});
  if (!written || *written > devices)
    return error("tp·cp·pp·dp = {}·{}·{}·{} is more than the cluster's {} devices; lower a degree", tp.value_or(1),
                 plan.cp, pp.value_or(1), dp.value_or(1), devices);
  if (!dp || tp.has_value() != pp.has_value()) {
    if (devices % *written != 0)
      return error("{} devices do not divide by the degrees given, {}; choose degrees whose product divides {}",
                   devices, *written, devices);
    (!dp ? dp : !tp ? tp : pp) = devices / *written;
    if (given.fsdp && *dp % *given.fsdp != 0)
      return error("fsdp={} does not divide dp={}, what the other degrees leave of {} devices", *given.fsdp, *dp,
                   devices);
  }
  plan.tp = tp.value_or(1);
  plan.pp = pp.value_or(1);
  plan.dp = *dp;
  plan.fsdp = given.fsdp.value_or(plan.dp);
  if (plan.world() != devices)
    return error("tp·cp·pp·dp = {}·{}·{}·{} = {}, but the cluster has {} devices; change a degree or leave dp out",
                 plan.tp, plan.cp, plan.pp, plan.dp, plan.world(), devices);
  plan.ep = given.ep.value_or(1);
  plan.etp = given.etp.value_or(plan.tp);
  if (plan.tp % plan.etp != 0)
    return error("etp={} does not divide tp={}: experts are cut over some of the devices that tp cuts layers over",
                 plan.etp, plan.tp);
  // With hybrid sharding, experts are distributed within one fsdp group.
  const std::int64_t replicas = plan.fsdp, places = replicas * plan.cp * (plan.tp / plan.etp);
  if (places % plan.ep != 0)
    return error("ep={} does not divide {}·cp·tp/etp = {}·{}·{}/{} = {}; choose a divisor of {}", plan.ep,
                 plan.fsdp < plan.dp ? "fsdp" : "dp", replicas, plan.cp, plan.tp, plan.etp, places, places);
  return Ok{};
}

Status complete_schedule(const Shorthand& given, Parallelism& plan) {
  plan.vpp = given.vpp.value_or(1);
  if (plan.vpp > 1 && plan.pp == 1)
    return error("vpp={} needs pp > 1: chunks are interleaved over pipeline ranks", plan.vpp);
  plan.schedule = !given.schedule.empty() ? given.schedule : plan.vpp > 1 ? "interleaved" : "1f1b";
  const PipelineSchedule& schedule = *find_schedule(plan.schedule);
  if (schedule.chunks == 0 && plan.vpp == 1)
    return error("schedule={} needs vpp, model chunks per pipeline rank, of 2 or more", plan.schedule);
  if (schedule.chunks == 1 && plan.vpp > 1)
    return error("schedule={} has one model chunk per pipeline rank, not vpp={}; write schedule=interleaved",
                 plan.schedule, plan.vpp);
  if (schedule.chunks > 1) {
    if (given.vpp && *given.vpp != schedule.chunks)
      return error("schedule={} has {} model chunks per pipeline rank, not vpp={}", plan.schedule, schedule.chunks,
                   *given.vpp);
    plan.vpp = schedule.chunks;
  }
  plan.stages = given.stages;
  const std::int64_t stages = stage_count(schedule, plan.pp, plan.vpp);
  if (!plan.stages.empty() && static_cast<std::int64_t>(plan.stages.size()) != stages)
    return error("stages={} lists {} stages, but pp={} with schedule {} has {}", fmt::join(plan.stages, "+"),
                 plan.stages.size(), plan.pp, plan.schedule, stages);
  return Ok{};
}

// Samples in proportion to shares, of replicas that differ along one mesh axis.
Status complete_shares(const Shorthand& given, Parallelism& plan) {
  if (given.shares.empty()) return Ok{};
  if (static_cast<std::int64_t>(given.shares.size()) != plan.dp)
    return error("shares={} are {}, but there are dp={} replicas", print_counted(given.shares), given.shares.size(),
                 plan.dp);
  if (plan.fsdp < plan.dp || plan.ep > 1 || given.tables.value_or(0) == 1)
    return error("shares= divides samples over one axis of replicas; leave out {}, or write a strategy file",
                 plan.fsdp < plan.dp ? "replicate"
                 : plan.ep > 1       ? "ep"
                                     : "tables");
  std::int64_t divisor = 0, sum = 0;
  for (std::int64_t share : given.shares) divisor = std::gcd(divisor, share), sum += share;
  if (sum / divisor > kMostDegree) return error("shares= of {} in all: at most {}", sum / divisor, kMostDegree);
  if (std::adjacent_find(given.shares.begin(), given.shares.end(), std::not_equal_to<>()) == given.shares.end())
    return Ok{};  // equal
  for (std::int64_t share : given.shares) plan.shares.push_back(share / divisor);
  return Ok{};
}

Status complete_batch(const Shorthand& given, const BatchRequest& batch, Parallelism& plan) {
  const std::int64_t units = plan.units();
  const std::string_view of = plan.shares.empty() ? "dp" : "shares";
  if (given.mbs && batch.micro_batch && *given.mbs != *batch.micro_batch)
    return error("mbs={} contradicts --micro-batch {}; keep one", *given.mbs, *batch.micro_batch);
  std::optional<std::int64_t> mbs = given.mbs ? given.mbs : batch.micro_batch, ga = given.ga;
  if (batch.global_batch) {
    const std::int64_t global = *batch.global_batch;
    if (global < 1 || global > kMostGlobalBatch)
      return error("global batch {}: from 1 to {} samples", global, kMostGlobalBatch);
    if (!mbs && ga) {
      const std::int64_t unit = units * *ga;
      if (global % unit != 0)
        return error("global batch {} does not divide by {}·ga = {}·{} = {}; the nearest that do: {}", global, of,
                     units, *ga, unit, nearest_batches(global, unit));
      mbs = global / unit;
    }
    plan.micro_batch = mbs.value_or(1);
    const std::int64_t unit = plan.micro_batch * units;
    const bool smaller_last = batch.smaller_last && plan.shares.empty();
    if (smaller_last && global % plan.dp != 0)
      return error("global batch {} does not divide over dp={} replicas; the nearest that do: {}", global, plan.dp,
                   nearest_batches(global, plan.dp));
    if (global % unit != 0 && !smaller_last)
      return error("global batch {} does not divide by mbs·{} = {}·{} = {}; the nearest that do: {}", global, of,
                   plan.micro_batch, units, unit, nearest_batches(global, unit));
    plan.micro_batches = ceil_div(global, unit);
    plan.last_micro_batch = global / units - (plan.micro_batches - 1) * plan.micro_batch;
    if (plan.micro_batches == 1) plan.micro_batch = plan.last_micro_batch;
    if (ga && *ga != plan.micro_batches)
      return error("ga={} contradicts the global batch: {} = mbs {} · {} {} · {} micro-batches; leave one out", *ga,
                   global, plan.micro_batch, of, units, plan.micro_batches);
  } else {
    plan.micro_batch = plan.last_micro_batch = mbs.value_or(1);
    // The default batch fills the pipeline once, or twice if the schedule needs it.
    plan.micro_batches = ga.value_or(find_schedule(plan.schedule)->fewest_per_rank * plan.pp);
  }
  const std::vector<std::string> needs =
      schedule_violations(*find_schedule(plan.schedule), plan.pp, plan.vpp, plan.micro_batches);
  if (!needs.empty()) return error("{}", needs.front());
  return Ok{};
}

}  // namespace

Result<Parallelism> complete(const Shorthand& given, std::int64_t devices, const BatchRequest& batch) {
  Parallelism plan;
  const auto all = [&]() -> Status {
    if (devices < 1) return error("the cluster has no devices");
    WEFT_TRY_OK(complete_degrees(given, devices, plan));
    WEFT_TRY_OK(complete_schedule(given, plan));
    WEFT_TRY_OK(complete_shares(given, plan));
    WEFT_TRY_OK(complete_batch(given, batch, plan));
    if (given.sp.value_or(0) == 1 && plan.tp == 1)
      return error("sp=1 needs tp > 1: it splits by sequence what tensor parallelism leaves whole");
    if (given.cp_mode && plan.cp == 1) return error("cp_mode={} needs cp > 1", name_of(*given.cp_mode));
    if (plan.etp < plan.tp && given.sp.value_or(1) == 0)
      return error(
          "etp={} below tp={} needs sp=1: without it every tp rank has all tokens, and experts that are not "
          "cut over all of tp would compute them more than once; leave out sp or etp",
          plan.etp, plan.tp);
    return Ok{};
  };
  const Status status = all();
  if (!status.ok()) return status.error().at("strategy");
  plan.zero = given.fsdp ? 3 : static_cast<int>(given.zero.value_or(0));
  plan.sequence_parallel = given.sp.value_or(plan.tp > 1 ? 1 : 0) == 1;
  plan.tables = given.tables.value_or(0) == 1;
  plan.cp_mode = given.cp_mode.value_or(ContextMode::Gather);
  plan.recompute = given.recompute.value_or(Recompute::None);
  plan.full = given.full;
  plan.order = given.order;
  plan.offload = given.offload;
  return plan;
}

namespace {

// The order of ranks over the axes of the mesh, innermost first; empty if it is the mesh's own. A degree stands for the
// axes that it is refined into, ep for a part of dp unless it is named; axes that are not named come last.
std::vector<std::string> rank_order(const Parallelism& plan, const MeshDeclaration& mesh) {
  std::vector<std::string> usual, order;
  for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) usual.push_back(axis->name);
  std::vector<std::string> named = plan.order;
  if (named.empty()) named = {"tp", "cp", "ep", "dp", "pp"};
  const auto add = [&](const std::string& axis) {
    const bool known = std::find(usual.begin(), usual.end(), axis) != usual.end();
    if (known && std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
  };
  const bool ep_named = std::find(named.begin(), named.end(), "ep") != named.end();
  if (plan.h * plan.w > 1 && plan.order.empty()) add("w"), add("h");
  for (const std::string& name : named) {
    if (name == "tp") add("etp"), add("eptp");
    if (name == "cp") add("ecp");
    if (name == "dp" && !ep_named) add("ep");
    if (name == "dp") add("fsdp");
    add(name == "dp" && plan.fsdp < plan.dp ? "replicate" : name);
  }
  for (const std::string& axis : usual) add(axis);
  return order == usual ? std::vector<std::string>{} : order;
}

// The mesh, and the role of each of its axes.
struct FoldedMesh {
  MeshDeclaration mesh;
  std::vector<std::string> data, context, tensor;   // axes that split samples, the sequence, and layers
  std::vector<std::string> experts, expert_tensor;  // over which experts are distributed; that split each
  std::vector<std::string> shards, expert_shards;   // over which ZeRO shards parameters; those of experts
};

FoldedMesh fold(const Parallelism& plan) {
  FoldedMesh made;
  // Experts are distributed over the innermost devices: tp/etp of tp, then cp, then dp.
  const std::int64_t tp_per_etp = plan.tp / plan.etp, ep_of_tp = std::gcd(plan.ep, tp_per_etp);
  const std::int64_t ep_of_cp = std::gcd(plan.ep / ep_of_tp, plan.cp), ep_of_dp = plan.ep / ep_of_tp / ep_of_cp;
  const auto add = [&](const char* name, std::int64_t size, std::vector<std::string>& role) {
    if (size == 1) return false;
    made.mesh.axes.push_back({name, static_cast<int>(size)});
    role.push_back(name);
    return true;
  };
  std::vector<std::string> none;
  const bool hybrid = plan.fsdp < plan.dp;
  add("pp", plan.pp, none);
  if (hybrid) add("replicate", plan.dp / plan.fsdp, made.data);
  add(hybrid ? "fsdp" : "dp", plan.fsdp / ep_of_dp, made.shards);
  if (add("ep", ep_of_dp, made.shards)) made.experts.push_back("ep");
  made.data.insert(made.data.end(), made.shards.begin(), made.shards.end());
  add("cp", plan.cp / ep_of_cp, made.context);
  if (add("ecp", ep_of_cp, made.context)) made.experts.push_back("ecp");
  if (plan.etp == plan.tp) {
    if (add("tp", plan.tp, made.tensor)) made.expert_tensor = {"tp"};
  } else {
    add("tp", tp_per_etp / ep_of_tp, made.tensor);
    if (add("etp", plan.etp, made.tensor)) made.expert_tensor = {"etp"};
    if (add("eptp", ep_of_tp, made.tensor)) made.experts.push_back("eptp");
  }
  add("h", plan.h, none);
  add("w", plan.w, none);
  made.mesh.order = rank_order(plan, made.mesh);
  made.shards.insert(made.shards.end(), made.context.begin(), made.context.end());
  // Devices of tp over which etp does not split experts hold replicas of them.
  made.expert_shards = made.shards;
  if (plan.etp < plan.tp && tp_per_etp > ep_of_tp) made.expert_shards.push_back("tp");
  return made;
}

}  // namespace

std::int64_t Parallelism::units() const {
  return shares.empty() ? dp : std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

std::vector<std::int64_t> Parallelism::sequence_cuts() const {
  std::vector<std::int64_t> cuts;
  if (cp > 1) cuts.push_back(cp);
  if (sequence_parallel && tp > 1) cuts.push_back(tp);
  return cuts;
}

Strategy expand(const Parallelism& plan, const Graph& graph) {
  Strategy strategy;
  const FoldedMesh folded = fold(plan);
  strategy.mesh = folded.mesh;

  strategy.schedule.name = plan.schedule;
  strategy.schedule.micro_batches = plan.micro_batches;
  strategy.schedule.interleave = plan.vpp;
  for (std::int64_t layers : plan.stages) {
    Stage stage;
    stage.layers = layers;
    strategy.schedule.stages.push_back(std::move(stage));
  }
  strategy.context = plan.cp_mode;
  if (plan.sequence_parallel)
    for (const std::string& axis : folded.tensor) strategy.reduce_onto[axis] = "s";

  const auto append = [&](std::vector<Rule> rules) {
    for (Rule& rule : rules) strategy.rules.push_back(std::move(rule));
  };
  std::span<const std::string> samples = folded.data;
  if (plan.tables && !samples.empty()) {
    append(hybrid_tables(graph, samples.front(), strategy.mesh.size_of(samples.front())));
    samples = samples.subspan(1);
  }
  if (!samples.empty()) append(data_parallel(graph, samples));
  if (!plan.shares.empty())
    for (Rule& rule : strategy.rules)
      for (auto& [axis, split] : rule.inputs)
        if (split.dim >= 0) split.ratio = plan.shares;
  for (const std::string& axis : folded.context) append(context_parallel(graph, axis, plan.cp_mode));
  if (plan.h * plan.w > 1) append(spatial(graph, plan.h > 1 ? "h" : "", plan.w > 1 ? "w" : ""));
  // All-to-alls over cp hand out blocks of heads; tp has a part of each, as it has of each part of the sequence.
  const std::int64_t head_blocks = plan.cp_mode == ContextMode::AllToAll ? plan.cp : 1;
  if (!folded.tensor.empty()) append(tensor_parallel(graph, folded.tensor, folded.expert_tensor, head_blocks));
  if (!folded.experts.empty()) append(expert_parallel(graph, folded.experts));
  append(zero(plan.zero, folded.shards));
  if (folded.expert_shards != folded.shards) append(expert_zero(graph, plan.zero, folded.expert_shards));
  Rule root;
  root.match = "**";
  if (plan.recompute != Recompute::None) root.recompute = plan.recompute;
  for (const auto& [kind, modules] : plan.offload)
    if (modules.empty()) root.stored(kind).offload = true;
  append({std::move(root)});
  for (const auto& [kind, modules] : plan.offload) {
    if (modules.empty()) continue;
    Rule rule{.match = modules};
    rule.stored(kind).offload = true;
    append({std::move(rule)});
  }
  for (const std::string& module : plan.full) append({Rule{.match = module, .recompute = Recompute::Full}});
  // All configurations of the root are one rule.
  Rule all;
  all.match = "**";
  std::vector<Rule> others;
  for (Rule& rule : strategy.rules) {
    if (rule.match != "**") {
      others.push_back(std::move(rule));
      continue;
    }
    all.inputs.merge(rule.inputs);
    for (std::size_t kind = 0; kind < kStoredKinds; ++kind) {
      if (rule.memory[kind].over) all.memory[kind].over = rule.memory[kind].over;
      if (rule.memory[kind].offload) all.memory[kind].offload = rule.memory[kind].offload;
    }
    if (rule.recompute) all.recompute = rule.recompute;
  }
  const Rule nothing{.match = "**"};
  strategy.rules.clear();
  if (all != nothing) strategy.rules.push_back(std::move(all));
  append(std::move(others));
  return strategy;
}

Shorthand shorthand_of(const Parallelism& plan) {
  Shorthand words;
  words.tp = plan.tp;
  words.pp = plan.pp;
  words.dp = plan.dp;
  if (plan.cp > 1) words.cp = plan.cp, words.cp_mode = plan.cp_mode;
  if (plan.ep > 1) words.ep = plan.ep;
  if (plan.etp < plan.tp) words.etp = plan.etp;
  if (plan.h > 1) words.h = plan.h;
  if (plan.w > 1) words.w = plan.w;
  const bool hybrid = plan.fsdp < plan.dp;
  if (hybrid) {
    words.fsdp = plan.fsdp;
    words.replicate = plan.dp / plan.fsdp;
    words.dp.reset();
  } else {
    words.zero = plan.zero;
  }
  if (plan.tp > 1) words.sp = plan.sequence_parallel ? 1 : 0;
  if (plan.recompute != Recompute::None) words.recompute = plan.recompute;
  words.mbs = plan.micro_batch;
  const PipelineSchedule* schedule = find_schedule(plan.schedule);
  if (plan.vpp > 1 && schedule && schedule->chunks == 0) words.vpp = plan.vpp;
  if (plan.pp > 1 && plan.schedule != "1f1b" && plan.schedule != "interleaved") words.schedule = plan.schedule;
  words.stages = plan.stages;
  words.shares = plan.shares;
  words.order = plan.order;
  words.full = plan.full;
  words.offload = plan.offload;
  if (plan.tables) words.tables = 1;
  return words;
}

}  // namespace weft
