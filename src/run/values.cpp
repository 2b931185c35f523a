#include "run/values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/random.h"

namespace weft::runtime {
namespace {

std::uint64_t hash_of(std::string_view name) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

std::int64_t samples_of(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors())
    if (tensor.kind == TensorKind::Input && !tensor.type.shape.empty()) return tensor.type.shape.front();
  return 1;
}

enum class Fill : std::uint8_t { Zero, One, Uniform, Index, Position, Share };
struct Rule {
  Fill fill = Fill::Zero;
  double low = 0, high = 1;  // of uniform numbers; whole numbers below `high` of indices
  std::uint64_t stream = 0;
};

class Rules {
 public:
  Rules(const Graph& graph, std::int64_t vocabulary) : graph_(graph), vocabulary_(vocabulary) {}

  Rule rule_of(TensorId id) const {
    const Tensor& tensor = graph_.tensors()[id];
    const std::uint64_t stream = hash_of(graph_.name(id));
    switch (tensor.kind) {
      case TensorKind::Input:
        if (tensor.name == "loss_weight") return {Fill::Share};
        if (tensor.name == "position_ids") return {Fill::Position};
        if (is_floating(tensor.type.dtype)) return {Fill::Uniform, is_target(id) ? 0.0 : -1.0, 1, stream};
        return {Fill::Index, 0, static_cast<double>(indices_below(id)), stream};
      case TensorKind::Parameter:
        return weights(id, stream);
      case TensorKind::State:
        for (const Use& use : graph_.uses(id)) {
          const Signature& signature = graph_.signature(use.op);
          if (signature.inputs[use.input].name == "master") return rule_of(graph_.inputs(use.op)[0]);
        }
        return {};
      default:
        return {};
    }
  }

 private:
  const Operand& operand(const Use& use) const { return graph_.signature(use.op).inputs[use.input]; }

  bool is_target(TensorId id) const {
    const auto uses = graph_.uses(id);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return operand(use).name == "target"; });
  }
  // Rows that a stack has added to a table are nobody's.
  std::int64_t below(std::int64_t rows) const { return vocabulary_ > 0 ? std::min(rows, vocabulary_) : rows; }
  // The smallest of the tables it looks up and the classes it is one of, also after it was cut or reshaped.
  std::int64_t indices_below(TensorId id) const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::set<TensorId> seen;
    const auto visit = [&](const auto& self, TensorId tensor) -> void {
      if (!seen.insert(tensor).second) return;
      for (const Use& use : graph_.uses(tensor)) {
        if (graph_.ops()[use.op].phase != Phase::Forward) continue;
        const Signature& signature = graph_.signature(use.op);
        if (signature.kind == OpKind::Embedding && operand(use).name == "ids")
          least = std::min(least, below(signature.inputs[1].dims[0].size));
        else if (signature.kind == OpKind::CrossEntropy && operand(use).name == "target")
          least = std::min(least, below(signature.inputs[0].dims.back().size));
        else
          for (TensorId output : graph_.outputs(use.op))
            if (!is_floating(graph_.tensors()[output].type.dtype)) self(self, output);
      }
    };
    visit(visit, id);
    return least == std::numeric_limits<std::int64_t>::max() ? 2 : least;
  }
  Rule weights(TensorId id, std::uint64_t stream) const {
    for (const Use& use : graph_.uses(id)) {
      if (graph_.ops()[use.op].phase != Phase::Forward) continue;
      const Signature& signature = graph_.signature(use.op);
      const std::string& name = operand(use).name;
      if (name == "gamma") return {Fill::One};
      if (name == "beta" || name == "bias") return {};
      if (signature.kind == OpKind::Embedding) return {Fill::Uniform, -0.035, 0.035, stream};  // deviation 0.02
      double inputs = 1;  // that each output is a sum over
      const AxisSet kept = signature.outputs[0].axes(), own = operand(use).axes();
      for (std::size_t axis = 0; axis < signature.axes.size(); ++axis)
        if (own.contains(static_cast<int>(axis)) && !kept.contains(static_cast<int>(axis)))
          inputs *= static_cast<double>(signature.axes[axis].size);
      const double bound = std::sqrt(3 / inputs);
      return {Fill::Uniform, -bound, bound, stream};
    }
    return {Fill::Uniform, -0.035, 0.035, stream};
  }

  const Graph& graph_;
  const std::int64_t vocabulary_;
};

}  // namespace

double share_of_samples(const Bundle& bundle, std::int32_t micro_batch) {
  const auto samples = [&](std::int32_t m) {
    const bool last = bundle.last && m + 1 == bundle.schedule.micro_batches;
    return static_cast<double>(samples_of(last ? bundle.last->graph : bundle.graph));
  };
  double all = 0;
  for (std::int32_t m = 0; m < bundle.schedule.micro_batches; ++m) all += samples(m);
  return samples(micro_batch) / all;
}

LeafValues synthetic_values(const Bundle& bundle) {
  IdVec<TensorId, Rule> rules;
  const Rules of(bundle.graph, bundle.vocabulary);
  for (TensorId id : bundle.graph.tensors().ids())
    rules.push_back(bundle.graph.tensors()[id].producer.valid() ? Rule{} : of.rule_of(id));
  const std::int64_t samples = samples_of(bundle.graph);
  std::int64_t of_step = samples * (bundle.schedule.micro_batches - 1);
  of_step += bundle.last ? samples_of(bundle.last->graph) : samples;
  return [&bundle, rules = std::move(rules), samples, of_step](
             TensorId leaf, std::int64_t step, std::int32_t micro_batch, const Region& part, std::span<double> values) {
    const Rule& rule = rules[leaf];
    const Tensor& tensor = bundle.graph.tensors()[leaf];
    Shape shape = tensor.type.shape;
    std::size_t next = 0;
    const std::uint64_t stream = Rng(bundle.seed).split(rule.stream).next();
    // Samples are numbered through: index 0 of the tensor is the first sample of the micro-batch.
    std::int64_t first = 0;
    if (tensor.kind == TensorKind::Input) {
      std::int64_t per_sample = 1;
      for (std::size_t d = 1; d < shape.size(); ++d) per_sample *= shape[d];
      first = (step * of_step + micro_batch * samples) * per_sample;
    }
    for_each_index(part, shape, [&](std::int64_t index) {
      double& value = values[next++];
      const auto uniform = [&] {
        std::uint64_t z = stream + static_cast<std::uint64_t>(first + index) * 0x9e3779b97f4a7c15ULL;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
      };
      switch (rule.fill) {
        case Fill::Zero:
          value = 0;
          break;
        case Fill::One:
          value = 1;
          break;
        case Fill::Uniform:
          value = rule.low + (rule.high - rule.low) * uniform();
          break;
        case Fill::Index:
          value = std::floor(rule.high * uniform());
          break;
        case Fill::Position:
          value = static_cast<double>(index % shape.back());
          break;
        case Fill::Share:
          value = share_of_samples(bundle, micro_batch);
          break;
      }
    });
  };
}

}  // namespace weft::runtime
