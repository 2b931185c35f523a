#include "strategy/shorthand.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/checked.h"
#include "base/units.h"
#include "strategy/schedules.h"

namespace weft {
namespace {

// The batches next to `wanted` that `unit` divides: "96 or 104".
std::string nearest_batches(std::int64_t wanted, std::int64_t unit) {
  const std::int64_t below = wanted / unit * unit;
  if (below == 0) return fmt::format("{}", unit);
  return fmt::format("{} or {}", below, below + unit);
}

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
  const auto check = [&](std::string_view what, const std::vector<std::int64_t>& layers) -> Status {
    if (layers.size() > 1 && static_cast<std::int64_t>(layers.size()) != stages)
      return error("{}:{}: {} numbers, but pp={} with schedule {} has {} stages; write one for all, {}:{}, or one each",
                   what, print_counted(layers), layers.size(), plan.pp, plan.schedule, stages, what, layers.front());
    return Ok{};
  };
  WEFT_TRY_OK(
      check(fmt::format("recompute={}", name_of(given.recompute.value_or(Recompute::None))), given.recompute_layers));
  for (const Recomputed& each : given.full) WEFT_TRY_OK(check("full=" + each.modules, each.layers));
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
  plan.recompute_layers = given.recompute_layers;
  plan.full = given.full;
  plan.order = given.order;
  plan.offload = given.offload;
  return plan;
}

std::int64_t Parallelism::units() const {
  return shares.empty() ? dp : std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

std::vector<std::int64_t> Parallelism::sequence_cuts() const {
  std::vector<std::int64_t> cuts;
  if (cp > 1) cuts.push_back(cp);
  if (sequence_parallel && tp > 1) cuts.push_back(tp);
  return cuts;
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
  words.recompute_layers = plan.recompute_layers;
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
