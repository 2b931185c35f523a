// The graph: what is computed. Built with a GraphBuilder, frozen, then shared as const.
//
// Tensors, operators and modules are columns indexed by typed ids; operators are in topological order. Module names
// form a tree ("layers.3.attn"); an operator's full name is its module's path and its own name, a tensor's is its
// operator's and the operand's. Signatures are shared between operators that do the same on the same shapes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "graph/operators.h"

namespace weft {

using TensorId = Id<struct TensorTag>;
using OpId = Id<struct OpTag>;
using ModuleId = Id<struct ModuleTag>;
using SignatureId = Id<struct SignatureTag>;

enum class TensorKind : std::uint8_t {
  Input,       // given with every micro-batch: samples, labels
  Scalar,      // one number given with every step: step number, learning rate, loss scale
  Parameter,   // trained
  Activation,  // made by the forward pass
  Gradient,    // made by the backward pass
  State,       // kept from step to step: gradient accumulators, optimizer state, master weights
  Update,      // made by the optimizer step
};
std::string_view name_of(TensorKind kind);

enum class Phase : std::uint8_t { Forward, Backward, Step };
std::string_view name_of(Phase phase);

struct Tensor {
  TensorKind kind{};
  TensorType type;
  std::string name;          // own name of inputs, parameters and states; empty for what an operator makes
  ModuleId module;           // where inputs, parameters and states belong
  OpId producer;             // invalid for inputs, parameters and states
  std::uint16_t output = 0;  // which output of the producer
  TensorId storage;          // the tensor whose memory this one shares (itself unless a view or an update in place)

  bool operator==(const Tensor&) const = default;
};

struct Op {
  SignatureId signature;
  ModuleId module;
  std::string name;
  Phase phase = Phase::Forward;
  OpId forward;  // backward products: the forward operator they belong to

  bool operator==(const Op&) const = default;
};

struct Module {
  std::string name;
  ModuleId parent;  // invalid for the root

  bool operator==(const Module&) const = default;
};

// Where a tensor is read.
struct Use {
  OpId op;
  std::uint32_t input = 0;

  bool operator==(const Use&) const = default;
};

class Graph {
 public:
  const std::string& name() const { return name_; }
  const IdVec<TensorId, Tensor>& tensors() const { return tensors_; }
  const IdVec<OpId, Op>& ops() const { return ops_; }
  const IdVec<ModuleId, Module>& modules() const { return modules_; }
  const IdVec<SignatureId, Signature>& signatures() const { return signatures_; }

  std::span<const TensorId> inputs(OpId op) const { return slice(op_inputs_, input_start_, op.index()); }
  std::span<const TensorId> outputs(OpId op) const { return slice(op_outputs_, output_start_, op.index()); }
  std::span<const Use> uses(TensorId tensor) const { return slice(uses_, use_start_, tensor.index()); }
  // The outputs of the graph: the loss; of a training graph also the scalar results of a step (training.h).
  const std::vector<TensorId>& results() const { return results_; }

  const Signature& signature(OpId op) const { return signatures_[ops_[op].signature]; }
  OpKind kind(OpId op) const { return signature(op).kind; }
  std::string name(ModuleId module) const;  // "layers.3.attn"; "" for the root
  std::string name(OpId op) const;          // "layers.3.attn.core", "layers.3.fc1@grad_weight"
  std::string name(TensorId tensor) const;  // "layers.3.attn.core.y"
  Bytes bytes(TensorId tensor) const;       // of the tensor itself, also of a view

  // The number of trained parameters; tied ones count once.
  std::int64_t parameter_count() const;

  bool operator==(const Graph&) const = default;

 private:
  friend class GraphBuilder;
  template <class T>
  static std::span<const T> slice(const std::vector<T>& items, const std::vector<std::uint32_t>& start, std::size_t i) {
    return {items.data() + start[i], items.data() + start[i + 1]};
  }

  std::string name_;
  IdVec<TensorId, Tensor> tensors_;
  IdVec<OpId, Op> ops_;
  IdVec<ModuleId, Module> modules_;
  IdVec<SignatureId, Signature> signatures_;
  std::vector<TensorId> op_inputs_, op_outputs_, results_;
  std::vector<Use> uses_;
  std::vector<std::uint32_t> input_start_{0}, output_start_{0}, use_start_;
};

// Builds a graph operator by operator. The first error sticks: later calls return invalid ids and do nothing, and
// `freeze` reports it, with the operator's name in front.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name);
  // Continues a frozen graph: its ids stay valid.
  explicit GraphBuilder(Graph graph);
  ~GraphBuilder();
  GraphBuilder(GraphBuilder&&) noexcept;
  GraphBuilder& operator=(GraphBuilder&&) noexcept;

  // Opens a module until the returned scope ends: { auto scope = b.scope("layers.3"); … }
  class Scope {
   public:
    Scope(GraphBuilder& builder, ModuleId previous) : builder_(&builder), previous_(previous) {}
    Scope(Scope&& other) noexcept : builder_(std::exchange(other.builder_, nullptr)), previous_(other.previous_) {}
    ~Scope() {
      if (builder_) builder_->current_ = previous_;
    }

   private:
    GraphBuilder* builder_;
    ModuleId previous_;
  };
  [[nodiscard]] Scope scope(std::string_view dotted_name);
  [[nodiscard]] Scope scope(ModuleId module);

  TensorId input(std::string name, DType dtype, Shape shape);
  TensorId scalar(std::string name, DType dtype);
  TensorId parameter(std::string name, DType dtype, Shape shape);
  TensorId state(std::string name, DType dtype, Shape shape);

  // Adds an operator to the current module and returns its outputs.
  std::vector<TensorId> op(OpKind kind, std::string name, std::span<const TensorId> inputs, Attrs attrs = {},
                           Phase phase = Phase::Forward);
  std::vector<TensorId> op(OpKind kind, std::string name, std::initializer_list<TensorId> inputs, Attrs attrs = {}) {
    return op(kind, std::move(name), std::span(inputs.begin(), inputs.size()), std::move(attrs));
  }
  // The first output only.
  TensorId op1(OpKind kind, std::string name, std::initializer_list<TensorId> inputs, Attrs attrs = {}) {
    return op(kind, std::move(name), inputs, std::move(attrs)).front();
  }
  // A backward product of `forward`: named "<name>@<gradient>", in the forward operator's module.
  std::vector<TensorId> gradient_op(OpId forward, const Gradient& gradient, std::span<const TensorId> inputs);

  void result(TensorId tensor);

  // The type of a tensor, while building. An invalid id (after an error) gives f32[1].
  const TensorType& type(TensorId tensor) const;
  const Shape& shape(TensorId tensor) const { return type(tensor).shape; }

  // Records a user's error, unless there is one already: for model builders with checks of their own.
  void fail(Error error);
  bool ok() const { return !error_; }
  const Error& error() const { return *error_; }

  const Graph& so_far() const { return graph_; }  // uses() is filled by freeze only
  Result<Graph> freeze() &&;

 private:
  struct Interned;
  TensorId add_leaf(TensorKind kind, std::string name, DType dtype, Shape shape);
  std::vector<TensorId> add_op(SignatureId signature, std::string name, std::span<const TensorId> inputs, Phase phase,
                               OpId forward);
  bool valid_name(std::string_view name, std::string_view what);
  void order_modules();

  Graph graph_;
  ModuleId current_;
  std::optional<Error> error_;
  std::unique_ptr<Interned> interned_;
};

}  // namespace weft
