#include "report/symbolic.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.h"
#include "report/strategy.h"
#include "report/table.h"
#include "strategy/layers.h"

namespace weft {
namespace {

// Mesh axes of one letter (h, w of images) would be confused with the operators' axes.
std::string symbol_of(const MeshAxis& axis) { return axis.name.size() == 1 ? axis.name + "_ways" : axis.name; }

// The dimensions of a tensor in the axes of its producer, else of its first reader.
class Dimensions {
 public:
  Dimensions(const Graph& graph, TensorId id, Bindings& bindings) {
    const Tensor& tensor = graph.tensors()[id];
    const Shape& shape = tensor.type.shape;
    const Signature* signature = nullptr;
    const Operand* operand = nullptr;
    if (tensor.producer.valid()) {
      signature = &graph.signature(tensor.producer);
      operand = &signature->outputs[tensor.output];
    } else if (const auto uses = graph.uses(id); !uses.empty()) {
      signature = &graph.signature(uses[0].op);
      operand = &signature->inputs[uses[0].input];
    }
    for (std::size_t d = 0; d < shape.size(); ++d) {
      Expression size(1);
      std::int64_t product = 1;
      const bool known = operand && operand->dims.size() == shape.size() && !operand->dims[d].windowed();
      if (known)
        for (int axis : operand->dims[d].factors) product *= signature->axes[static_cast<std::size_t>(axis)].size;
      if (known && product == shape[d]) {
        for (int axis : operand->dims[d].factors) {
          const Axis& named = signature->axes[static_cast<std::size_t>(axis)];
          if (named.size == 1) continue;
          size = size * Expression::symbol(named.name);
          bindings[named.name] = named.size;
        }
      } else if (shape[d] != 1) {
        const std::string name = fmt::format("d{}", d);
        size = Expression::symbol(name);
        bindings[name] = shape[d];
      }
      sizes.push_back(std::move(size));
    }
  }
  std::vector<Expression> sizes;
};

// A buffer's local elements with even parts.
Expression even_elements(const Layout& layout, const Mesh& mesh, const std::vector<Expression>& sizes,
                         Bindings& bindings) {
  Expression elements(1);
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    Expression part = sizes[d];
    std::int64_t halo = 0;
    for (const Factor& factor : layout.dims[d])
      for (const Cut& cut : factor.cuts) {
        const MeshAxis& axis = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)];
        halo += cut.halo_low + cut.halo_high;
        if (axis.size == 1) continue;
        part = part * Expression::symbol(symbol_of(axis), -1);
        bindings[symbol_of(axis)] = axis.size;
      }
    elements = elements * (part + Expression(halo));
  }
  return elements;
}

Rational bits_to_bytes(std::int64_t elements, DType dtype) {
  return Rational(elements) * Rational::of(bits_of(dtype), 8);
}

// Whether the volume of a collective is proportional to the elements before it; otherwise to those after it.
bool counts_before(Collective collective) {
  return collective != Collective::AllGather && collective != Collective::HaloExchange;
}

std::string without_layer(const std::string& name, const std::vector<std::string>& layers) {
  for (const std::string& layer : layers)
    if (name.starts_with(layer + ".")) {
      const std::size_t dot = layer.rfind('.');
      return layer.substr(0, dot + 1) + "*" + name.substr(layer.size());
    }
  return name;
}

}  // namespace

SymbolicVolume symbolic_volume(const Program& program, const Graph& graph, const Communicate& communicate) {
  SymbolicVolume found;
  const Mesh& mesh = program.meshes[program.buffers[communicate.inputs[0]].layout.mesh];
  const Collective collective = communicate.collective;
  std::vector<std::string> degrees;
  for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    const MeshAxis& along = mesh.axes()[axis];
    if ((communicate.axes >> axis & 1u) == 0 || along.size == 1) continue;
    degrees.push_back(symbol_of(along));
    found.bindings[degrees.back()] = along.size;
  }
  const Rational factor = volume_factor(collective, {"n"}).at({{"n", mesh.group_size(communicate.axes)}});
  const Expression degree = degrees.empty() ? Expression(factor) : volume_factor(collective, degrees);
  const bool bucket = communicate.outputs.size() > 1;
  std::map<std::string, std::string> parts;  // of a bucket: by cuts and type, a symbol
  for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
    const Buffer &from = program.buffers[communicate.inputs[i]], &to = program.buffers[communicate.outputs[i]];
    const DType dtype = sent_type(program, graph, communicate, communicate.inputs[i]);
    const auto program_elements = [&](const Buffer& buffer) {
      return bits_to_bytes(largest_local_elements(buffer.layout, mesh), dtype);
    };
    // As in elements_sent: of padded parts the largest counts.
    const Rational sends = communicate.parts == Parts::Padded
                               ? program_elements(collective == Collective::AllGather ? from : to) *
                                     Rational(mesh.group_size(communicate.axes) - 1)
                               : factor * program_elements(counts_before(collective) ? from : to);
    Bindings own;
    std::vector<Expression> sizes = Dimensions(graph, from.tensor, own).sizes;
    if (bucket) {
      // The tensors of a bucket are one symbol per layout: the sum of their elements.
      Bindings cuts;
      std::vector<Expression> ones(sizes.size(), Expression(1));
      const Expression cut = even_elements(from.layout, mesh, ones, cuts) * Expression(bits_of(dtype)) +
                             Expression::symbol("to") * even_elements(to.layout, mesh, ones, cuts);
      const auto [symbol, fresh] =
          parts.try_emplace(print(cut), parts.empty() ? "p" : fmt::format("p{}", parts.size() + 1));
      std::int64_t count = 1;
      for (std::int64_t size : graph.tensors()[from.tensor].type.shape) count *= size;
      found.bindings[symbol->second] += count;
      sizes.assign(sizes.size(), Expression(1));
      if (!fresh) {
        found.program = found.program + sends;
        continue;
      }
      own.clear();
      const Expression whole = Expression::symbol(symbol->second);
      const Buffer& counted = counts_before(collective) ? from : to;
      found.sent += degree * whole * even_elements(counted.layout, mesh, sizes, own) *
                    Expression(Rational::of(bits_of(dtype), 8));
      found.program = found.program + sends;
      found.bindings.insert(own.begin(), own.end());
      continue;
    }
    const Expression bytes = Expression(Rational::of(bits_of(dtype), 8));
    const Expression before = even_elements(from.layout, mesh, sizes, own) * bytes,
                     after = even_elements(to.layout, mesh, sizes, own) * bytes;
    if (collective == Collective::HaloExchange) {
      found.sent += after - before;
      found.program = found.program + program_elements(to) - program_elements(from);
    } else if (collective == Collective::HaloSum) {
      found.sent += before - after;
      found.program = found.program + program_elements(from) - program_elements(to);
    } else {
      found.sent += degree * (counts_before(collective) ? before : after);
      found.program = found.program + sends;
    }
    found.bindings.insert(own.begin(), own.end());
  }
  return found;
}

SymbolicVolume symbolic_volume(const Program& program, const Graph& graph, const Send& send) {
  SymbolicVolume found;
  const Transfer& transfer = program.transfers[send.transfer];
  const Buffer &from = program.buffers[transfer.from], &to = program.buffers[transfer.to];
  const Mesh &here = program.meshes[from.layout.mesh], &there = program.meshes[to.layout.mesh];
  if (from.layout.mesh == program.world || here.devices() == there.devices()) return found;  // to itself
  const DType dtype = stored_type(program, graph, transfer.from);
  const std::vector<Expression> sizes = Dimensions(graph, from.tensor, found.bindings).sizes;
  const Expression bytes(Rational::of(bits_of(dtype), 8));
  if (here.axes() == there.axes()) {
    found.sent = even_elements(from.layout, here, sizes, found.bindings) * bytes;
    found.program = bits_to_bytes(largest_local_elements(from.layout, here), dtype);
    return found;
  }
  // Every receiver gets its part once, from a device that has it.
  const Rational ratio = Rational::of(there.size(), here.size());
  found.sent = even_elements(to.layout, there, sizes, found.bindings) * bytes * Expression(ratio);
  found.program = bits_to_bytes(largest_local_elements(to.layout, there), dtype) * ratio;
  return found;
}

namespace {

class Collector {
 public:
  Collector(const Plan& plan, const CompiledStrategy& compiled)
      : program_(compiled.program),
        schedule_(compiled.schedule),
        graph_(plan.training().graph),
        layers_(find_layers(graph_).names),
        ranks_(static_cast<std::size_t>(compiled.schedule.ranks)) {
    const std::vector<std::int32_t> counts = micro_batches_by_place(schedule_);
    for (std::size_t place = 0; place < counts.size(); ++place) {
      const StageProgram& stage = program_.stages[program_stage(
          program_, schedule_,
          {static_cast<std::int32_t>(place) / schedule_.chunks, static_cast<std::int32_t>(place) % schedule_.chunks})];
      for (const auto* body : {&stage.forward, &stage.backward})
        for (InstructionId id : *body) {
          const Instruction& instruction = program_.instructions[id];
          count(instruction, place / static_cast<std::size_t>(schedule_.chunks),
                instruction.guard == Guard::Always ? counts[place] : 1);
        }
    }
    std::map<MeshId, std::vector<std::int32_t>> ranks_of;
    for (InstructionId id : program_.step) {
      const Instruction& instruction = program_.instructions[id];
      const auto [known, fresh] = ranks_of.try_emplace(instruction.mesh);
      if (fresh) known->second = ranks_of_mesh(compiled, instruction.mesh);
      for (std::int32_t rank : known->second) count(instruction, static_cast<std::size_t>(rank), 1);
    }
  }

  SymbolicReport take() {
    SymbolicReport report;
    for (const std::string& key : order_) {
      if (const auto move = moves_.find(key); move != moves_.end()) report.moves.push_back(std::move(move->second));
      if (const auto product = products_.find(key); product != products_.end())
        report.products.push_back(std::move(product->second));
    }
    return report;
  }

 private:
  void count(const Instruction& instruction, std::size_t rank, std::int64_t times) {
    const auto count_move = [&](TensorId tensor, std::size_t others, std::string how, std::string group,
                                SymbolicVolume volume) {
      if (volume.program.numerator == 0) return;
      const Rational bytes = volume.sent.at(volume.bindings);
      const std::string what = others > 0 ? fmt::format("{} and {} more", graph_.name(tensor), others)
                                          : without_layer(graph_.name(tensor), layers_);
      const Rational padding = volume.program - bytes;
      std::string key =
          fmt::format("{}|{}|{}|{}|{}", others > 0 ? "" : what, how, group, print(volume.sent), print(padding));
      for (const auto& [name, value] : volume.bindings) key += fmt::format("|{}={}", name, value);
      const auto [found, fresh] = moves_.try_emplace(key);
      if (fresh) {
        order_.push_back(key);
        found->second = {
            what, std::move(how), std::move(group), std::move(volume.sent), std::move(volume.bindings), bytes, padding,
            {}};
        found->second.times.resize(ranks_);
      }
      found->second.times[rank] += times;
    };
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      if (communicate->collective == Collective::Slice) return;
      const Mesh& mesh = program_.meshes[instruction.mesh];
      count_move(program_.buffers[communicate->inputs[0]].tensor, communicate->outputs.size() - 1,
                 std::string(name_of(communicate->collective)), mesh.names_of(communicate->axes),
                 symbolic_volume(program_, graph_, *communicate));
    } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
      count_move(program_.buffers[program_.transfers[send->transfer].from].tensor, 0, "send",
                 std::string(kPipelineAxis), symbolic_volume(program_, graph_, *send));
    } else if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      count_product(*compute, program_.meshes[instruction.mesh], rank, times);
    }
  }

  void count_product(const Compute& compute, const Mesh& mesh, std::size_t rank, std::int64_t times) {
    const Signature& signature = graph_.signature(compute.op);
    if (signature.contractions.empty()) return;
    SymbolicProduct made;
    for (const AxisSet& contraction : signature.contractions) {
      Expression flops(2);
      for (std::size_t axis = 0; axis < signature.axes.size(); ++axis) {
        if (!contraction.contains(static_cast<int>(axis))) continue;
        const Axis& named = signature.axes[axis];
        if (named.size > 1) {
          flops = flops * Expression::symbol(named.name);
          made.bindings[named.name] = named.size;
        }
        for (const Cut& cut : compute.sharding.axes.empty() ? std::vector<Cut>{} : compute.sharding.axes[axis]) {
          const MeshAxis& over = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)];
          if (over.size == 1) continue;
          flops = flops * Expression::symbol(symbol_of(over), -1);
          made.bindings[symbol_of(over)] = over.size;
        }
      }
      made.flops += flops;
    }
    std::string name = graph_.name(compute.op);
    made.direction = signature.gradient.empty() ? "forward" : signature.gradient;
    made.what = without_layer(name.substr(0, name.find('@')), layers_);
    std::string key = fmt::format("{}|{}|{}", made.what, made.direction, print(made.flops));
    for (const auto& [symbol, value] : made.bindings) key += fmt::format("|{}={}", symbol, value);
    const auto [found, fresh] = products_.try_emplace(key, made);
    if (fresh) {
      order_.push_back(key);
      found->second.times.resize(ranks_);
    }
    found->second.times[rank] += times;
  }

  const Program& program_;
  const Schedule& schedule_;
  const Graph& graph_;
  const std::vector<std::string> layers_;
  const std::size_t ranks_;
  std::vector<std::string> order_;
  std::map<std::string, SymbolicMove> moves_;
  std::map<std::string, SymbolicProduct> products_;
};

std::string bound(const Bindings& bindings) {
  std::vector<std::string> words;
  for (const auto& [name, value] : bindings) words.push_back(fmt::format("{}={}", name, value));
  return fmt::format("{}", fmt::join(words, " "));
}

std::string times_text(const std::vector<std::int64_t>& times) {
  const bool same = std::all_of(times.begin(), times.end(), [&](std::int64_t t) { return t == times.front(); });
  if (same) return grouped(times.front());
  std::vector<std::string> words;
  for (std::int64_t t : times) words.push_back(grouped(t));
  if (words.size() > 4)
    return fmt::format("{} to {}", grouped(*std::min_element(times.begin(), times.end())),
                       grouped(*std::max_element(times.begin(), times.end())));
  return fmt::format("{}", fmt::join(words, " | "));
}

}  // namespace

Rational SymbolicReport::flops(std::size_t rank) const {
  Rational sum;
  for (const SymbolicProduct& product : products)
    sum = sum + product.flops.at(product.bindings) * Rational(product.times[rank]);
  return sum;
}
Rational SymbolicReport::bytes(std::size_t rank) const {
  Rational sum;
  for (const SymbolicMove& move : moves) sum = sum + move.bytes * Rational(move.times[rank]);
  return sum;
}
Rational SymbolicReport::padding(std::size_t rank) const {
  Rational sum;
  for (const SymbolicMove& move : moves) sum = sum + move.padding * Rational(move.times[rank]);
  return sum;
}
double SymbolicReport::weighted(std::size_t rank, const std::map<std::string, double>& tiers) const {
  double sum = 0;
  for (const SymbolicMove& move : moves) {
    const auto tier = tiers.find(move.group);
    sum += (move.bytes * Rational(move.times[rank])).value() * (tier == tiers.end() ? 1 : tier->second);
  }
  return sum;
}

SymbolicReport symbolic_costs(const Plan& plan, const CompiledStrategy& compiled) {
  return Collector(plan, compiled).take();
}

Result<std::map<std::string, double>> parse_tiers(const std::string& text) {
  std::map<std::string, double> tiers;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    const std::size_t equals = item.find('=');
    double weight = 0;
    if (equals != std::string::npos) {
      const char* first = item.data() + equals + 1;
      const auto [rest, status] = std::from_chars(first, item.data() + item.size(), weight);
      if (status != std::errc() || rest != item.data() + item.size()) weight = 0;
    }
    if (equals == 0 || !(weight > 0 && weight < 1e9))
      return error("--tiers '{}': write AXIS=WEIGHT,..., what a byte counts over a mesh axis: tp=1,dp=8", item);
    tiers[item.substr(0, equals)] = weight;
    at = end + 1;
  }
  return tiers;
}

namespace {

// Visits the distinct forward products, with a name for all layers.
template <class Visit>
void for_each_product(const Plan& plan, const Visit& visit) {
  std::set<SignatureId> seen;
  const Graph& graph = plan.training().graph;
  const std::vector<std::string> layers = find_layers(graph).names;
  for (OpId op : graph.ops().ids()) {
    if (graph.ops()[op].phase != Phase::Forward) break;
    if (graph.signature(op).contractions.empty() || !seen.insert(graph.ops()[op].signature).second) continue;
    visit(without_layer(graph.name(op), layers), operator_volumes(graph.signature(op)));
  }
}

nlohmann::json json_of(const Bindings& bindings) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [symbol, value] : bindings) json[symbol] = value;
  return json;
}

}  // namespace

std::string describe(const Plan& plan, const CompiledStrategy& compiled, const SymbolicReport& report,
                     const std::map<std::string, double>& tiers) {
  std::string text = headline(plan);
  text += "volumes of one device as expressions of shapes and degrees: no times, no figures of devices or links\n\n";
  Table products{{{.most = 40}, {}, {.most = 60}, {.right = true}, {.right = true}}};
  products.add({"computation", "product", "FLOPs", "once", "× step"});
  for (const SymbolicProduct& product : report.products)
    products.add({product.what, product.direction, fmt::format("{}\n{}", print(product.flops), bound(product.bindings)),
                  human(Flops{product.flops.at(product.bindings).value()}), times_text(product.times)});
  text += products.print() + "\n";
  Table moves{{{.most = 36}, {}, {.most = 56}, {.right = true}, {.right = true}}};
  moves.add({"communication", "", "bytes sent", "once", "× step"});
  for (const SymbolicMove& move : report.moves) {
    std::string words = fmt::format("{}\n{}", print(move.sent), bound(move.bindings));
    if (move.padding.numerator != 0)
      words += fmt::format("\nand {} by uneven parts", human(Bytes{static_cast<std::int64_t>(move.padding.value())}));
    moves.add({move.what, fmt::format("{} over {}", move.how, move.group), words,
               human(Bytes{static_cast<std::int64_t>(move.bytes.value())}), times_text(move.times)});
  }
  if (report.moves.empty())
    text += "nothing is sent\n\n";
  else
    text += moves.print() + "\n";

  // The other possible splits: every distinct operator once.
  Table splits{{{.most = 36}, {}, {}, {.right = true}, {.most = 66}}};
  splits.add({"split over ways", "axis", "kind", "most", "bytes sent, forward and backward together"});
  for_each_product(plan, [&](const std::string& name, const OperatorVolumes& volumes) {
    bool first = true;
    for (const AxisVolume& split : volumes.splits) {
      splits.add({std::exchange(first, false) ? name : "", split.axis, std::string(name_of(split.kind)),
                  grouped(split.most), print(split.sent)});
    }
  });
  text += splits.print() + "\n";
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(compiled.schedule.ranks); ++rank) {
    const Rational padding = report.padding(rank);
    text += fmt::format(
        "{}: {} computed, {} sent{}{} in a step\n",
        compiled.schedule.ranks == 1 ? "every device" : fmt::format("pipeline rank {}", rank),
        human(Flops{report.flops(rank).value()}), human(Bytes{static_cast<std::int64_t>(report.bytes(rank).value())}),
        padding.numerator == 0
            ? ""
            : fmt::format(" and {} of padding", human(Bytes{static_cast<std::int64_t>(padding.value())})),
        tiers.empty() ? "" : fmt::format(", {:.4g} units by tiers", report.weighted(rank, tiers)));
  }
  return text;
}

nlohmann::json to_json(const Plan& plan, const CompiledStrategy& compiled, const SymbolicReport& report,
                       const std::map<std::string, double>& tiers) {
  using Json = nlohmann::json;
  Json json = {{"model", plan.job->words.model}, {"cluster", plan.job->words.cluster},
               {"strategy", plan.name},          {"global_batch", plan.batch.global_batch},
               {"products", Json::array()},      {"communication", Json::array()},
               {"splits", Json::array()},        {"ranks", Json::array()}};
  for (const SymbolicProduct& product : report.products)
    json["products"].push_back({{"name", product.what},
                                {"product", product.direction},
                                {"flops", print(product.flops)},
                                {"where", json_of(product.bindings)},
                                {"flops_once", product.flops.at(product.bindings).value()},
                                {"times", product.times}});
  for (const SymbolicMove& move : report.moves)
    json["communication"].push_back({{"name", move.what},
                                     {"collective", move.how},
                                     {"group", move.group},
                                     {"bytes", print(move.sent)},
                                     {"where", json_of(move.bindings)},
                                     {"bytes_once", move.bytes.value()},
                                     {"padding_once", move.padding.value()},
                                     {"times", move.times}});
  for_each_product(plan, [&](const std::string& name, const OperatorVolumes& volumes) {
    for (const AxisVolume& split : volumes.splits)
      json["splits"].push_back({{"name", name},
                                {"axis", split.axis},
                                {"kind", name_of(split.kind)},
                                {"most", split.most},
                                {"bytes", print(split.sent)},
                                {"where", json_of(volumes.sizes)}});
  });
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(compiled.schedule.ranks); ++rank) {
    Json of = {{"flops", report.flops(rank).value()},
               {"bytes", report.bytes(rank).value()},
               {"padding", report.padding(rank).value()}};
    if (!tiers.empty()) of["weighted"] = report.weighted(rank, tiers);
    json["ranks"].push_back(std::move(of));
  }
  return json;
}

}  // namespace weft
