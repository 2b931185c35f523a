#include "run/unsharded.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "run/tensors.h"

namespace weft::runtime {
namespace {

bool has_local_operand(const Signature& signature) {
  for (int i = 0; i < signature.operand_count(); ++i)
    if (!signature.operand(i).local.empty()) return true;
  return false;
}

}  // namespace

class Unsharded::Player {
 public:
  Player(const Bundle& bundle, LeafValues values, std::optional<std::uint64_t> mask_seed, std::function<void()> beat,
         at::Device tensors_on)
      : bundle_(bundle),
        values_(std::move(values)),
        mask_seed_(mask_seed),
        beat_(std::move(beat)),
        tensors_on_(tensors_on) {
    for (OpId op : bundle.graph.ops().ids())
      if (bundle.graph.kind(op) == OpKind::Accumulate || bundle.graph.kind(op) == OpKind::AccumulateLoss)
        sums_.push_back(bundle.graph.tensors()[bundle.graph.inputs(op)[0]].storage);
  }

  void step(const StepNumbers& numbers) {
    ++step_;
    for (TensorId sum : sums_) kept_.erase(sum);
    for (micro_batch_ = 0; micro_batch_ < bundle_.schedule.micro_batches; ++micro_batch_) {
      const bool last = micro_batch_ + 1 == bundle_.schedule.micro_batches;
      const Graph& graph = last && bundle_.last ? bundle_.last->graph : bundle_.graph;
      const Program& program = last && bundle_.last ? bundle_.last->program : bundle_.program;
      made_.clear();
      local_.clear();
      IdVec<TensorId, std::size_t> left(graph.tensors().size(), 0);
      for (TensorId id : graph.tensors().ids()) left[id] = graph.uses(id).size();
      for (TensorId id : graph.results()) ++left[id];  // asked for when the step is done
      for (op_ = OpId(0); op_.index() < graph.ops().size(); ++op_) {
        if (graph.ops()[op_].phase == Phase::Step && !last) break;
        if (beat_) beat_();
        play(graph, program, numbers);
        for (TensorId input : graph.inputs(op_))
          if (--left[input] == 0 && graph.tensors()[input].producer.valid()) made_.erase(input);
      }
    }
  }

  std::string where() const { return fmt::format("{}, unsharded", bundle_.graph.name(op_)); }

  std::vector<double> value(TensorId id) {
    const auto made = made_.find(id), kept = kept_.find(bundle_.graph.tensors()[id].storage);
    WEFT_CHECK(made != made_.end() || kept != kept_.end(), "{} is not kept", bundle_.graph.name(id));
    const Tensor tensor = (made != made_.end() ? made->second : kept->second).cpu().to(at::kDouble).contiguous();
    const auto* const first = static_cast<const double*>(tensor.data_ptr());
    return {first, first + tensor.numel()};
  }

 private:
  Tensor read(const Graph& graph, TensorId id, const StepNumbers& numbers) {
    if (const auto made = made_.find(id); made != made_.end()) return made->second;
    const weft::Tensor& tensor = graph.tensors()[id];
    const at::ScalarType type = *stored_type(tensor.type.dtype, bundle_.numbers);
    if (tensor.kind == TensorKind::Scalar) {
      const double number = tensor.name == "step"            ? numbers.step
                            : tensor.name == "learning_rate" ? numbers.learning_rate
                                                             : numbers.loss_scale;
      return at::zeros({}, at::TensorOptions(type)).fill_(number);
    }
    const Region whole = whole_region(tensor.type.shape);
    if (tensor.kind == TensorKind::Input)
      return made_[id] = leaf_tensor(values_, id, step_, micro_batch_, whole, type).to(tensors_on_);
    const auto kept = kept_.find(tensor.storage);
    if (kept != kept_.end()) return kept->second;
    return kept_[tensor.storage] = leaf_tensor(values_, tensor.storage, 0, 0, whole, type).to(tensors_on_);
  }

  void play(const Graph& graph, const Program& program, const StepNumbers& numbers) {
    const Signature& signature = graph.signature(op_);
    std::vector<Tensor> inputs;
    for (TensorId input : graph.inputs(op_))
      inputs.push_back(local_.contains({input, 0}) ? Tensor() : read(graph, input, numbers));
    std::uint64_t salt = 0;
    if (mask_seed_) salt = mask_salt(*mask_seed_, bundle_.graph, op_, step_, micro_batch_);
    std::vector<Tensor> outputs;
    if (has_local_operand(signature))
      outputs = by_parts(graph, program, inputs, salt);
    else
      outputs = compute(signature, whole_axes(signature), inputs, salt, bundle_.numbers);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const TensorId id = graph.outputs(op_)[i];
      if (!outputs[i].defined()) continue;  // parts keep it for themselves
      made_[id] = outputs[i];
      const weft::Tensor& tensor = graph.tensors()[id];  // a view of a parameter is no new one
      const bool sums = signature.kind == OpKind::Accumulate || signature.kind == OpKind::AccumulateLoss;
      if (tensor.storage != id && (tensor.kind == TensorKind::Update || sums)) kept_[tensor.storage] = outputs[i];
    }
  }

  // Once for every part that the program cuts the operator into.
  std::vector<Tensor> by_parts(const Graph& graph, const Program& program, const std::vector<Tensor>& inputs,
                               std::uint64_t salt) {
    const Signature& signature = graph.signature(op_);
    std::vector<AxisSlices> parts;
    for (const Instruction& instruction : program.instructions)
      if (const auto* found = std::get_if<Compute>(&instruction.what); found && found->op == op_) {
        const Mesh& mesh = program.meshes[found->sharding.mesh];
        for (int position = 0; position < mesh.size(); ++position) {
          AxisSlices slices = axis_slices(signature, found->sharding, mesh, position);
          if (std::find(parts.begin(), parts.end(), slices) == parts.end()) parts.push_back(std::move(slices));
        }
        break;
      }
    if (parts.empty()) parts.push_back(whole_axes(signature));
    std::vector<Tensor> whole(signature.outputs.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      std::vector<Tensor> own;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (const auto local = local_.find({graph.inputs(op_)[i], p}); local != local_.end()) {
          own.push_back(local->second);
          continue;
        }
        const Region part = touched(signature, signature.inputs[i], parts[p]);
        own.push_back(taken(inputs[i], runs_of(part, whole_region(signature.inputs[i].shape())), part.shape()));
      }
      std::vector<Tensor> outputs = compute(signature, parts[p], own, salt, bundle_.numbers);
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Operand& operand = signature.outputs[i];
        if (!operand.local.empty()) {
          local_[{graph.outputs(op_)[i], p}] = outputs[i];
          continue;
        }
        if (!whole[i].defined()) whole[i] = at::zeros(operand.shape(), outputs[i].options());
        const Region part = touched(signature, operand, parts[p]);
        add_in(whole[i], runs_of(part, whole_region(operand.shape())), outputs[i]);
      }
    }
    return whole;
  }

  const Bundle& bundle_;
  const LeafValues values_;
  const std::optional<std::uint64_t> mask_seed_;
  const std::function<void()> beat_;
  const at::Device tensors_on_;
  std::vector<TensorId> sums_;                                // storages that a step begins at zero
  std::map<TensorId, Tensor> made_;                           // in this micro-batch
  std::map<TensorId, Tensor> kept_;                           // from step to step, by storage
  std::map<std::pair<TensorId, std::size_t>, Tensor> local_;  // by part
  std::int64_t step_ = -1;
  std::int32_t micro_batch_ = 0;
  OpId op_{0};
};

Unsharded::Unsharded(const Bundle& bundle, LeafValues values, std::optional<std::uint64_t> mask_seed,
                     std::function<void()> beat, at::Device tensors_on)
    : player_(std::make_unique<Player>(bundle, std::move(values), mask_seed, std::move(beat), tensors_on)) {}
Unsharded::~Unsharded() = default;

Status Unsharded::step(const StepNumbers& numbers) {
  try {
    player_->step(numbers);
    return Ok{};
  } catch (const std::exception& problem) {
    const std::string what = problem.what();
    return error("{}: {}", player_->where(), what.substr(0, what.find('\n')));
  }
}

std::vector<double> Unsharded::value(TensorId tensor) const { return player_->value(tensor); }

}  // namespace weft::runtime
