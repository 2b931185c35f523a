#include "plan/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/checked.h"
#include "base/units.h"
#include "layout/layout.h"
#include "strategy/schedules.h"

namespace weft {
namespace {

// The count of micro-batches nearest to `wanted` that the schedule takes.
std::int64_t nearest_count(std::string_view schedule_name, std::int64_t ranks, std::int64_t interleave,
                           std::int64_t wanted) {
  const PipelineSchedule& schedule = *find_schedule(schedule_name);
  const auto fits = [&](std::int64_t count) {
    return count >= 1 && schedule_violations(schedule, ranks, interleave, count).empty();
  };
  // Schedules require multiples or minima of the number of ranks, so a valid count is within a few times that number.
  for (std::int64_t away = 0; away <= 4 * ranks + 2; ++away) {
    if (fits(wanted + away)) return wanted + away;
    if (fits(wanted - away)) return wanted - away;
  }
  return wanted;
}

std::int64_t rounded_ratio(std::int64_t a, std::int64_t b) { return std::max<std::int64_t>(1, (a + b / 2) / b); }

// The default micro-batch: one sample for language models; for others what 32 samples per device amount to per replica
// and micro-batch, or the largest size below that which divides a given batch.
std::int64_t default_micro_batch(const Parallelism& plan, std::int64_t devices, bool counts_given,
                                 std::optional<std::int64_t> global_batch, const BatchDefaults& defaults) {
  if (defaults.tokens) return 1;
  const std::int64_t usual = rounded_ratio(kSamplesPerDevice * devices, plan.units() * plan.micro_batches);
  if (!global_batch || counts_given) return usual;
  const std::int64_t samples = *global_batch / plan.units();  // of a replica or share, in a step
  if (samples < 1 || *global_batch % plan.units() != 0) return 1;
  const PipelineSchedule& schedule = *find_schedule(plan.schedule);
  const std::int64_t most = std::min(samples, kMostMicroBatches);
  for (std::int64_t count = std::max(plan.micro_batches, ceil_div(samples, usual)); count <= most; ++count)
    if (samples % count == 0 && schedule_violations(schedule, plan.pp, plan.vpp, count).empty()) return samples / count;
  return 1;
}

void assume_micro_batch(std::int64_t micro_batch, std::vector<std::string>& assumptions) {
  assumptions.push_back(fmt::format("micro-batch of {} sample{} per replica (--micro-batch or mbs=)",
                                    grouped(micro_batch), micro_batch == 1 ? "" : "s"));
}
void assume_global_batch(std::int64_t global, const BatchDefaults& defaults, std::vector<std::string>& assumptions) {
  assumptions.push_back(
      defaults.tokens && defaults.seq > 0
          ? fmt::format("global batch {}: about 4 M tokens, in whole micro-batches (--global-batch)", grouped(global))
          : fmt::format("global batch {}: about {} samples per device (--global-batch)", grouped(global),
                        kSamplesPerDevice));
}

}  // namespace

Result<Parallelism> complete_with_batch(const Shorthand& shorthand, std::int64_t devices, BatchRequest request,
                                        const BatchDefaults& defaults, std::vector<std::string>& assumptions) {
  // First without a batch, to find the number of replicas.
  BatchRequest open = request;
  open.global_batch.reset();
  WEFT_TRY(const Parallelism first, complete(shorthand, devices, open));
  const bool sizes_open = !shorthand.mbs && !request.micro_batch;
  const bool counts_open = !shorthand.ga && !request.global_batch;
  if (sizes_open && !(shorthand.ga && request.global_batch)) {
    request.micro_batch = default_micro_batch(first, devices, shorthand.ga.has_value(), request.global_batch, defaults);
    assume_micro_batch(*request.micro_batch, assumptions);
  }
  if (counts_open) {
    const std::int64_t unit = first.units() * (shorthand.mbs ? *shorthand.mbs : request.micro_batch.value_or(1));
    const std::int64_t wanted =
        defaults.tokens && defaults.seq > 0
            ? rounded_ratio(kTokensPerStep, checked_mul(unit, defaults.seq).value_or(kTokensPerStep))
            : rounded_ratio(kSamplesPerDevice * devices, unit);
    request.global_batch = unit * nearest_count(first.schedule, first.pp, first.vpp, wanted);
  }
  WEFT_TRY(Parallelism plan, complete(shorthand, devices, request));
  if (counts_open) assume_global_batch(plan.global_batch(), defaults, assumptions);
  if (plan.last_micro_batch != plan.micro_batch)
    assumptions.push_back(fmt::format("the last micro-batch has {} sample{} per replica, the others {}",
                                      plan.last_micro_batch, plan.last_micro_batch == 1 ? "" : "s", plan.micro_batch));
  const std::vector<std::string> degrees = defaults_of(shorthand, plan);
  assumptions.insert(assumptions.end(), degrees.begin(), degrees.end());
  return plan;
}

std::vector<std::string> defaults_of(const Shorthand& shorthand, const Parallelism& plan) {
  std::vector<std::string> defaults;
  if (!shorthand.dp && !shorthand.fsdp && plan.dp > 1)
    defaults.push_back(fmt::format("dp={} fills the {} devices", plan.dp, plan.world()));
  if (!shorthand.sp && plan.sequence_parallel)
    defaults.emplace_back("sequence parallelism, since tp > 1 (sp=0 turns it off)");
  if (shorthand.schedule.empty() && plan.pp > 1)
    defaults.push_back(fmt::format("schedule {} (schedule=)", plan.schedule));
  if (shorthand.order.empty() && plan.world() > 1)
    defaults.push_back(fmt::format("ranks are numbered {}tp, cp, ep, dp, pp, innermost first (order=)",
                                   plan.h * plan.w > 1 ? "w, h, " : ""));
  return defaults;
}

BatchPlan batch_of(const Parallelism& plan) {
  const auto shares = plan.shares.empty() ? std::nullopt : std::optional(plan.units());
  return {plan.dp, plan.micro_batch, plan.micro_batches, plan.last_micro_batch, plan.global_batch(), shares};
}

Result<BatchPlan> batch_of_file(const Strategy& strategy, std::int64_t devices, const BatchRequest& request,
                                const BatchDefaults& defaults, std::vector<std::string>& assumptions) {
  // Samples are divided over the mesh axes that split the first dimension of inputs, or over the parts of operators
  // placed individually.
  std::map<std::string, const InputSplit*> axes;
  std::int64_t placed = 1;
  for (const Rule& rule : strategy.rules) {
    for (const auto& [axis, split] : rule.inputs)
      if (split.dim == 0) axes[axis] = &split;
    if (rule.place)
      for (const MeshAxis& degree : rule.place->degrees)
        if (degree.name == "b") placed = std::max<std::int64_t>(placed, degree.size);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  BatchPlan plan;
  plan.replicas = placed;
  std::int64_t shares = placed;
  for (const auto& [axis, split] : axes) {
    const int parts = std::max(1, strategy.mesh.size_of(axis));
    plan.replicas = std::min(kMost, plan.replicas * parts);
    shares = std::min(kMost, shares * (parts == 1 ? 1 : units_of(reduced(split->ratio), parts)));
    if (parts > 1 && !split->ratio.empty()) plan.shares = 0;
  }
  if (plan.shares) plan.shares = shares;
  plan.micro_batches = std::clamp<std::int64_t>(strategy.schedule.micro_batches, 1, kMost);
  const std::int64_t unit = shares * plan.micro_batches;
  const std::string among = plan.shares ? fmt::format("{} shares of {} replicas", shares, plan.replicas)
                                        : fmt::format("{} replicas", plan.replicas);
  if (request.micro_batch && *request.micro_batch < 1)
    return error("--micro-batch {}: at least 1", *request.micro_batch);
  if (request.global_batch) {
    const std::int64_t global = *request.global_batch;
    if (global < 1) return error("--global-batch {}: at least 1", global);
    if (global % unit != 0) {
      const std::int64_t below = global / unit * unit;
      return error(
          "--global-batch {} does not divide by the strategy's {} · {} micro-batches = {}; the nearest that do: {}",
          global, among, plan.micro_batches, unit,
          below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit));
    }
    plan.micro_batch = global / unit;
    if (request.micro_batch && *request.micro_batch != plan.micro_batch)
      return error(
          "--micro-batch {} contradicts --global-batch {}: with {} and {} micro-batches it is {}; leave one out",
          *request.micro_batch, global, among, plan.micro_batches, plan.micro_batch);
  } else if (request.micro_batch) {
    plan.micro_batch = *request.micro_batch;
  } else {
    plan.micro_batch = defaults.tokens ? 1 : rounded_ratio(kSamplesPerDevice * devices, unit);
    assume_micro_batch(plan.micro_batch, assumptions);
  }
  plan.last_micro_batch = plan.micro_batch;
  const auto global = checked_mul(plan.micro_batch, unit);
  if (!global) return error("--micro-batch {}: too many samples per step", plan.micro_batch);
  plan.global_batch = *global;
  return plan;
}

}  // namespace weft
