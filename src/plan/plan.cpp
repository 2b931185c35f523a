#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/units.h"
#include "strategy/violations.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// The line number at the end of a violation's place, "plan.yaml:12"; 0: none.
std::int64_t line_of(const Violation& violation) {
  const Result<std::int64_t> line = parse_integer(violation.place.substr(violation.place.rfind(':') + 1), "line");
  return line.ok() ? *line : 0;
}

// A strategy as tables print it, over several lines and cut after a +, in one.
std::string in_one_line(std::string_view strategy) {
  std::string line;
  for (const char c : strategy) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space)
      line += c;
    else if (!line.empty() && !line.ends_with(' ') && !line.ends_with('+'))
      line += ' ';
  }
  if (line.ends_with(' ')) line.pop_back();
  return line;
}

Status check_request(const PlanRequest& request) {
  constexpr std::int64_t kMostMicroBatch = std::int64_t{1} << 19;
  if (request.strategy.empty())
    return error("--strategy: empty; write degrees, tp=8,pp=2, or the name of a .yaml file");
  if (request.micro_batch && (*request.micro_batch < 1 || *request.micro_batch > kMostMicroBatch))
    return error("--micro-batch {}: from 1 to {} samples", *request.micro_batch, grouped(kMostMicroBatch));
  return Ok{};
}

Status check_count(const BatchPlan& batch) {
  if (batch.micro_batches <= kMostMicroBatches) return Ok{};
  return error("{} micro-batches per step: at most {}; raise --micro-batch or lower --global-batch",
               grouped(batch.micro_batches), grouped(kMostMicroBatches));
}

BatchRequest batch_request(const TrainingJob& job, std::optional<std::int64_t> micro_batch) {
  return {job.global_batch(), micro_batch, job.stack.smaller_last_batch.value};
}
BatchDefaults batch_defaults(const TrainingJob& job) { return {job.model.counts_tokens, job.model.seq}; }

Result<StrategyChoice> choose_tree(const TrainingJob& job, std::string name, Strategy tree,
                                   std::optional<std::int64_t> micro_batch) {
  StrategyChoice choice{
      .name = std::move(name), .parallelism = {}, .tree = std::move(tree), .batch = {}, .assumptions = {}};
  WEFT_TRY(choice.batch, batch_of_file(choice.tree, job.device_count(), batch_request(job, micro_batch),
                                       batch_defaults(job), choice.assumptions));
  return choice;
}

// Degrees of expert parallelism are an error for a model without experts.
Status check_experts(const TrainingJob& job, const Parallelism& plan, const Graph& graph) {
  if (plan.ep == 1 && plan.etp == plan.tp) return Ok{};
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::Dispatch) return Ok{};
  if (plan.ep == 1)
    return error("strategy: etp={} cuts experts over devices, but {} has none; leave etp out", plan.etp,
                 job.words.model);
  return error("strategy: ep={} spreads experts over devices, but {} has none; leave ep out", plan.ep, job.words.model);
}

// Degrees of axes that the model does not have are an error: they would only make copies.
Status check_axes(const TrainingJob& job, const Parallelism& plan, const Graph& graph) {
  const auto any_input = [&](std::size_t dimensions) {
    return std::any_of(graph.tensors().begin(), graph.tensors().end(), [&](const Tensor& tensor) {
      return tensor.kind == TensorKind::Input && tensor.type.shape.size() >= dimensions;
    });
  };
  if (plan.h * plan.w > 1 && !any_input(4))
    return error("strategy: {}={} cuts images, but {} has none; leave it out", plan.h > 1 ? "h" : "w",
                 plan.h > 1 ? plan.h : plan.w, job.words.model);
  if (plan.cp > 1 && job.model.kind != ModelKind::Imported && job.model.seq == 0)
    return error("strategy: cp={} cuts the sequence, but {} has none; leave cp out", plan.cp, job.words.model);
  return Ok{};
}

GraphShape shape_of(const TrainingJob& job, const StrategyChoice& choice) {
  const std::optional<Parallelism>& plan = choice.parallelism;
  // The least common multiple over the tree's meshes.
  const auto degree = [&](std::initializer_list<std::string_view> axes) {
    const auto on = [&](const MeshDeclaration& mesh) {
      std::int64_t product = 1;
      for (std::string_view axis : axes) product *= mesh.size_of(axis);
      return product;
    };
    std::int64_t all = on(choice.tree.mesh);
    for (const Stage& stage : choice.tree.schedule.stages)
      if (stage.mesh) all = std::lcm(all, on(*stage.mesh));
    return all;
  };
  GraphShape shape{.batch = choice.batch.graph_batch(), .last_batch = choice.batch.last_graph_batch()};
  shape.tp = plan ? plan->tp : degree({"tp", "etp", "eptp"});
  // With all-to-alls every device has the whole sequence for its heads.
  const ContextMode context = plan ? plan->cp_mode : choice.tree.context;
  if (context != ContextMode::AllToAll) shape.zigzag = plan ? plan->cp : degree({"cp", "ecp"});
  if (job.model.experts > 0 && !has_override(job.words.model, "groups"))
    shape.routing = plan ? plan->sequence_cuts() : sequence_cuts(choice.tree);
  if (job.model.imbalance > 1) shape.expert_devices = plan ? plan->ep : job.device_count();
  return shape;
}

Result<ResolvedStrategy> resolve_all(const Strategy& strategy, const TrainingGraph& training, const Cluster& cluster,
                                     const std::string& name) {
  const std::string place = names_a_file(name) ? name : "strategy";
  Result<ResolvedStrategy> resolved = resolve(strategy, training, cluster, place);
  if (resolved.ok()) return resolved;
  std::vector<Violation> violations = validate(strategy, training, cluster, place);
  if (violations.size() < 2) return resolved.error();
  std::stable_sort(violations.begin(), violations.end(),
                   [](const Violation& a, const Violation& b) { return line_of(a) < line_of(b); });
  std::string message = fmt::format("{}: {} violations", place, violations.size());
  for (const Violation& violation : violations) message += "\n  " + print(violation);
  return Error{std::move(message)};
}

// Assigns the job's devices by rank, unless a tree lists devices of its own or has a mesh of another size.
void place_on(const std::vector<std::int64_t>& devices, bool by_degrees, Strategy& strategy) {
  std::size_t mesh_size = 1;
  for (const MeshAxis& axis : strategy.mesh.axes) mesh_size *= static_cast<std::size_t>(axis.size);
  if (!devices.empty() && (by_degrees || (strategy.mesh.devices.empty() && mesh_size == devices.size())))
    strategy.mesh.devices = devices;
}

}  // namespace

StrategyChoice choose_strategy(const Parallelism& parallelism) {
  const Shorthand shorthand = shorthand_of(parallelism);
  return {.name = print(shorthand),
          .parallelism = parallelism,
          .tree = {},
          .batch = batch_of(parallelism),
          .assumptions = defaults_of(shorthand, parallelism)};
}

Result<StrategyChoice> choose_strategy(const TrainingJob& job, std::string name, Strategy tree) {
  return choose_tree(job, std::move(name), std::move(tree), {});
}

Result<StrategyChoice> choose_strategy(const TrainingJob& job, const PlanRequest& request) {
  WEFT_TRY_OK(check_request(request));
  if (!request.tree.empty() || names_a_file(request.strategy)) {
    WEFT_TRY(Strategy tree,
             request.tree.empty() ? read_strategy(request.strategy) : parse_strategy(request.tree, request.strategy));
    return choose_tree(job, request.strategy, std::move(tree), request.micro_batch);
  }
  StrategyChoice choice{
      .name = in_one_line(request.strategy), .parallelism = {}, .tree = {}, .batch = {}, .assumptions = {}};
  WEFT_TRY(const Shorthand shorthand, parse_shorthand(choice.name));
  WEFT_TRY(choice.parallelism,
           complete_with_batch(shorthand, job.device_count(), batch_request(job, request.micro_batch),
                               batch_defaults(job), choice.assumptions));
  choice.batch = batch_of(*choice.parallelism);
  return choice;
}

std::int64_t Plan::frozen_parameters() const {
  std::int64_t count = 0;
  for (TensorId id : model->options.frozen) count += *checked_product(graph().tensors()[id].type.shape);
  return count;
}

std::vector<DeviceId> Plan::ranks() const {
  std::vector<DeviceId> devices;
  if (!strategy.mesh.devices.empty()) {
    for (std::int64_t device : strategy.mesh.devices) devices.emplace_back(static_cast<std::size_t>(device));
    return devices;
  }
  // Without a list of devices, ranks are the used devices in ascending order.
  std::set<DeviceId> used;
  for (const StageMesh& rank : resolved.ranks()) used.insert(rank.mesh.devices().begin(), rank.mesh.devices().end());
  for (const Mesh& mesh : resolved.placements) used.insert(mesh.devices().begin(), mesh.devices().end());
  devices.assign(used.begin(), used.end());
  return devices;
}

Result<Plan> make_plan(const PlanRequest& request, const Calibration& calibration) {
  WEFT_TRY_OK(check_request(request));
  WEFT_TRY(TrainingJob settled, settle(request, calibration));
  const auto job = std::make_shared<const TrainingJob>(std::move(settled));
  WEFT_TRY(StrategyChoice choice, choose_strategy(*job, request));
  return make_plan(job, std::move(choice));
}

Result<Plan> make_plan(std::shared_ptr<const TrainingJob> job, StrategyChoice choice, GraphCache* graphs) {
  WEFT_TRY_OK(check_count(choice.batch));
  GraphCache own(1);
  WEFT_TRY(std::shared_ptr<const TrainedModel> model, (graphs ? *graphs : own).build(*job, shape_of(*job, choice)));
  const TrainingGraph& training = model->training;
  if (choice.parallelism) {
    WEFT_TRY_OK(check_experts(*job, *choice.parallelism, training.graph));
    WEFT_TRY_OK(check_axes(*job, *choice.parallelism, training.graph));
  }
  Strategy strategy = choice.parallelism ? expand(*choice.parallelism, training.graph) : std::move(choice.tree);
  place_on(job->devices, choice.parallelism.has_value(), strategy);
  WEFT_TRY(ResolvedStrategy resolved, resolve_all(strategy, training, *job->cluster, choice.name));
  std::vector<std::string> assumptions = job->assumptions;
  assumptions.insert(assumptions.end(), choice.assumptions.begin(), choice.assumptions.end());
  assumptions.insert(assumptions.end(), model->assumptions.begin(), model->assumptions.end());
  return Plan{std::move(job),     std::move(model),    std::move(choice.name), choice.batch,
              choice.parallelism, std::move(strategy), std::move(resolved),    std::move(assumptions)};
}

Plan with_stack(Plan plan, SoftwareStack stack) {
  TrainingJob job = *plan.job;
  job.stack = std::move(stack);
  plan.job = std::make_shared<const TrainingJob>(std::move(job));
  return plan;
}

Result<CompiledStrategy> compile_plan(const Plan& plan, const StepPrice* prices, bool split_backward) {
  CompileOptions options =
      compile_options(plan.stack(), plan.cluster(), number_types(plan.job->precision, plan.stack()));
  options.prices = prices;
  options.split_backward = split_backward;
  Result<CompiledStrategy> compiled =
      compile_strategy(plan.training(), plan.resolved, options, plan.model->last ? &plan.model->last->graph : nullptr);
  if (!compiled.ok()) return compiled.error().at(names_a_file(plan.name) ? plan.name : "strategy");
  return compiled;
}

}  // namespace weft
