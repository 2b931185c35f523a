#include "validate/expert_layers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "cluster/library.h"
#include "cost/analytic.h"
#include "cost/step_prices.h"
#include "forecast/forecast.h"
#include "validate/mapping.h"
#include "validate/score.h"

namespace weft {
namespace {

constexpr double kGibi = 1024.0 * 1024 * 1024;
constexpr std::string_view kLayer = ".moe.";  // in the names of the layer's operators and tensors

std::optional<double> positive(std::string_view text) {
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || rest != text.data() + text.size() || !(value > 0) || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::vector<std::string> words(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// The number after a word's letters: 14336 of "moe_ffn14336". 0: the word is not there.
std::int64_t number_in(const std::vector<std::string>& list, std::string_view letters) {
  for (const std::string& word : list) {
    if (!word.starts_with(letters) || word.size() == letters.size()) continue;
    std::int64_t value = 0;
    const auto [rest, status] = std::from_chars(word.data() + letters.size(), word.data() + word.size(), value);
    if (status == std::errc() && rest == word.data() + word.size() && value > 0) return value;
  }
  return 0;
}

Result<PlanRequest> request_of(const MeasuredRow& row, const MappingRules& rules) {
  const std::vector<std::string> parts = words(row.text("case"), '_');
  if (parts.size() != 4) return error("case '{}': write MODEL_DISPATCHER_tp1ep8_bf16", row.text("case").substr(0, 60));
  std::vector<std::string> shapes;
  for (const std::string& each : words(row.text("model"), ';')) {
    std::vector<std::string> list = words(each, ' ');
    if (!list.empty() && list.front() == parts[0]) shapes = std::move(list);
  }
  const std::int64_t seq = number_in(shapes, "seq"), batch = number_in(shapes, "mbs"), hidden = number_in(shapes, "h"),
                     ffn = number_in(shapes, "moe_ffn"), experts = number_in(shapes, "E"),
                     top = number_in(shapes, "top"), shared = number_in(shapes, "shared");
  if (seq == 0 || batch == 0 || hidden < 128 || ffn == 0 || experts == 0 || top == 0)
    return error("model: no shapes of '{}' (seq, mbs, h, moe_ffn, E, top)", parts[0].substr(0, 40));
  const std::size_t ep_at = parts[2].find("ep");
  const std::int64_t tp = number_in({parts[2].substr(0, ep_at)}, "tp"),
                     ep = ep_at == std::string::npos ? 0 : number_in({parts[2].substr(ep_at)}, "ep");
  if (tp == 0 || ep == 0) return error("case '{}': no degrees", row.text("case").substr(0, 60));
  PlanRequest request;
  request.model = fmt::format(
      "mixtral-8x7b:layers=1,hidden={},heads={},kv_heads={},experts={},top_k={},expert_ffn={},shared_ffn={},"
      "activation=gelu,weigh_rows=1,vocab=1024,context={}",
      hidden, hidden / 128, hidden / 128, experts, top, ffn, shared, seq);
  const std::string node = rules.node_of(row);
  if (node.empty()) return error("gpu '{}': no rule names its node", row.text("gpu").substr(0, 40));
  request.cluster = node + ":1";
  request.strategy = fmt::format("tp={},dp={},ep={}", tp, ep, ep);
  request.seq = seq;
  request.micro_batch = batch;
  request.global_batch = batch * ep;
  if (parts[1] != "a2a" && parts[1] != "deepep" && parts[1] != "hybridep")
    return error("case '{}': dispatcher '{}': write a2a, deepep or hybridep", row.text("case").substr(0, 60), parts[1]);
  request.stack = parts[1] == "a2a" ? "megatron-moe-layer" : fmt::format("megatron-moe-layer-{}", parts[1]);
  WEFT_TRY(request.dtype, dtype_option(parts[3]));
  return request;
}

bool in_layer(std::string_view name) { return name.find(kLayer) != std::string_view::npos; }

// From the start of the layer's first task to the end of its last in a play, without gradient accumulation, as the
// measurement had a single micro-batch, and without reductions of gradients.
double layer_seconds(const Timeline& timeline, const Plan& plan, const CompiledStrategy& compiled, std::uint32_t play) {
  Picoseconds begin = -1, end = 0, added = 0;
  timeline.for_each(AgentId(0), [&](const Span& span) {
    if (span.play != play) return;
    const InstructionId id(span.instruction);
    if (compiled.program.instructions[id].stream == Stream::Data) return;
    if (!in_layer(title_of(compiled.program, plan.training().graph, id))) return;
    if (const auto* compute = std::get_if<Compute>(&compiled.program.instructions[id].what);
        compute && plan.training().graph.kind(compute->op) == OpKind::Accumulate)
      added += span.end - span.start;
    if (begin < 0 || span.start < begin) begin = span.start;
    end = std::max(end, span.end);
  });
  return begin < 0 ? 0 : seconds_of(end - begin - added);
}

// The peak memory of the layer's parameters, gradients and activations.
double layer_bytes(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  const Graph& graph = plan.training().graph;
  std::set<TensorId> gradients;
  for (const auto& [parameter, sum] : plan.training().accumulated) gradients.insert(graph.tensors()[sum].storage);
  const IdVec<TensorId, double> narrow = narrow_copies(program, graph, plan.stack());
  double kept = 0;
  for (BufferId id : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[id];
    const bool own =
        buffer.kind == BufferKind::Parameter || (buffer.kind == BufferKind::State && gradients.contains(buffer.tensor));
    if (buffer.memory != id || !own || !in_layer(graph.name(buffer.tensor))) continue;
    const std::int64_t elements = largest_local_elements(buffer.layout, program.meshes[buffer.layout.mesh]);
    kept += static_cast<double>(bytes_of(graph.tensors()[buffer.tensor].type.dtype, elements)) +
            static_cast<double>(elements) * narrow[buffer.tensor];
  }
  const std::vector<DeviceId> ranks = plan.ranks();
  const std::vector<MemoryClass> classes = memory_classes(compiled, plan.cluster(), ranks);
  const MemoryOfClass memory(compiled, plan.training(), plan.stack(), classes.front());
  double now = kept, most = kept;
  for (std::size_t play = 0; play + 1 < memory.plays(); ++play)  // the last is the step
    for (const MemoryChange& change : memory.body(play).changes) {
      const InstructionId by = memory.instructions(play)[change.position];
      const bool own = change.buffer.valid() ? in_layer(graph.name(program.buffers[change.buffer].tensor))
                                             : in_layer(title_of(program, graph, by));
      if (!own) continue;
      now += static_cast<double>(change.bytes);
      most = std::max(most, now);
    }
  return most;
}

// A single layer does not load its device for long: products run at the clock of single calls.
Calibration cold(Calibration calibration) {
  for (DeviceTuning& device : calibration.tuning.devices) device.load_clock.value = 1;
  return calibration;
}

Result<LayerPoint> compare(const MeasuredRow& row, const MappingRules& rules, const Calibration& calibration) {
  const auto forward = positive(row.text("forward_ms")), backward = positive(row.text("backward_ms")),
             bytes = positive(row.text("max_allocated_bytes"));
  if (!forward || !backward || !bytes)
    return error("forward_ms, backward_ms or max_allocated_bytes: no number above zero");
  WEFT_TRY(const PlanRequest request, request_of(row, rules));
  WEFT_TRY(const Plan plan, make_plan(request, calibration));
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  WEFT_TRY(const PlayedPlan played, play_plan(plan, cost, {.record = true}));
  const CompiledStrategy& compiled = played.compiled;
  const Timeline timeline(played.priced.workload, played.run);
  LayerPoint point{row.line, std::string(row.text("case")), *forward * 1e-3, *backward * 1e-3, *bytes / kGibi, 0, 0, 0};
  point.predicted_forward_s = layer_seconds(timeline, plan, compiled, 0);
  point.predicted_backward_s = layer_seconds(timeline, plan, compiled, 1);
  point.predicted_gib = layer_bytes(plan, compiled) / kGibi;
  return point;
}

}  // namespace

bool is_table_of_layers(const CsvTable& table) {
  for (std::string_view column : {"gpu", "case", "forward_ms", "backward_ms", "max_allocated_bytes", "model"})
    if (std::find(table.columns.begin(), table.columns.end(), column) == table.columns.end()) return false;
  return true;
}

LayerValidation validate_layers(const CsvTable& table, const std::string& file, const MappingRules& rules,
                                const Calibration* calibration) {
  LayerValidation out{file, {}, {}, 0, 0, 0};
  const Calibration constants = cold(calibration ? *calibration : Calibration{});
  std::vector<double> forward, backward, memory;
  for (const CsvRow& from : table.rows) {
    MeasuredRow row{.file = file, .line = from.line, .cells = {}};
    for (std::size_t i = 0; i < std::min(table.columns.size(), from.cells.size()); ++i)
      if (!from.cells[i].empty()) row.cells[table.columns[i]] = from.cells[i];
    Result<LayerPoint> point =
        from.fault.empty() ? compare(row, rules, constants) : Result<LayerPoint>(Error{from.fault});
    if (!point.ok()) {
      out.skipped.push_back({file, from.line, point.error().message});
      continue;
    }
    forward.push_back(std::abs(point->forward_error()));
    backward.push_back(std::abs(point->backward_error()));
    memory.push_back(std::abs(point->memory_error()));
    out.points.push_back(std::move(point).value());
  }
  out.forward_mape = mean(forward);
  out.backward_mape = mean(backward);
  out.memory_mape = mean(memory);
  return out;
}

}  // namespace weft
