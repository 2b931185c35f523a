#include "problem/shared_plans.h"

#include <fmt/format.h>

namespace weft {

bool SharedPlans::has_experts(const PlanRequest& request) {
  const std::lock_guard lock(mutex_);
  const auto [known, fresh] = has_experts_.try_emplace(request.model, false);
  if (fresh) {
    const Result<ModelInfo> info = describe_model(request.model, {.seq = request.seq});
    known->second = info.ok() && info->experts > 0;
  }
  return known->second;
}

Result<Plan> SharedPlans::make(const PlanRequest& request) {
  if (!request.tree.empty() || names_a_file(request.strategy) || !request.global_batch || request.micro_batch)
    return make_plan(request);
  WEFT_TRY(const Shorthand words, parse_shorthand(request.strategy));
  // Every word that the number of devices follows from; without them only make_plan knows.
  const std::int64_t dp = words.dp.value_or(words.fsdp.value_or(0) * words.replicate.value_or(0));
  if (dp == 0 || !words.mbs) return make_plan(request);
  const std::int64_t cp = words.cp.value_or(1);
  const bool heads_over_cp = words.cp_mode == ContextMode::AllToAll;
  std::string key =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", request.model, request.cluster, request.seq.value_or(0), request.dtype,
                  request.stack, request.freeze, dp * *words.mbs, words.tp.value_or(1), heads_over_cp ? 1 : cp);
  if (has_experts(request)) key += fmt::format("|{}|{}|{}", cp, words.sp.value_or(1), heads_over_cp);
  std::shared_ptr<const Plan> like;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) like = found->second;
  }
  if (!like) {
    WEFT_TRY(Plan made, make_plan(request));
    like = std::make_shared<const Plan>(std::move(made));
    const std::lock_guard lock(mutex_);
    if (known_.emplace(key, like).second) order_.push_back(key);
    if (order_.size() > most_) {
      known_.erase(order_.front());
      order_.pop_front();
    }
    return *like;
  }
  const std::int64_t devices =
      request.devices.empty() ? like->cluster.device_count() : static_cast<std::int64_t>(request.devices.size());
  WEFT_TRY(const Parallelism parallelism,
           complete(words, devices, {request.global_batch, {}, like->stack.smaller_last_batch.value}));
  if (batch_of(parallelism).last_graph_batch() != like->batch.last_graph_batch()) return make_plan(request);
  Strategy strategy = expand(parallelism, like->training.graph);
  if (!request.devices.empty()) strategy.mesh.devices = request.devices;
  Result<ResolvedStrategy> resolved = resolve(strategy, like->training, like->cluster);
  if (!resolved.ok()) return make_plan(request);  // which tells all that is wrong
  Plan plan = *like;
  plan.request = request;
  plan.batch = batch_of(parallelism);
  plan.parallelism = parallelism;
  plan.strategy = std::move(strategy);
  plan.resolved = std::move(resolved).value();
  return plan;
}

}  // namespace weft
