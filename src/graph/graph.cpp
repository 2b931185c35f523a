#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "base/check.h"
#include "base/checked.h"

namespace weft {

std::string_view name_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::Input:
      return "input";
    case TensorKind::Scalar:
      return "scalar";
    case TensorKind::Parameter:
      return "param";
    case TensorKind::Activation:
      return "activation";
    case TensorKind::Gradient:
      return "gradient";
    case TensorKind::State:
      return "state";
    case TensorKind::Update:
      return "update";
  }
  return "?";
}

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::Forward:
      return "forward";
    case Phase::Backward:
      return "backward";
    case Phase::Step:
      return "step";
  }
  return "?";
}

std::string Graph::name(ModuleId module) const {
  std::string text;
  for (; modules_[module].parent.valid(); module = modules_[module].parent)
    text = text.empty() ? modules_[module].name : modules_[module].name + "." + text;
  return text;
}

std::string Graph::name(OpId op) const {
  const std::string module = name(ops_[op].module);
  return module.empty() ? ops_[op].name : module + "." + ops_[op].name;
}

std::string Graph::name(TensorId id) const {
  const Tensor& tensor = tensors_[id];
  if (tensor.producer.valid())
    return name(tensor.producer) + "." + signature(tensor.producer).outputs[tensor.output].name;
  const std::string module = name(tensor.module);
  return module.empty() ? tensor.name : module + "." + tensor.name;
}

Bytes Graph::bytes(TensorId id) const {
  const TensorType& type = tensors_[id].type;
  return {bytes_of(type.dtype, *checked_product(type.shape))};
}

std::int64_t Graph::parameter_count() const {
  std::int64_t count = 0;
  for (const Tensor& tensor : tensors_)
    if (tensor.kind == TensorKind::Parameter) count += *checked_product(tensor.type.shape);
  return count;
}

namespace {

template <class Number>
void append_number(std::string& key, Number number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void append_value(std::string& key, std::int64_t value) { append_number(key, value); }
void append_value(std::string& key, double value) { append_number(key, value); }
void append_value(std::string& key, const std::string& value) {
  append_number(key, value.size());
  key += value;
}
void append_value(std::string& key, const std::vector<std::int64_t>& values) {
  append_number(key, values.size());
  for (std::int64_t value : values) append_number(key, value);
}

// Everything that determines a forward signature, as bytes.
std::string signature_key(OpKind kind, const Attrs& attrs, std::span<const TensorId> inputs,
                          const IdVec<TensorId, Tensor>& tensors) {
  std::string key;
  key.reserve(128);
  key.push_back(static_cast<char>(kind));
  for (TensorId input : inputs) {
    const TensorType& type = tensors[input].type;
    key.push_back(static_cast<char>(static_cast<int>(type.dtype) * 2 + (type.weight ? 1 : 0)));
    append_value(key, type.shape);
  }
  append_number(key, inputs.size());
  for (const auto& [name, value] : attrs) {
    append_value(key, name);
    key.push_back(static_cast<char>(value.index()));
    std::visit([&](const auto& each) { append_value(key, each); }, value);
  }
  return key;
}

std::string module_key(ModuleId parent, std::string_view name) {
  std::string key;
  append_number(key, parent.index());
  key += name;
  return key;
}

// The names of operators and leaf tensors that are taken in each module: a hash set of indices; the names themselves
// are read from the graph.
class TakenNames {
 public:
  // Takes the name for the operator or leaf that is added next; false if it is taken already.
  bool take(const Graph& graph, ModuleId module, std::string_view name, bool leaf) {
    return take(graph, module, name, leaf, leaf ? graph.tensors().size() : graph.ops().size());
  }
  bool take(const Graph& graph, ModuleId module, std::string_view name, bool leaf, std::size_t index) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    const std::uint32_t hash = hash_of(module, name, leaf);
    std::size_t at = hash;
    for (;; ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (!slot.taken) break;
      if (slot.hash == hash && slot.leaf == leaf && is(graph, slot, module, name)) return false;
    }
    slots_[at & (slots_.size() - 1)] = {hash, static_cast<std::uint32_t>(index), leaf, true};
    ++count_;
    return true;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0, index = 0;
    bool leaf = false, taken = false;
  };
  static std::uint32_t hash_of(ModuleId module, std::string_view name, bool leaf) {
    const std::size_t hash = std::hash<std::string_view>()(name) + 2 * std::size_t{module.index()} + (leaf ? 1 : 0);
    return static_cast<std::uint32_t>((hash * 0x9E3779B97F4A7C15u) >> 32);
  }
  static bool is(const Graph& graph, const Slot& slot, ModuleId module, std::string_view name) {
    if (!slot.leaf) return graph.ops()[OpId(slot.index)].module == module && graph.ops()[OpId(slot.index)].name == name;
    const Tensor& tensor = graph.tensors()[TensorId(slot.index)];
    return tensor.module == module && tensor.name == name;
  }
  void grow() {
    std::vector<Slot> old(std::max<std::size_t>(1024, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (!slot.taken) continue;
      std::size_t at = slot.hash;
      while (slots_[at & (slots_.size() - 1)].taken) ++at;
      slots_[at & (slots_.size() - 1)] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two of them, at least half of them free
  std::size_t count_ = 0;
};

std::string gradient_key(SignatureId forward, const Gradient& gradient) {
  std::string key = "@";
  key.reserve(64);
  append_number(key, forward.index());
  key += gradient.name;
  for (const std::string& read : gradient.reads) (key += ' ') += read;
  for (const std::string& write : gradient.writes) (key += '>') += write;
  return key;
}

// The gradient that a backward signature was made from.
Gradient gradient_between(const Signature& backward) {
  Gradient gradient{.name = backward.gradient, .reads = {}, .writes = {}};
  for (const Operand& input : backward.inputs) gradient.reads.push_back(input.name);
  for (const Operand& output : backward.outputs) gradient.writes.push_back(output.name);
  return gradient;
}

TensorKind made_in(Phase phase) {
  return phase == Phase::Forward    ? TensorKind::Activation
         : phase == Phase::Backward ? TensorKind::Gradient
                                    : TensorKind::Update;
}

}  // namespace

// Signatures by what they were made from, modules by parent and name, and the names taken.
struct GraphBuilder::Interned {
  std::unordered_map<std::string, SignatureId> signatures;
  std::unordered_map<std::string, ModuleId> modules;
  TakenNames names;
};

GraphBuilder::GraphBuilder(std::string name) : interned_(std::make_unique<Interned>()) {
  graph_.name_ = std::move(name);
  current_ = graph_.modules_.push_back({"", ModuleId()});
}

GraphBuilder::GraphBuilder(Graph graph)
    : graph_(std::move(graph)), current_(0), interned_(std::make_unique<Interned>()) {
  for (ModuleId module : graph_.modules_.ids())
    if (graph_.modules_[module].parent.valid())
      interned_->modules[module_key(graph_.modules_[module].parent, graph_.modules_[module].name)] = module;
  IdVec<SignatureId, char> known(graph_.signatures_.size(), 0);
  for (OpId op : graph_.ops_.ids()) {
    const Op& described = graph_.ops_[op];
    interned_->names.take(graph_, described.module, described.name, false, op.index());
    if (known[described.signature]) continue;
    known[described.signature] = 1;
    const Signature& signature = graph_.signatures_[described.signature];
    if (described.forward.valid()) {
      interned_->signatures[gradient_key(graph_.ops_[described.forward].signature, gradient_between(signature))] =
          described.signature;
      continue;
    }
    interned_->signatures[signature_key(signature.kind, signature.attrs, graph_.inputs(op), graph_.tensors_)] =
        described.signature;
  }
  for (TensorId id : graph_.tensors_.ids())
    if (const Tensor& tensor = graph_.tensors_[id]; !tensor.producer.valid())
      interned_->names.take(graph_, tensor.module, tensor.name, true, id.index());
}

GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

GraphBuilder::Scope GraphBuilder::scope(std::string_view dotted_name) {
  const ModuleId previous = current_;
  while (!dotted_name.empty()) {
    const std::size_t dot = std::min(dotted_name.find('.'), dotted_name.size());
    const std::string name(dotted_name.substr(0, dot));
    dotted_name.remove_prefix(std::min(dot + 1, dotted_name.size()));
    if (!valid_name(name, "module")) break;
    const auto [at, fresh] = interned_->modules.try_emplace(module_key(current_, name), ModuleId());
    if (fresh) at->second = graph_.modules_.push_back({name, current_});
    current_ = at->second;
  }
  return Scope(*this, previous);
}

GraphBuilder::Scope GraphBuilder::scope(ModuleId module) {
  const ModuleId previous = current_;
  current_ = module;
  return Scope(*this, previous);
}

// Names are unquoted in text forms and globs, and dots separate modules.
bool GraphBuilder::valid_name(std::string_view name, std::string_view what) {
  bool good = !name.empty();
  for (const char c : name)
    good = good && static_cast<unsigned char>(c) > ' ' &&
           std::string_view(".,()[]{}=#\"*?:@").find(c) == std::string_view::npos;
  if (!good)
    fail(weft::error("{} name '{}': must not be empty or contain spaces or any of .,()[]{{}}=#\"*?:@", what, name));
  return good;
}

void GraphBuilder::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

const TensorType& GraphBuilder::type(TensorId tensor) const {
  static const TensorType kNothing{DType::F32, {1}};
  return graph_.tensors_.contains(tensor) ? graph_.tensors_[tensor].type : kNothing;
}

TensorId GraphBuilder::add_leaf(TensorKind kind, std::string name, DType dtype, Shape shape) {
  if (error_ || !valid_name(name, name_of(kind))) return {};
  const auto elements = checked_product(shape);
  bool positive = true;
  for (std::int64_t extent : shape) positive = positive && extent > 0;
  if (!positive || !elements || *elements > (1LL << 56)) {
    fail(weft::error("{} {}: impossible shape [{}]", name_of(kind), name, fmt::join(shape, ",")));
    return {};
  }
  if (!interned_->names.take(graph_, current_, name, true)) {
    fail(weft::error("{} {}.{} is defined twice", name_of(kind), graph_.name(current_), name));
    return {};
  }
  const TensorId id(graph_.tensors_.size());
  graph_.tensors_.push_back(Tensor{.kind = kind,
                                   .type = {dtype, std::move(shape), kind == TensorKind::Parameter},
                                   .name = std::move(name),
                                   .module = current_,
                                   .producer = {},
                                   .output = 0,
                                   .storage = id});
  return id;
}

TensorId GraphBuilder::input(std::string name, DType dtype, Shape shape) {
  return add_leaf(TensorKind::Input, std::move(name), dtype, std::move(shape));
}
TensorId GraphBuilder::scalar(std::string name, DType dtype) {
  return add_leaf(TensorKind::Scalar, std::move(name), dtype, {});
}
TensorId GraphBuilder::parameter(std::string name, DType dtype, Shape shape) {
  return add_leaf(TensorKind::Parameter, std::move(name), dtype, std::move(shape));
}
TensorId GraphBuilder::state(std::string name, DType dtype, Shape shape) {
  return add_leaf(TensorKind::State, std::move(name), dtype, std::move(shape));
}

std::vector<TensorId> GraphBuilder::add_op(SignatureId signature_id, std::string name, std::span<const TensorId> inputs,
                                           Phase phase, OpId forward) {
  const Signature& signature = graph_.signatures_[signature_id];
  if (!interned_->names.take(graph_, current_, name, false)) {
    fail(weft::error("operator {} is defined twice in module '{}'", name, graph_.name(current_)));
    return std::vector<TensorId>(signature.outputs.size());
  }
  const OpId op = graph_.ops_.push_back({signature_id, current_, std::move(name), phase, forward});
  graph_.op_inputs_.insert(graph_.op_inputs_.end(), inputs.begin(), inputs.end());
  graph_.input_start_.push_back(static_cast<std::uint32_t>(graph_.op_inputs_.size()));
  std::vector<TensorId> outputs;
  outputs.reserve(signature.outputs.size());
  for (std::size_t i = 0; i < signature.outputs.size(); ++i) {
    const Operand& output = signature.outputs[i];
    const TensorId id(graph_.tensors_.size());
    graph_.tensors_.push_back(Tensor{
        .kind = made_in(phase),
        .type = {output.dtype, output.shape(), output.weight},
        .name = "",
        .module = current_,
        .producer = op,
        .output = static_cast<std::uint16_t>(i),
        .storage =
            output.aliases >= 0 ? graph_.tensors_[inputs[static_cast<std::size_t>(output.aliases)]].storage : id});
    outputs.push_back(id);
  }
  graph_.op_outputs_.insert(graph_.op_outputs_.end(), outputs.begin(), outputs.end());
  graph_.output_start_.push_back(static_cast<std::uint32_t>(graph_.op_outputs_.size()));
  return outputs;
}

std::vector<TensorId> GraphBuilder::op(OpKind kind, std::string name, std::span<const TensorId> inputs, Attrs attrs,
                                       Phase phase) {
  // After an error callers may still take the first outputs of whatever they build.
  const auto nothing = [] { return std::vector<TensorId>(8); };
  // '@' marks what training adds to a forward operator or parameter.
  if (error_ ||
      !valid_name(phase == Phase::Forward ? std::string_view(name) : std::string_view(name).substr(0, name.find('@')),
                  "operator"))
    return nothing();
  for (TensorId input : inputs)
    WEFT_CHECK(graph_.tensors_.contains(input), "operator {} reads a tensor that does not exist", name);
  const auto [at, fresh] = interned_->signatures.try_emplace(signature_key(kind, attrs, inputs, graph_.tensors_));
  if (fresh) {
    std::vector<TensorType> types;
    for (TensorId input : inputs) types.push_back(graph_.tensors_[input].type);
    Result<Signature> made = make_signature(kind, attrs, types);
    if (!made.ok()) {
      interned_->signatures.erase(at);
      const std::string module = graph_.name(current_);
      fail(made.error().at(module.empty() ? name : module + "." + name));
      return nothing();
    }
    at->second = graph_.signatures_.push_back(std::move(made).value());
  }
  std::vector<TensorId> outputs = add_op(at->second, std::move(name), inputs, phase, {});
  return error_ ? nothing() : outputs;
}

std::vector<TensorId> GraphBuilder::gradient_op(OpId forward, const Gradient& gradient,
                                                std::span<const TensorId> inputs) {
  const auto nothing = [&] { return std::vector<TensorId>(gradient.writes.size()); };
  if (error_) return nothing();
  const SignatureId forward_signature = graph_.ops_[forward].signature;
  const auto [at, fresh] = interned_->signatures.try_emplace(gradient_key(forward_signature, gradient));
  if (fresh)
    at->second = graph_.signatures_.push_back(gradient_signature(graph_.signatures_[forward_signature], gradient));
  const auto scope_guard = scope(graph_.ops_[forward].module);
  std::vector<TensorId> outputs =
      add_op(at->second, graph_.ops_[forward].name + "@" + gradient.name, inputs, Phase::Backward, forward);
  return error_ ? nothing() : outputs;
}

void GraphBuilder::result(TensorId tensor) {
  if (!error_) graph_.results_.push_back(tensor);
}

// Numbers modules in the order in which tensors and operators first use them, and forgets unused ones, so that equal
// content makes equal graphs.
void GraphBuilder::order_modules() {
  IdVec<ModuleId, ModuleId> renamed(graph_.modules_.size());
  IdVec<ModuleId, Module> ordered;
  renamed[ModuleId(0)] = ordered.push_back(graph_.modules_[ModuleId(0)]);
  const auto visit = [&](auto&& self, ModuleId module) -> ModuleId {
    if (!renamed[module].valid()) {
      const ModuleId parent = self(self, graph_.modules_[module].parent);
      renamed[module] = ordered.push_back({graph_.modules_[module].name, parent});
    }
    return renamed[module];
  };
  OpId last;
  for (Tensor& tensor : graph_.tensors_) {
    // Tensors are in the order of creation; an operator is met with its first output.
    if (tensor.producer.valid() && tensor.producer != last) {
      last = tensor.producer;
      graph_.ops_[last].module = visit(visit, graph_.ops_[last].module);
    }
    tensor.module = tensor.producer.valid() ? graph_.ops_[last].module : visit(visit, tensor.module);
  }
  graph_.modules_ = std::move(ordered);
}

Result<Graph> GraphBuilder::freeze() && {
  if (error_) return *error_;
  order_modules();
  // Counting sort of operator inputs by tensor.
  graph_.use_start_.assign(graph_.tensors_.size() + 1, 0);
  for (TensorId tensor : graph_.op_inputs_) ++graph_.use_start_[tensor.index() + 1];
  for (std::size_t i = 1; i < graph_.use_start_.size(); ++i) graph_.use_start_[i] += graph_.use_start_[i - 1];
  graph_.uses_.resize(graph_.op_inputs_.size());
  std::vector<std::uint32_t> next(graph_.use_start_.begin(), graph_.use_start_.end() - 1);
  for (OpId op : graph_.ops_.ids()) {
    const auto inputs = graph_.inputs(op);
    for (std::uint32_t i = 0; i < inputs.size(); ++i) graph_.uses_[next[inputs[i].index()]++] = {op, i};
  }
  return std::move(graph_);
}

}  // namespace weft
