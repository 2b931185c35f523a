#include "plan/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "plan/adapters.h"
#include "plan/optimizer.h"

namespace weft {
namespace {

// The request's devices by rank, if it counts or lists them; empty: all of the cluster.
Result<std::vector<std::int64_t>> chosen_devices(const PlanRequest& request, const Cluster& cluster) {
  for (std::int64_t device : request.devices)
    if (device < 0 || device >= cluster.device_count())
      return error("device {}: the cluster has {}", device, cluster.device_count());
  std::vector<std::int64_t> chosen = request.devices;
  if (!chosen.empty() || !request.device_count || *request.device_count == cluster.device_count()) return chosen;
  const Result<std::vector<DeviceId>> evenly = devices_evenly(cluster, *request.device_count);
  if (!evenly.ok()) return evenly.error().at("--devices");
  for (DeviceId device : *evenly) chosen.push_back(device.index());
  return chosen;
}

Result<SoftwareStack> choose_stack(const PlanRequest& request, ModelKind kind, std::vector<std::string>& assumptions) {
  if (!request.stack.empty()) {
    Result<SoftwareStack> stack = find_stack(request.stack);
    if (!stack.ok()) return stack.error().at("--stack");
    return stack;
  }
  const std::string_view name = default_stack(kind);
  assumptions.push_back(fmt::format("stack {} (--stack)", name));
  return find_stack(name);
}

// The kinds of devices that the job runs on, in the order of its ranks.
DeviceKinds kinds_of(const TrainingJob& job) {
  DeviceKinds kinds;
  for (std::int64_t rank = 0; rank < job.device_count(); ++rank) {
    const DeviceSpec* device = &job.cluster->spec(job.device_at(rank));
    const auto known =
        std::find_if(kinds.begin(), kinds.end(), [&](const DeviceSpec* kind) { return kind->name == device->name; });
    if (known == kinds.end()) kinds.push_back(device);
  }
  return kinds;
}

// The number type of an imported file is that of its weights.
Result<Precision> settle_precision(const PlanRequest& request, const ModelInfo& model, const SoftwareStack& stack,
                                   const DeviceKinds& devices, std::vector<std::string>& assumptions) {
  std::vector<std::string> added;
  WEFT_TRY(Precision precision, choose_precision(request.dtype, stack, devices, added));
  if (model.weights && *model.weights != precision.stored) {
    if (!request.dtype.empty())
      return error("--dtype {}: {} has {} weights", request.dtype, request.model, name_of(*model.weights));
    added.clear();
    WEFT_TRY(precision, choose_precision(name_of(*model.weights), stack, devices, added));
    added.insert(added.begin(), fmt::format("dtype {}: the file's (--dtype)", precision.name));
  }
  assumptions.insert(assumptions.end(), added.begin(), added.end());
  return precision;
}

// The networks between the job's nodes, each described; none in one node.
std::vector<std::string> networks_of(const TrainingJob& job) {
  std::vector<std::string> found;
  const NodeId first = job.cluster->node_of(job.device_at(0));
  bool several = false;
  for (std::int64_t rank = 0; rank < job.device_count(); ++rank) {
    const NodeId node = job.cluster->node_of(job.device_at(rank));
    several |= node != first;
    const NetworkTraits* network = job.cluster->type_of(node).network();
    if (network == nullptr) continue;
    std::string sentence = fmt::format("fabric {} (network=)", describe(*network));
    if (std::find(found.begin(), found.end(), sentence) == found.end()) found.push_back(std::move(sentence));
  }
  return several ? found : std::vector<std::string>();
}

// What the optimizer keeps and what is sent of gradients, where the user says so instead of the stack.
Status settle_training(const PlanRequest& request, const SoftwareStack& stack, TrainingJob& job) {
  if (!request.optimizer.empty()) {
    WEFT_TRY(const OptimizerChoice choice, parse_optimizer(request.optimizer));
    job.optimizer = choice.kind;
    if (choice.moments && job.precision.stored != DType::F32) job.precision.moments = *choice.moments;
    if (choice.moments == DType::BF16 && job.precision.stored == DType::F32)
      return error("--optimizer {}: moments of bf16 beside fp32 weights; choose --dtype bf16", request.optimizer);
  }
  if (request.reduce_dtype.empty()) return Ok{};
  const std::optional<DType> type = dtype_named(request.reduce_dtype);
  if (!type || (*type != DType::F32 && *type != DType::BF16 && *type != DType::F16))
    return error("--reduce-dtype '{}': write fp32, bf16 or fp16", request.reduce_dtype.substr(0, 40));
  job.precision.sent_gradients = *type;
  // A stack that reduces the buffers in which it accumulates has one type for both (Megatron-LM's grad_reduce_in_fp32).
  const bool in_place = stack.flat_gradients.value && stack.gradient_dtype.value &&
                        stack.gradient_dtype.value == stack.gradient_communication_dtype.value;
  if (in_place) job.precision.gradients = *type;
  return Ok{};
}

Status check_memory(const PlanRequest& request, const DeviceKinds& devices) {
  Bytes most;
  for (const DeviceSpec* device : devices) most = std::max(most, capacity_of(*device));
  if (request.max_memory && most.value > 0 && *request.max_memory > most)
    return error("--max-memory {}: a device has {}; write less, or leave it out", human(*request.max_memory),
                 human(most));
  return Ok{};
}

void assume_sequence(const PlanRequest& request, const ModelInfo& model, std::vector<std::string>& assumptions) {
  if (request.seq || model.seq == 0) return;
  assumptions.push_back(
      model.counts_tokens
          ? fmt::format("sequence of {}: the model's context, at most 8,192 (--seq)", grouped(model.seq))
          : fmt::format("{} steps per sample: the model's (--seq)", grouped(model.seq)));
}

}  // namespace

std::string_view default_stack(ModelKind kind) { return kind == ModelKind::Language ? "megatron-lm" : "pytorch-ddp"; }

// Adapters are a part of the model, and the rest of it is frozen.
Result<PlanRequest> with_training(PlanRequest request) {
  WEFT_TRY(const std::optional<Adapters> adapters, parse_train(request.train));
  if (!adapters) return request;
  if (!request.freeze.empty())
    return error("--freeze: --train {} freezes everything but the adapters; leave one out", request.train);
  if (!describe_model(request.model, {.seq = request.seq}).ok()) return request;  // its own error comes later
  const std::string model = with_adapters(request.model, *adapters);
  if (const auto known = describe_model(model, {.seq = request.seq}); !known.ok() || known->kind == ModelKind::Imported)
    return error("--train {}: {} has no layers of a transformer to add adapters to", request.train, request.model);
  request.model = model;
  request.freeze = kAllButAdapters;
  return request;
}

Result<TrainingJob> settle(const PlanRequest& asked, const Calibration& calibration) {
  WEFT_TRY(const PlanRequest request, with_training(asked));
  TrainingJob job;
  job.words = request;
  job.words.strategy.clear();
  job.words.tree.clear();
  job.words.micro_batch.reset();
  WEFT_TRY(Cluster cluster, parse_cluster(request.cluster));
  job.cluster = std::make_shared<const Cluster>(std::move(cluster));
  WEFT_TRY(job.devices, chosen_devices(request, *job.cluster));
  WEFT_TRY(job.model, describe_model(request.model, {.seq = request.seq}));
  WEFT_TRY(SoftwareStack stack, choose_stack(request, job.model.kind, job.assumptions));
  job.stack = calibration.over(std::move(stack));
  job.tuning = calibration.tuning;
  const DeviceKinds kinds = kinds_of(job);
  WEFT_TRY_OK(check_memory(request, kinds));
  WEFT_TRY(job.precision, settle_precision(request, job.model, job.stack, kinds, job.assumptions));
  if (job.precision.name == "bf16" && !job.stack.in_bf16.empty()) {
    WEFT_TRY(SoftwareStack other, find_stack(job.stack.in_bf16));
    job.assumptions.push_back(fmt::format("stack {} in bf16: {}", job.stack.name, other.name));
    job.stack = calibration.over(std::move(other));
    WEFT_TRY(job.precision, settle_precision(request, job.model, job.stack, kinds, job.assumptions));
  }
  if (job.precision.recipe) job.stack.recipe = {*job.precision.recipe, fmt::format("--dtype {}", job.precision.name)};
  WEFT_TRY_OK(settle_training(request, job.stack, job));
  job.notes = stand_ins(job.precision, kinds);
  job.notes.insert(job.notes.end(), job.model.notes.begin(), job.model.notes.end());
  for (std::string& network : networks_of(job)) job.notes.push_back(std::move(network));
  assume_sequence(request, job.model, job.assumptions);
  job.assumptions.insert(job.assumptions.end(), job.notes.begin(), job.notes.end());
  return job;
}

Result<TrainingJob> with_model(TrainingJob job, const std::string& model) {
  job.words.model = model;
  WEFT_TRY(job.model, describe_model(model, {.seq = job.words.seq}));
  return job;
}

}  // namespace weft
