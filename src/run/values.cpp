#include "run/values.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>

#include "base/random.h"
#include "graph/token_order.h"

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
  bool follows = false;  // of tokens: the next one, which is to be predicted
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
        return {Fill::Index, 0, static_cast<double>(indices_below(id)), stream, is_target(id)};
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
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      if (graph_.ops()[use.op].phase != Phase::Forward) return false;
      if (operand(use).name == "target") return true;
      const auto outputs = graph_.outputs(use.op);  // cut or reshaped before
      return !is_floating(graph_.tensors()[outputs[0]].type.dtype) && is_target(outputs[0]);
    });
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

std::int64_t samples_of_step(const Bundle& bundle) {
  const std::int64_t samples = samples_of(bundle.graph);
  return samples * (bundle.schedule.micro_batches - 1) + (bundle.last ? samples_of(bundle.last->graph) : samples);
}

double share_of_samples(const Bundle& bundle, std::int32_t micro_batch) {
  const auto samples = [&](std::int32_t m) {
    const bool last = bundle.last && m + 1 == bundle.schedule.micro_batches;
    return static_cast<double>(samples_of(last ? bundle.last->graph : bundle.graph));
  };
  double all = 0;
  for (std::int32_t m = 0; m < bundle.schedule.micro_batches; ++m) all += samples(m);
  return samples(micro_batch) / all;
}

namespace {

// Tokens in a file, mapped into memory for as long as it lives.
class TokenFile {
 public:
  static Result<std::shared_ptr<const TokenFile>> open(const std::string& path, std::int64_t vocabulary) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (file < 0 || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
      const int problem = file < 0 ? errno : 0;
      if (file >= 0) ::close(file);
      return error("{}: {}", path, problem ? std::strerror(problem) : "not a file of tokens");
    }
    const auto made = std::shared_ptr<TokenFile>(new TokenFile);
    made->wide_ = vocabulary > 65536;
    made->bytes_ = static_cast<std::size_t>(status.st_size);
    if (made->bytes_ > 0) {
      void* const memory = ::mmap(nullptr, made->bytes_, PROT_READ, MAP_SHARED, file, 0);
      made->memory_ = memory == MAP_FAILED ? nullptr : memory;
    }
    ::close(file);
    if (!made->memory_ && made->bytes_ > 0) return error("{}: {}", path, std::strerror(errno));
    for (std::int64_t i = 0; i < made->count(); ++i)
      if (made->at(i) >= vocabulary)
        return error("{}: token {} at {} is beyond the vocabulary of {}", path, made->at(i), i, vocabulary);
    return std::shared_ptr<const TokenFile>(made);
  }
  ~TokenFile() {
    if (memory_) ::munmap(memory_, bytes_);
  }
  TokenFile(const TokenFile&) = delete;

  std::int64_t count() const { return static_cast<std::int64_t>(bytes_ / (wide_ ? 4 : 2)); }
  std::int64_t at(std::int64_t i) const {
    return wide_ ? static_cast<const std::uint32_t*>(memory_)[i] : static_cast<const std::uint16_t*>(memory_)[i];
  }

 private:
  TokenFile() = default;

  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  bool wide_ = false;
};

// How a graph keeps its tokens: in zigzag order over so many parts, of so many tokens.
struct TokenOrder {
  std::int64_t parts = 1, tokens = 0;

  explicit TokenOrder(const Graph& graph) {
    for (OpId op : graph.ops().ids())
      if (const Signature& signature = graph.signature(op); signature.kind == OpKind::Attention) {
        parts = signature.attrs.integer("zigzag", 1);
        tokens = signature.axes[static_cast<std::size_t>(signature.axis_named("q"))].size;
        return;
      }
  }
  // The index that an element would have with its tokens in their own order.
  std::int64_t natural(std::int64_t index, const Shape& shape) const {
    if (parts <= 1 || shape.size() != 2 || shape[1] != tokens) return index;
    return index / tokens * tokens + token_position(index % tokens, tokens, parts);
  }
};

class Values {
 public:
  Values(const Bundle& bundle, std::shared_ptr<const TokenFile> file, const TrainingPosition& begun)
      : bundle_(bundle),
        order_(bundle.graph),
        file_(std::move(file)),
        begun_(begun),
        samples_(samples_of(bundle.graph)),
        of_step_(samples_of_step(bundle)) {
    const Rules of(bundle.graph, bundle.vocabulary);
    for (TensorId id : bundle.graph.tensors().ids())
      rules_.push_back(bundle.graph.tensors()[id].producer.valid() ? Rule{} : of.rule_of(id));
  }

  void fill(TensorId leaf, std::int64_t step, std::int32_t micro_batch, const Region& part,
            std::span<double> values) const {
    const Rule& rule = rules_[leaf];
    const Tensor& tensor = bundle_.graph.tensors()[leaf];
    const Shape& shape = tensor.type.shape;
    const std::uint64_t stream = Rng(bundle_.seed).split(rule.stream).next();
    // Samples are numbered through: index 0 of the tensor is the first sample of the micro-batch.
    std::int64_t first = 0, per_sample = 1;
    if (tensor.kind == TensorKind::Input) {
      for (std::size_t d = 1; d < shape.size(); ++d) per_sample *= shape[d];
      first = (begun_.samples + (step - begun_.steps) * of_step_ + micro_batch * samples_) * per_sample;
    }
    std::size_t next = 0;
    for_each_index(part, shape, [&](std::int64_t place) {
      const std::int64_t index = tensor.kind == TensorKind::Input ? order_.natural(place, shape) : place;
      values[next++] = value(rule, stream, first + index, per_sample, micro_batch);
    });
  }

  std::int64_t tokens_of_sample() const {
    for (TensorId id : bundle_.graph.tensors().ids())
      if (const Shape& shape = bundle_.graph.tensors()[id].type.shape;
          rules_[id].fill == Fill::Index && shape.size() == 2)
        return shape[1];
    return 0;
  }

 private:
  double value(const Rule& rule, std::uint64_t stream, std::int64_t index, std::int64_t per_sample,
               std::int32_t micro_batch) const {
    const auto uniform = [&] {  // SplitMix64
      std::uint64_t z = stream + static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15ULL;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
    };
    switch (rule.fill) {
      case Fill::Zero:
        return 0;
      case Fill::One:
        return 1;
      case Fill::Uniform:
        return rule.low + (rule.high - rule.low) * uniform();
      case Fill::Index:
        if (file_ && per_sample > 1) {
          const std::int64_t stretches = (file_->count() - 1) / per_sample;
          const std::int64_t begin = index / per_sample % stretches * per_sample;
          return static_cast<double>(file_->at(begin + index % per_sample + (rule.follows ? 1 : 0)));
        }
        return std::floor(rule.high * uniform());
      case Fill::Position:
        return static_cast<double>(index % per_sample);
      case Fill::Share:
        return share_of_samples(bundle_, micro_batch);
    }
    return 0;
  }

  const Bundle& bundle_;
  const TokenOrder order_;
  const std::shared_ptr<const TokenFile> file_;
  const TrainingPosition begun_;
  const std::int64_t samples_, of_step_;
  IdVec<TensorId, Rule> rules_;
};

LeafValues as_function(std::shared_ptr<const Values> values) {
  return
      [values = std::move(values)](TensorId leaf, std::int64_t step, std::int32_t micro_batch, const Region& part,
                                   std::span<double> filled) { values->fill(leaf, step, micro_batch, part, filled); };
}

}  // namespace

LeafValues synthetic_values(const Bundle& bundle, const TrainingPosition& begun) {
  return as_function(std::make_shared<Values>(bundle, nullptr, begun));
}

std::int64_t tokens_of_sample(const Bundle& bundle) { return Values(bundle, nullptr, {}).tokens_of_sample(); }

Result<LeafValues> values_from_tokens(const Bundle& bundle, const std::string& path, const TrainingPosition& begun) {
  const std::int64_t tokens = tokens_of_sample(bundle);
  if (tokens == 0 || bundle.vocabulary == 0) return error("{}: {} takes no tokens", path, bundle.model);
  WEFT_TRY(std::shared_ptr<const TokenFile> file, TokenFile::open(path, bundle.vocabulary));
  if (file->count() < tokens + 1)
    return error("{}: has {} tokens of {} bits; a sample takes {}, and one more to predict", path, file->count(),
                 bundle.vocabulary > 65536 ? 32 : 16, tokens);
  return as_function(std::make_shared<Values>(bundle, std::move(file), begun));
}

}  // namespace weft::runtime
