#include "report/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <unordered_map>

#include "strategy/layers.h"

namespace weft {
namespace {

std::string role_of(OpKind kind, std::string_view axis) {
  switch (kind) {
    case OpKind::Linear:
      return axis == "n" ? "column" : axis == "k" ? "row" : "";
    case OpKind::ExpertLinear:
      return axis == "e" ? "experts" : axis == "n" ? "column" : axis == "k" ? "row" : "";
    case OpKind::Embedding:
      return axis == "v" ? "rows" : axis == "d" ? "columns" : "";
    case OpKind::Attention:
      return axis == "g" || axis == "r" ? "heads" : axis == "t" ? "keys" : "";
    case OpKind::Dispatch:
    case OpKind::DispatchWeights:
    case OpKind::Combine:
      return axis == "e" ? "experts" : "";
    case OpKind::CrossEntropy:
      return axis == "v" ? "vocabulary" : "";
    case OpKind::Conv2d:
      return axis == "o"   ? "channels out"
             : axis == "c" ? "channels in"
             : axis == "h" ? "height"
             : axis == "w" ? "width"
                           : "";
    default:
      return "";
  }
}

// Visits a program once and assigns every instruction to the forward operator it belongs to.
class Collector {
 public:
  Collector(const Plan& plan, const CompiledStrategy& compiled)
      : program_(compiled.program), graph_(plan.training().graph), layers_(find_layers(graph_)) {
    for (OpId op : graph_.ops().ids()) {
      if (graph_.ops()[op].phase != Phase::Forward) break;
      forward_named_.emplace(graph_.name(op), op);
    }
    rows_.resize(graph_.ops().size());
    stage_of_.resize(graph_.ops().size(), -1);
    for (std::size_t stage = 0; stage < program_.stages.size(); ++stage) {
      walk(program_.stages[stage].forward, stage, false);
      walk(program_.stages[stage].backward, stage, true);
    }
  }

  std::vector<OperatorSection> sections() {
    // Operators in order; a layer, or the operators between layers on one stage, is a section; equal neighbours are
    // merged.
    std::vector<OperatorSection> sections;
    int layer = -2;
    std::string module;
    for (OpId op : graph_.ops().ids()) {
      if (graph_.ops()[op].phase != Phase::Forward) break;
      if (!seen_.contains(op)) continue;
      const int here = layers_.of[op];
      const std::int64_t stage = stage_of_[op];
      const std::string name = graph_.name(op);
      const std::string top = here < 0 ? name.substr(0, name.find('.')) : "";
      const bool fresh = here != layer || (here < 0 && (top != module || sections.back().stages.front() != stage));
      if (fresh) {
        merge_last(sections);
        OperatorSection section;
        if (here >= 0) section.layers = {layers_.names[static_cast<std::size_t>(here)]};
        section.name = here >= 0 ? section.layers.front() : top;
        section.stages = {stage};
        sections.push_back(std::move(section));
      }
      layer = here;
      module = top;
      OperatorRow row = std::move(rows_[op]);
      const std::string& prefix = sections.back().name;
      row.name = name.starts_with(prefix + ".") ? name.substr(prefix.size() + 1) : name;
      sections.back().rows.push_back(std::move(row));
    }
    merge_last(sections);
    join_outside(sections);
    return sections;
  }

 private:
  // The last layer joins the section of the first equal one: alternating layers make two sections.
  static void merge_last(std::vector<OperatorSection>& sections) {
    if (sections.empty() || sections.back().layers.empty()) return;
    for (std::size_t i = 0; i + 1 < sections.size(); ++i) {
      OperatorSection& like = sections[i];
      if (like.layers.empty() || like.rows != sections.back().rows) continue;
      like.layers.push_back(sections.back().layers.front());
      if (like.stages.back() != sections.back().stages.front()) like.stages.push_back(sections.back().stages.front());
      sections.pop_back();
      return;
    }
  }

  // Consecutive operators of a stage outside of layers and modules are one section.
  static void join_outside(std::vector<OperatorSection>& sections) {
    std::vector<OperatorSection> joined;
    for (OperatorSection& section : sections) {
      const bool loose = section.layers.empty() && section.rows.size() == 1 && section.rows[0].name == section.name;
      if (loose && !joined.empty() && joined.back().name.empty() && joined.back().stages == section.stages) {
        joined.back().rows.push_back(std::move(section.rows[0]));
        continue;
      }
      if (loose) section.name.clear();
      joined.push_back(std::move(section));
    }
    sections = std::move(joined);
  }

  // The forward operator that a tensor's producer belongs to: itself, the one it is a backward product of, or the one a
  // sum of gradients is named after.
  OpId owner_of(OpId op) const {
    if (!op.valid()) return {};
    if (graph_.ops()[op].phase == Phase::Forward) return op;
    if (graph_.ops()[op].forward.valid()) return graph_.ops()[op].forward;
    const std::string name = graph_.name(op);
    const auto found = forward_named_.find(name.substr(0, name.find('@')));
    return found == forward_named_.end() ? OpId() : found->second;
  }

  void walk(const std::vector<InstructionId>& body, std::size_t stage, bool backward) {
    // The first reader of a collective's output, through chains of collectives.
    std::unordered_map<BufferId, OpId> reader;
    for (auto at = body.rbegin(); at != body.rend(); ++at) {
      const Instruction& instruction = program_.instructions[*at];
      if (const auto* compute = std::get_if<Compute>(&instruction.what))
        for (BufferId id : compute->inputs) reader[id] = compute->op;
      if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
        for (std::size_t i = 0; i < communicate->outputs.size(); ++i)
          if (const auto next = reader.find(communicate->outputs[i]); next != reader.end())
            reader[communicate->inputs[i]] = next->second;
    }
    for (InstructionId id : body) {
      const Instruction& instruction = program_.instructions[id];
      if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
        if (graph_.ops()[compute->op].phase != Phase::Forward) continue;
        if (backward)
          rows_[compute->op].recomputed = true;
        else
          describe(*compute, instruction.mesh, stage);
      } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
        if (instruction.guard == Guard::Always && communicate->collective != Collective::Slice)
          move(*communicate, instruction.mesh, backward, reader);
      }
    }
  }

  void describe(const Compute& compute, MeshId mesh_id, std::size_t stage) {
    const Signature& signature = graph_.signature(compute.op);
    const Mesh& mesh = program_.meshes[mesh_id];
    if (!seen_.insert(compute.op).second) return;  // another step of a ring, or DualPipe's other direction
    stage_of_[compute.op] = static_cast<std::int64_t>(stage);
    OperatorRow& row = rows_[compute.op];
    row.kind = name_of(signature.kind);
    for (std::size_t axis = 0; axis < compute.sharding.axes.size(); ++axis) {
      OperatorSplit split;
      split.axis = signature.axes[axis].name;
      split.samples = signature.axes[axis].kind == AxisKind::Sample || signature.kind == OpKind::NllLoss ||
                      signature.kind == OpKind::BceLoss;
      for (const Cut& cut : compute.sharding.axes[axis])
        if (const MeshAxis& described = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)]; described.size > 1)
          split.over.push_back(described.name);
      if (split.over.empty()) continue;
      split.role = role_of(signature.kind, split.axis);
      row.splits.push_back(std::move(split));
    }
    for (std::size_t i = 0; i < compute.inputs.size(); ++i) {
      const Buffer& buffer = program_.buffers[compute.inputs[i]];
      (signature.inputs[i].weight ? row.weights : row.inputs).push_back(marked_shape(buffer.layout, mesh));
    }
    for (BufferId id : compute.outputs) row.outputs.push_back(marked_shape(program_.buffers[id].layout, mesh));
  }

  void move(const Communicate& communicate, MeshId mesh_id, bool backward,
            const std::unordered_map<BufferId, OpId>& reader) {
    const TensorId tensor = program_.buffers[communicate.inputs[0]].tensor;
    const auto read_by = reader.find(communicate.outputs[0]);
    const OpId producer = graph_.tensors()[tensor].producer;
    // A reduction belongs to the operator that makes the terms, other collectives to the reader; gradients that rotate
    // around a ring to the attention that passes them on.
    const bool carried =
        communicate.collective == Collective::Shift && producer.valid() && graph_.kind(producer) == OpKind::Attention;
    const bool sums = carried || communicate.collective == Collective::AllReduce ||
                      communicate.collective == Collective::ReduceScatter ||
                      communicate.collective == Collective::HaloSum;
    OpId op = sums ? producer : read_by == reader.end() ? producer : read_by->second;
    if (!owner_of(op).valid()) op = sums && read_by != reader.end() ? read_by->second : producer;
    const OpId owner = owner_of(op);
    if (!owner.valid()) return;
    OperatorMove found{communicate.collective,
                       program_.meshes[mesh_id].names_of(communicate.axes),
                       cargo_of(graph_, tensor),
                       bytes_sent(program_, graph_, communicate),
                       backward,
                       !sums,
                       graph_.signature(op).gradient};
    rows_[owner].moves.push_back(std::move(found));
  }

  const Program& program_;
  const Graph& graph_;
  Layers layers_;
  std::unordered_map<std::string, OpId> forward_named_;
  IdVec<OpId, OperatorRow> rows_;
  IdVec<OpId, std::int64_t> stage_of_;
  std::set<OpId> seen_;
};

}  // namespace

std::vector<OperatorSection> operator_sections(const Plan& plan, const CompiledStrategy& compiled) {
  return Collector(plan, compiled).sections();
}

std::string marked_shape(const Layout& layout, const Mesh& mesh) {
  std::vector<std::string> dims;
  for (const DimLayout& dim : layout.dims) {
    std::vector<std::string> factors;
    for (const Factor& factor : dim) {
      std::string cuts;
      std::int64_t part = factor.size;
      bool uneven = false;
      for (const Cut& cut : factor.cuts) {
        const MeshAxis& axis = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)];
        if (axis.size == 1) continue;
        uneven = uneven || !cut.shares.empty();
        part /= units_of(cut.shares, axis.size);
        if (!cut.shares.empty()) part *= *std::max_element(cut.shares.begin(), cut.shares.end());
        cuts += "·" + axis.name;
        if (cut.halo_low + cut.halo_high > 0) cuts += fmt::format("+{}", cut.halo_low + cut.halo_high);
      }
      factors.push_back(fmt::format("{}{}{}", uneven ? "≤" : "", part, cuts));
    }
    dims.push_back(factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, "×")));
  }
  std::string text = fmt::format("[{}]", fmt::join(dims, ","));
  for (std::size_t axis = 0; axis < layout.partial.size(); ++axis)
    if (layout.partial[axis] && mesh.axes()[axis].size > 1)
      text += fmt::format(
          "{}{}", *layout.partial[axis] == Reducer::Sum ? "Σ" : fmt::format("{}:", name_of(*layout.partial[axis])),
          mesh.axes()[axis].name);
  return text;
}

namespace {

// "layers.3" → {"layers.", 3}
std::optional<std::pair<std::string, std::int64_t>> numbered(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  const std::string last = name.substr(dot == std::string::npos ? 0 : dot + 1);
  std::int64_t number = 0;
  const auto [rest, status] = std::from_chars(last.data(), last.data() + last.size(), number);
  if (status != std::errc() || rest != last.data() + last.size()) return std::nullopt;
  return std::pair(name.substr(0, name.size() - last.size()), number);
}

}  // namespace

std::string folded_names(const std::vector<std::string>& names) {
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i < names.size();) {
    std::size_t end = i + 1;
    const auto first = numbered(names[i]);
    if (first)
      for (; end < names.size(); ++end) {
        const auto next = numbered(names[end]);
        if (!next || next->first != first->first || next->second != first->second + static_cast<std::int64_t>(end - i))
          break;
      }
    pieces.push_back(end - i == 1
                         ? names[i]
                         : fmt::format("{}…{}", names[i], first->second + static_cast<std::int64_t>(end - i) - 1));
    i = end;
  }
  std::string text = pieces.size() <= 4
                         ? fmt::format("{}", fmt::join(pieces, ", "))
                         : fmt::format("{}, {}, {} … {}", pieces[0], pieces[1], pieces[2], pieces.back());
  if (names.size() > 1) text += fmt::format(" ({}×)", names.size());
  return text;
}

}  // namespace weft
