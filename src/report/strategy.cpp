#include "report/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/units.h"
#include "report/picture.h"
#include "report/table.h"
#include "strategy/layers.h"

namespace weft {
namespace {

std::vector<StageReport> stage_reports(const Plan& plan, const CompiledStrategy& compiled) {
  const Schedule& schedule = compiled.schedule;
  const Graph& graph = plan.training().graph;
  const Layers layers = find_layers(graph);
  std::vector<StageReport> stages;
  for (std::size_t route = 0; route < plan.resolved.routes.size();
       ++route)  // (DualPipe's second is the first's mirror)
    for (const Place& place : schedule.routes[route]) {
      const auto stage = static_cast<std::int64_t>(stages.size());
      StageReport& made = stages.emplace_back();
      made.stage = stage;
      made.rank = place.rank;
      made.chunk = place.chunk;
    }
  std::vector<std::set<TensorId>> parameters(stages.size());
  const auto count = [&](OpId op, std::size_t at) {
    const std::string name = graph.name(op);
    const std::string module =
        layers.of[op] >= 0 ? layers.names[static_cast<std::size_t>(layers.of[op])] : name.substr(0, name.find('.'));
    std::vector<std::string>& modules = stages[at].modules;
    if (std::find(modules.begin(), modules.end(), module) == modules.end()) modules.push_back(module);
    for (TensorId input : graph.inputs(op)) {
      const Tensor& tensor = graph.tensors()[input];
      if (tensor.kind != TensorKind::Parameter || !parameters[at].insert(input).second) continue;
      std::int64_t elements = 1;
      for (std::int64_t size : tensor.type.shape) elements *= size;
      stages[at].parameters += elements;
    }
  };
  for (const RouteChoice& route : plan.resolved.routes)
    for (OpId op : graph.ops().ids()) {
      if (graph.ops()[op].phase != Phase::Forward) break;
      count(op, static_cast<std::size_t>(route.first + route.stage[op]));
    }
  const Program& program = compiled.program;
  for (std::size_t i = 0; i < stages.size(); ++i)
    for (const bool backward : {false, true})
      for (InstructionId id : backward ? program.stages[i].backward : program.stages[i].forward)
        if (const auto* send = std::get_if<Send>(&program.instructions[id].what))
          (backward ? stages[i].sent_backward : stages[i].sent_forward) += bytes_sent(program, graph, *send);
  return stages;
}

std::vector<SyncReport> sync_reports(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  const Graph& graph = plan.training().graph;
  const auto ranks = static_cast<std::size_t>(compiled.schedule.ranks);
  using Key = std::tuple<Cargo, bool, std::string, Collective, DType>;
  std::map<Key, SyncReport> found;
  std::map<MeshId, std::vector<std::int32_t>> ranks_of;
  const auto add = [&](const Instruction& instruction, bool in_backward) {
    const auto* communicate = std::get_if<Communicate>(&instruction.what);
    if (!communicate || communicate->collective == Collective::Slice) return;
    const Buffer& buffer = program.buffers[communicate->inputs[0]];
    const Cargo cargo = cargo_of(graph, buffer.tensor);
    if (cargo == Cargo::Scalars) return;
    const std::string group = program.meshes[instruction.mesh].names_of(communicate->axes);
    const DType dtype = sent_type(program, graph, *communicate, communicate->inputs[0]);
    SyncReport& sync = found[{cargo, !in_backward, group, communicate->collective, dtype}];
    if (sync.count.empty()) {
      sync = {cargo, communicate->collective, group, dtype, in_backward, {}, {}};
      sync.count.resize(ranks);
      sync.bytes.resize(ranks);
    }
    const auto [known, fresh] = ranks_of.try_emplace(instruction.mesh);
    if (fresh) known->second = ranks_of_mesh(compiled, instruction.mesh);
    for (std::int32_t rank : known->second) {
      ++sync.count[static_cast<std::size_t>(rank)];
      sync.bytes[static_cast<std::size_t>(rank)] += bytes_sent(program, graph, *communicate);
    }
  };
  for (const StageProgram& stage : program.stages)
    for (InstructionId id : stage.backward)
      if (program.instructions[id].guard == Guard::LastMicroBatch) add(program.instructions[id], true);
  for (InstructionId id : program.step) add(program.instructions[id], false);
  std::vector<SyncReport> syncs;
  for (auto& [key, sync] : found) syncs.push_back(std::move(sync));
  return syncs;
}

// "1.88 GiB" if all ranks are equal, else the range over them.
std::string over_ranks(const std::vector<Bytes>& bytes) {
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  if (least->value == most->value || human(*least) == human(*most)) return human(*most);
  return fmt::format("{} to {}", human(*least), human(*most));
}
std::string over_ranks(const std::vector<std::int64_t>& counts) {
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return *least == *most ? grouped(*most) : fmt::format("{} to {}", grouped(*least), grouped(*most));
}

std::string_view short_name(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return "AR";
    case Collective::ReduceScatter:
      return "RS";
    case Collective::AllGather:
      return "AG";
    case Collective::AllToAll:
      return "A2A";
    case Collective::HaloExchange:
      return "HX";
    case Collective::HaloSum:
      return "HS";
    case Collective::Shift:
      return "SH";
    case Collective::Slice:
      return "slice";
  }
  return "?";
}

// Collectives of an operator in one direction, one per line.
std::string moves_of(const OperatorRow& row, bool backward) {
  std::vector<std::string> lines;
  std::vector<int> times;
  for (const OperatorMove& move : row.moves) {
    if (move.backward != backward) continue;
    std::string mark = move.cargo == Cargo::Weights ? " w" : move.cargo == Cargo::Gradients ? " g" : "";
    if (mark.empty() && move.of == "grad_weight") mark = " dW";
    std::string line = fmt::format("{} {} {}{}", short_name(move.collective), move.group, human(move.bytes), mark);
    if (!lines.empty() && lines.back() == line) {
      ++times.back();
      continue;
    }
    lines.push_back(std::move(line));
    times.push_back(1);
  }
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (times[i] > 1) lines[i] += fmt::format(" ×{}", times[i]);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// Equal neighbours once: "[1·dp,2048·tp,4096] ×2".
std::string joined_shapes(const std::vector<std::string>& shapes) {
  std::string text;
  for (std::size_t i = 0; i < shapes.size();) {
    std::size_t end = i;
    while (end < shapes.size() && shapes[end] == shapes[i]) ++end;
    text += text.empty() ? "" : " ";
    text += shapes[i];
    if (end - i > 1) text += fmt::format("×{}", end - i);
    i = end;
  }
  return text;
}

std::string shapes_of(const OperatorRow& row) {
  const std::string in = joined_shapes(row.inputs);
  // Outputs besides the result — statistics for the backward pass — are left out, except the parts of a split.
  const std::string out = row.kind == "split" || row.outputs.empty() ? joined_shapes(row.outputs) : row.outputs.front();
  std::string text = in;
  for (const std::string& weight : row.weights) text += fmt::format("{}w{}", text.empty() ? "" : " ", weight);
  if (row.weights.empty() && !row.inputs.empty() && out == row.inputs.front() && in.starts_with(out) &&
      std::all_of(row.inputs.begin(), row.inputs.end(), [&](const std::string& shape) { return shape == out; }))
    return in;
  return fmt::format("{} → {}", text, out.empty() ? "[]" : out);
}

// Mesh axes that split the samples of nearly every operator: printed once.
std::set<std::string> sample_axes(const std::vector<OperatorRow>& rows) {
  std::map<std::string, std::size_t> count;
  for (const OperatorRow& row : rows)
    for (const OperatorSplit& split : row.splits)
      if (split.samples)
        for (const std::string& axis : split.over) ++count[axis];
  std::set<std::string> axes;
  for (const auto& [axis, times] : count)
    if (3 * times >= 2 * rows.size()) axes.insert(axis);
  return axes;
}

std::string splits_of(const OperatorRow& row, const std::set<std::string>& common_axes, bool show_recomputed) {
  std::vector<std::string> parts;
  for (const OperatorSplit& split : row.splits) {
    const bool all_common =
        split.samples && std::all_of(split.over.begin(), split.over.end(),
                                     [&](const std::string& axis) { return common_axes.contains(axis); });
    if (all_common) continue;
    parts.push_back(
        fmt::format("{}{}/{}", split.role.empty() ? "" : split.role + ": ", split.axis, fmt::join(split.over, "·")));
  }
  if (row.recomputed && show_recomputed) parts.empty() ? void(parts.emplace_back("↻")) : void(parts.back() += " ↻");
  return fmt::format("{}", fmt::join(parts, "\n"));
}

std::string section_title(const OperatorSection& section) {
  if (!section.layers.empty()) return folded_names(section.layers);
  return section.name.empty() ? section.rows.front().name + (section.rows.size() > 1 ? " …" : "") : section.name;
}

std::string section_text(const OperatorSection& section, bool pipelined) {
  const std::set<std::string> common_axes = sample_axes(section.rows);
  std::string title = section_title(section);
  if (pipelined) title += fmt::format(" · stage{} {}", section.stages.size() > 1 ? "s" : "", ranges(section.stages));
  const bool all_recomputed =
      std::all_of(section.rows.begin(), section.rows.end(), [](const OperatorRow& row) { return row.recomputed; });
  if (all_recomputed) title += " · recomputed in the backward pass";
  if (!common_axes.empty()) title += fmt::format(" · samples over {}", fmt::join(common_axes, "·"));
  constexpr std::size_t kMostRows = 40;
  Table table{{{.most = 24}, {.most = 24}, {}, {.most = 24}, {.most = 24}}};
  table.add({"operator", "split", "local shapes", "forward", "backward"});
  for (std::size_t i = 0; i < section.rows.size() && i < kMostRows; ++i) {
    const OperatorRow& row = section.rows[i];
    table.add({row.name, splits_of(row, common_axes, !all_recomputed), shapes_of(row), moves_of(row, false),
               moves_of(row, true)});
  }
  // Shapes take the width that the other columns leave.
  std::size_t others = 2;
  for (std::size_t column : {0, 1, 3, 4}) others += table.width(column) + 2;
  table.columns[2].most = std::max<std::size_t>(24, kPageColumns - others);
  std::string text = title + "\n" + table.print();
  if (section.rows.size() > kMostRows)
    text += fmt::format("  … {} more operators (--json lists all)\n", section.rows.size() - kMostRows);
  return text;
}

// Explains the marks that the sections use.
std::string legend(const StrategyReport& report) {
  std::set<Collective> used;
  std::set<std::string> marks;
  std::string sample;  // an axis for the example
  for (const OperatorSection& section : report.sections)
    for (const OperatorRow& row : section.rows) {
      for (const OperatorSplit& split : row.splits)
        if (sample.empty() || !split.samples) sample = split.over.front();
      if (row.recomputed) marks.insert("↻ computed again in the backward pass");
      for (const OperatorMove& move : row.moves) {
        used.insert(move.collective);
        if (move.cargo == Cargo::Weights) marks.insert("w: of weights");
        if (move.cargo == Cargo::Gradients) marks.insert("g: of weight gradients");
        if (move.cargo == Cargo::Activations && move.of == "grad_weight") marks.insert("dW: for the weight gradient");
      }
    }
  if (sample.empty()) return "\n";
  std::vector<std::string> words = {fmt::format("k/{0}: axis k over {0}", sample),
                                    fmt::format("n·{0}: n here, times {0} in all", sample),
                                    fmt::format("Σ{0}: a partial sum over {0}", sample)};
  for (Collective collective : used) words.push_back(fmt::format("{} {}", short_name(collective), name_of(collective)));
  words.insert(words.end(), marks.begin(), marks.end());
  return wrapped(words, "; ", "  ") + "\n";
}

// Whether a section's operators need no table: only samples are split, without communication.
bool plain(const OperatorSection& section, const std::set<std::string>& common_axes) {
  return std::all_of(section.rows.begin(), section.rows.end(), [&](const OperatorRow& row) {
    return row.moves.empty() && splits_of(row, common_axes, false).empty();
  });
}

// Sections that only split samples, one line each.
std::string plain_sections(const std::vector<const OperatorSection*>& sections) {
  if (sections.empty()) return "";
  Table table{{{.most = 40}, {.right = true}, {.most = 60}}};
  table.add({"only samples are split", "operators", "local shapes, in → out"});
  constexpr std::size_t kMost = 24;
  for (std::size_t i = 0; i < sections.size() && i < kMost; ++i) {
    const OperatorSection& section = *sections[i];
    const OperatorRow &first = section.rows.front(), &last = section.rows.back();
    table.add({section_title(section), fmt::format("{}", section.rows.size()),
               fmt::format("{} → {}", first.inputs.empty() ? "[]" : first.inputs.front(),
                           last.outputs.empty() ? "[]" : last.outputs.front())});
  }
  if (sections.size() > kMost) table.add({fmt::format("… {} more", sections.size() - kMost), "", ""});
  return table.print() + "\n";
}

// Every kind of layer and the operators outside of layers, limited to a few pages.
std::string operators_text(const StrategyReport& report, bool pipelined) {
  constexpr std::size_t kMostRows = 80;
  std::string text = "operators: one micro-batch on one device; bytes sent per device\n" + legend(report);
  std::size_t rows = 0, left = 0;
  std::vector<const OperatorSection*> only_samples;
  for (const OperatorSection& section : report.sections) {
    if (plain(section, sample_axes(section.rows))) {
      only_samples.push_back(&section);
      continue;
    }
    if (rows > 0 && rows + section.rows.size() > kMostRows) {
      left += section.rows.size();
      continue;
    }
    rows += section.rows.size();
    text += section_text(section, pipelined) + "\n";
  }
  if (left > 0) text += fmt::format("… {} operators in other sections (--json lists all)\n\n", left);
  return text + plain_sections(only_samples);
}

std::string groups_text(const StrategyReport& report) {
  if (report.groups.empty()) return "";
  Table table{{{}, {.right = true}, {.right = true}, {}, {}, {.right = true}}};
  table.add({"group", "size", "groups", "first group", "links", "each way, alone / all at once"});
  for (const GroupKind& kind : report.groups)
    table.add({label_of(kind), fmt::format("{}", kind.size), grouped(kind.count),
               kind.degree == kPipelineAxis && kind.first.size() <= 4 ? fmt::format("{}", fmt::join(kind.first, " → "))
                                                                      : short_list(kind.first),
               links_of(kind), fmt::format("{} / {}", human(kind.alone), human(kind.together))});
  // Links take the width that the other columns leave.
  std::size_t others = 2;
  for (std::size_t column : {0, 1, 2, 3, 5}) others += table.width(column) + 2;
  table.columns[4].most = std::max<std::size_t>(24, kPageColumns - others);
  return table.print() + "\n";
}

std::string stages_text(const Plan& plan, const StrategyReport& report, const Schedule& schedule) {
  Table table{{{}, {.most = 60}, {.right = true}, {.right = true}, {.right = true}}};
  table.add({"stage", "modules", "parameters", "sends forward", "backward, per micro-batch"});
  constexpr std::size_t kMost = 16;
  for (std::size_t i = 0; i < report.stages.size(); ++i) {
    if (report.stages.size() > kMost && i == kMost / 2) table.add({"⋮", "", ""});
    if (report.stages.size() > kMost && i >= kMost / 2 && i + 4 < report.stages.size()) continue;
    const StageReport& stage = report.stages[i];
    std::string name = fmt::format("{}", stage.stage);
    if (schedule.chunks > 1) name += fmt::format(" (rank {}, chunk {})", stage.rank, stage.chunk);
    std::vector<std::string> layers;
    // Layers fold; modules outside of them stay in order around them.
    std::string text;
    for (const std::string& module : stage.modules) {
      const std::size_t dot = module.rfind('.');
      const bool layer =
          dot != std::string::npos || (!module.empty() && module.find_first_not_of("0123456789") == std::string::npos);
      if (layer) {
        layers.push_back(module);
        continue;
      }
      if (!layers.empty()) text += (text.empty() ? "" : ", ") + folded_names(std::exchange(layers, {}));
      text += (text.empty() ? "" : ", ") + module;
    }
    if (!layers.empty()) text += (text.empty() ? "" : ", ") + folded_names(layers);
    const auto sent = [](Bytes bytes) { return bytes.value == 0 ? std::string("-") : human(bytes); };
    table.add({name, text, human_count(static_cast<double>(stage.parameters)), sent(stage.sent_forward),
               sent(stage.sent_backward)});
  }
  if (plan.resolved.ranks().size() < 2) return "";
  return table.print() + "\n";
}

std::string schedule_text(const Plan& plan, const StrategyReport& report, const Schedule& schedule) {
  const BatchPlan& batch = plan.batch;
  std::string text =
      fmt::format("schedule: {}{} micro-batch{} of {} sample{} per {}", schedule.ranks == 1 ? "" : schedule.name + ", ",
                  grouped(batch.micro_batches), batch.micro_batches == 1 ? "" : "es", grouped(batch.micro_batch),
                  batch.micro_batch == 1 ? "" : "s", batch.shares ? "share" : "replica");
  if (schedule.ranks == 1) return text + "\n\n";
  text += fmt::format("; bubble {:.1f} % of the step with stages alike\n", 100 * report.bubble);
  if (const std::vector<RouteChoice>& routes = plan.resolved.routes; routes.size() > 1)
    for (std::size_t i = 0; i < routes.size(); ++i)
      text += fmt::format("  route {}: {} micro-batch{} through stage{} {}\n", i, grouped(routes[i].micro_batches),
                          routes[i].micro_batches == 1 ? "" : "es", routes[i].stages == 1 ? "" : "s",
                          routes[i].stages == 1
                              ? fmt::format("{}", routes[i].first)
                              : fmt::format("{} to {}", routes[i].first, routes[i].first + routes[i].stages - 1));
  constexpr std::size_t kActions = 14, kRanks = 6;
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank) {
    if (schedule.actions.size() > kRanks && rank >= kRanks / 2 && rank + 2 < schedule.actions.size()) {
      if (rank == kRanks / 2) text += "  ⋮\n";
      continue;
    }
    const std::vector<Action>& actions = schedule.actions[rank];
    std::vector<std::string> shown;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (shown.size() == kActions) {
        shown.emplace_back("…");
        break;
      }
      std::size_t end = i + 1;  // a run of three or more: "F0…F11"
      while (end < actions.size() && actions[end].body == actions[i].body && actions[end].chunk == actions[i].chunk &&
             actions[end].micro_batch == actions[end - 1].micro_batch + 1)
        ++end;
      shown.push_back(end - i >= 3 ? fmt::format("{}…{}", name_of(actions[i]), name_of(actions[end - 1]))
                                   : name_of(actions[i]));
      if (end - i >= 3) i = end - 1;
    }
    text += fmt::format("  rank {:<3} {}\n", rank, fmt::join(shown, " "));
  }
  return text + "\n";
}

std::string held_text(const StrategyReport& report) {
  Table table{{{}, {}, {.right = true}, {.most = 88}}};
  table.add({"held", "type", "per device", "how"});
  for (const HeldKind& held : report.held)
    table.add({std::string(name_of(held.kind)), held.types, over_ranks(held.bytes), describe_cuts(held)});
  return table.print() + "\n";
}

std::string syncs_text(const StrategyReport& report) {
  if (report.syncs.empty()) return "";
  Table table{{{}, {}, {}, {.right = true}, {.right = true}, {}}};
  table.add({"once per step", "", "type", "collectives", "sent per device", "when"});
  for (const SyncReport& sync : report.syncs)
    table.add({std::string(name_of(sync.cargo)), fmt::format("{} over {}", name_of(sync.collective), sync.group),
               std::string(name_of(sync.dtype)), over_ranks(sync.count), over_ranks(sync.bytes),
               sync.in_backward ? "in the last backward pass" : "after the last backward pass"});
  return table.print() + "\n";
}

}  // namespace

StrategyReport report_strategy(const Plan& plan, const CompiledStrategy& compiled) {
  StrategyReport report;
  report.groups = group_kinds(plan);
  report.stages = stage_reports(plan, compiled);
  report.sections = operator_sections(plan, compiled);
  report.held = held_kinds(plan, compiled);
  report.memory = memory_of(plan, compiled);
  const Playback playback = play(compiled.schedule).value();
  report.bubble = playback.bubble_share();
  for (const RankPlay& rank : playback.ranks) report.in_flight.push_back(rank.in_flight);
  report.syncs = sync_reports(plan, compiled);
  report.traffic = traffic_of(plan, compiled);
  return report;
}

std::vector<HeldBytes> memory_of(const Plan& plan, const CompiledStrategy& compiled) {
  const Schedule& schedule = compiled.schedule;
  // In the steady state micro-batches hold what earlier ones held. If a shorter schedule of the same kind has as many
  // in flight, its peak is the same, at a fraction of the cost.
  const std::int32_t fewer = 4 * schedule.ranks * schedule.chunks;
  const Result<Schedule> shorter = schedule.micro_batches > fewer && plan.resolved.routes.size() == 1
                                       ? make_schedule({schedule.name, schedule.ranks, fewer, schedule.chunks})
                                       : Result<Schedule>(error("as short as it can be"));
  if (shorter.ok()) {
    const Result<Playback> all = play(schedule), few = play(*shorter);
    const auto same = [](const RankPlay& a, const RankPlay& b) {
      return a.in_flight == b.in_flight && a.by_chunk == b.by_chunk;
    };
    if (all.ok() && few.ok() &&
        std::equal(all->ranks.begin(), all->ranks.end(), few->ranks.begin(), few->ranks.end(), same))
      return peak_memory(compiled.program, plan.training(), *shorter, compiled.last);
  }
  return peak_memory(compiled.program, plan.training(), schedule, compiled.last);
}

std::string headline(const Plan& plan) {
  const BatchPlan& batch = plan.batch;
  const auto ranks = static_cast<std::int64_t>(plan.ranks().size());
  std::string text = fmt::format("{} on {}: {}\n", plan.job->words.model, plan.job->words.cluster, plan.name);
  const auto line = [&](std::string_view what, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", what, value);
  };
  std::vector<std::string> axes;
  for (const MeshAxis& axis : plan.strategy.mesh.axes) axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  const DeviceSpec& spec = plan.cluster().spec(DeviceId(0));
  line("devices",
       fmt::format(
           "{} × {}{}{}", grouped(plan.cluster().device_count()),
           plan.cluster().homogeneous() ? spec.title : "devices of several kinds",
           plan.cluster().node_count() > 1 ? fmt::format(" in {} nodes", grouped(plan.cluster().node_count())) : "",
           ranks < plan.cluster().device_count() ? fmt::format(", {} of them used", grouped(ranks)) : ""));
  if (!axes.empty()) line("mesh", fmt::format("{}, major first", fmt::join(axes, " · ")));
  std::string parameters =
      fmt::format("{} ({})", human_count(static_cast<double>(plan.model->parameters)), grouped(plan.model->parameters));
  if (plan.model->vocabulary.padded())
    parameters += fmt::format("; {} as stored, the vocabulary padded from {} to {}", grouped(plan.stored_parameters()),
                              grouped(plan.model->vocabulary.published), grouped(plan.model->vocabulary.stored));
  if (const std::int64_t frozen = plan.frozen_parameters(); frozen > 0)
    parameters += fmt::format("; {} of them frozen", human_count(static_cast<double>(frozen)));
  line("parameters", parameters);
  std::string samples = fmt::format("{} sample{}", grouped(batch.global_batch), batch.global_batch == 1 ? "" : "s");
  if (plan.model->info.counts_tokens && plan.model->info.seq > 0)
    samples += fmt::format(" of {} tokens = {} tokens", grouped(plan.model->info.seq),
                           human_count(static_cast<double>(plan.tokens_per_step())));
  const std::string shares = batch.shares ? fmt::format("{} shares of ", grouped(*batch.shares)) : "";
  line("step", fmt::format("{}: micro-batch {} · {}{} replica{} · {} micro-batch{}", samples,
                           grouped(batch.micro_batch), shares, grouped(batch.replicas), batch.replicas == 1 ? "" : "s",
                           grouped(batch.micro_batches), batch.micro_batches == 1 ? "" : "es"));
  const KeptTypes weights = kept_types(plan.training(), Stored::Weights);
  const KeptTypes gradients = kept_types(plan.training(), Stored::Gradients);
  const KeptTypes states = kept_types(plan.training(), Stored::Optimizer);
  std::string precision = fmt::format("{}: {} weights", plan.job->precision.name, weights.names());
  if (!gradients.elements.empty()) precision += fmt::format(", {} gradients", gradients.names());
  precision += fmt::format(", {}{}", name_of(plan.model->options.optimizer),
                           plan.job->precision.masters ? " with f32 masters" : "");
  line("precision", fmt::format("{} = {:.4g}+{:.4g}+{:.4g} bytes per parameter", precision, weights.bytes_each(),
                                gradients.bytes_each(), states.bytes_each()));
  line("stack", fmt::format("{}: {}", plan.stack().name, plan.stack().title));
  return text + "\n";
}

std::string memory_table(const Plan& plan, const Schedule& schedule, const std::vector<HeldBytes>& memory,
                         const std::vector<std::int32_t>& in_flight) {
  Table table{{{},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true}}};
  table.add(
      {"memory at the peak", "weights", "gradients", "optimizer", "activations", "in flight", "buffers", "total"});
  const char* what = schedule.ranks == 1 ? "every device" : schedule.chunks > 1 ? "pipeline rank" : "stage";
  constexpr std::size_t kMost = 10;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    if (memory.size() > kMost && rank >= kMost / 2 && rank + 3 < memory.size()) {
      if (rank == kMost / 2) table.add({"⋮"});
      continue;
    }
    const HeldBytes& held = memory[rank];
    table.add({schedule.ranks == 1 ? what : fmt::format("{} {}", what, rank), human(held.parameters),
               human(held.gradients), human(held.optimizer), human(held.activations),
               fmt::format("{}", in_flight[rank]), human(held.buffers), human(held.total())});
  }
  std::string text = table.print();
  const auto worst = std::max_element(memory.begin(), memory.end(),
                                      [](const HeldBytes& a, const HeldBytes& b) { return a.total() < b.total(); });
  // The smallest device of each pipeline rank would need one row per kind; the cluster's first kind stands for all.
  const DeviceSpec& spec = plan.cluster().spec(DeviceId(0));
  if (plan.cluster().homogeneous() && spec.memory_usable.value.value > 0)
    text += fmt::format("  {} has {}; the fullest device holds {:.1f} % of it, context and fragmentation not counted\n",
                        spec.title, human(spec.memory_usable.value), 100 * (worst->total() / spec.memory_usable.value));
  return text + "\n";
}

std::string traffic_table(const std::vector<StepTraffic>& traffic, const Schedule& schedule) {
  if (traffic.empty()) return "";
  // Few pipeline ranks: a column each; many: the range.
  const auto ranks = static_cast<std::size_t>(schedule.ranks);
  const bool each = ranks <= 4;
  Table table{{{}, {}, {}, {.right = true}}};
  std::vector<std::string> head = {"sent per device and step", "", "group", "times"};
  const auto add_cells = [&](const std::vector<Bytes>& bytes, std::vector<std::string>& row) {
    if (!each) return row.push_back(over_ranks(bytes));
    for (Bytes one : bytes) row.push_back(one.value == 0 ? "-" : human(one));
  };
  for (std::size_t i = 0; i < (each ? ranks : 1); ++i) {
    table.columns.push_back({.right = true});
    head.push_back(ranks == 1 ? "bytes"
                   : !each    ? "bytes, by pipeline rank"
                              : fmt::format("{} {}", schedule.chunks > 1 ? "rank" : "stage", i));
  }
  table.add(head);
  std::vector<Bytes> all(ranks);
  for (const StepTraffic& row : traffic) {
    std::vector<std::string> cells = {std::string(name_of(row.cargo)), row.how, row.group, over_ranks(row.times)};
    add_cells(row.bytes, cells);
    table.add(std::move(cells));
    for (std::size_t rank = 0; rank < ranks; ++rank) all[rank] += row.bytes[rank];
  }
  std::vector<std::string> cells = {"all", "", "", ""};
  add_cells(all, cells);
  table.add(std::move(cells));
  return table.print() + "\n";
}

std::string describe(const Plan& plan, const CompiledStrategy& compiled, const StrategyReport& report) {
  std::string text = headline(plan);
  text += draw_ranks(plan) + "\n";
  text += groups_text(report);
  text += stages_text(plan, report, compiled.schedule);
  text += operators_text(report, compiled.schedule.stages() > 1);
  text += held_text(report);
  text += syncs_text(report);
  text += schedule_text(plan, report, compiled.schedule);
  text += memory_table(plan, compiled.schedule, report.memory, report.in_flight);
  text += traffic_table(report.traffic, compiled.schedule);
  text += "assumed\n";
  for (const std::string& assumption : plan.assumptions) text += wrapped({assumption}, "", "  ");
  return text;
}

}  // namespace weft
