#include "report/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/strategy.h"
#include "report/table.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Numbers of a body's instructions by kind.
struct BodyCount {
  std::string name;  // "stage 0 forward", "step"
  std::int64_t compute = 0, collectives = 0, sends = 0, receives = 0, frees = 0, others = 0;

  std::int64_t all() const { return compute + collectives + sends + receives + frees + others; }
};

bool plays_on(const ProgramClass& of, const Program& program, const Instruction& instruction) {
  return instruction.mesh == program.world ||
         std::find(of.meshes.begin(), of.meshes.end(), instruction.mesh) != of.meshes.end();
}

BodyCount count(std::string name, const std::vector<InstructionId>& body, const ProgramClass& of,
                const Program& program) {
  BodyCount sum{std::move(name)};
  for (InstructionId id : body) {
    const Instruction& instruction = program.instructions[id];
    if (!plays_on(of, program, instruction)) continue;
    if (std::holds_alternative<Compute>(instruction.what))
      ++sum.compute;
    else if (std::holds_alternative<Communicate>(instruction.what))
      ++sum.collectives;
    else if (std::holds_alternative<Send>(instruction.what))
      ++sum.sends;
    else if (std::holds_alternative<Receive>(instruction.what))
      ++sum.receives;
    else if (std::holds_alternative<Free>(instruction.what))
      ++sum.frees;
    else
      ++sum.others;
  }
  return sum;
}

// The bodies in which the class has instructions: those of its stages, and those in which it receives.
std::vector<std::pair<std::string, const std::vector<InstructionId>*>> bodies_of(
    const ProgramClass& of, const Program& program, std::optional<std::int64_t> only_stage = std::nullopt) {
  std::vector<std::pair<std::string, const std::vector<InstructionId>*>> bodies;
  for (std::size_t body = 0; body + 1 < body_count(program); ++body) {
    const auto stage = static_cast<std::int64_t>(body / 2);
    const std::vector<InstructionId>& list = body_at(program, body);
    const bool own = std::find(of.stages.begin(), of.stages.end(), stage) != of.stages.end();
    const auto played = [&](InstructionId id) { return plays_on(of, program, program.instructions[id]); };
    const bool shown = only_stage ? own && stage == *only_stage : own || std::any_of(list.begin(), list.end(), played);
    if (!shown) continue;
    bodies.emplace_back(fmt::format("stage {} {}", stage, body % 2 == 0 ? "forward" : "backward"), &list);
  }
  bodies.emplace_back("step", &program.step);
  return bodies;
}

// Prints the instructions of one device, with its local shapes.
class Printer {
 public:
  Printer(const Plan& plan, const Program& program, const ProgramClass& of, DeviceId device)
      : graph_(plan.training().graph), program_(program), of_(of), device_(device) {}

  std::string body(std::string_view name, const std::vector<InstructionId>& instructions) const {
    std::string text = fmt::format("{}:\n", name);
    for (InstructionId id : instructions) {
      const Instruction& instruction = program_.instructions[id];
      if (!plays_on(of_, program_, instruction)) continue;
      text += "  " + line(instruction, id) + "\n";
    }
    return text;
  }

  // The buffers that exist before the first body: inputs, parameters and states.
  std::string holds() const {
    std::string text = "holds:\n";
    for (BufferId id : program_.buffers.ids()) {
      const Buffer& buffer = program_.buffers[id];
      if (buffer.memory != id || buffer.kind == BufferKind::Temporary || buffer.kind == BufferKind::Saved) continue;
      if (program_.meshes[buffer.layout.mesh].position_of(device_) < 0) continue;
      text += fmt::format("  {} {} {}\n", typed(id), name_of(buffer.kind), graph_.name(buffer.tensor));
    }
    return text;
  }

 private:
  std::string name(BufferId id) const { return fmt::format("%{}", id.index()); }
  std::string typed(BufferId id) const {
    const Buffer& buffer = program_.buffers[id];
    const Mesh& mesh = program_.meshes[buffer.layout.mesh];
    const int position = std::max(0, mesh.position_of(device_));
    return fmt::format("{} {}[{}]{}", name(id), name_of(stored_type(program_, graph_, id)),
                       fmt::join(local_shape(buffer.layout, mesh, position), ","), partial(buffer.layout, mesh));
  }
  static std::string partial(const Layout& layout, const Mesh& mesh) {
    std::string text;
    for (std::size_t axis = 0; axis < layout.partial.size(); ++axis)
      if (layout.partial[axis]) text += fmt::format(" Σ{}", mesh.axes()[axis].name);
    return text;
  }
  std::string list(std::span<const BufferId> ids, bool with_types) const {
    std::vector<std::string> names;
    for (BufferId id : ids) names.push_back(with_types ? typed(id) : name(id));
    return fmt::format("{}", fmt::join(names, ", "));
  }
  // The rank numbers of the members of its group.
  std::string members(const Mesh& mesh, MeshAxes axes) const {
    std::vector<std::int64_t> devices;
    for (int position : mesh.group(mesh.position_of(device_), axes))
      devices.push_back(mesh.devices()[static_cast<std::size_t>(position)].index());
    return short_list(devices);
  }

  // " to 8": the device at the same position of the other mesh, if the meshes have the same shape.
  std::string peer(std::string_view word, BufferId mine, BufferId other) const {
    const Mesh& here = program_.meshes[program_.buffers[mine].layout.mesh];
    const Mesh& there = program_.meshes[program_.buffers[other].layout.mesh];
    if (here.axes() != there.axes() || here.position_of(device_) < 0) return "";
    return fmt::format("{} {}", word, there.devices()[static_cast<std::size_t>(here.position_of(device_))].index());
  }

  std::string line(const Instruction& instruction, InstructionId id) const {
    std::string text = fmt::format("i{:<5} ", id.index());
    if (instruction.guard == Guard::FirstMicroBatch) text += "[first] ";
    if (instruction.guard == Guard::LastMicroBatch) text += "[last] ";
    const Mesh& mesh = program_.meshes[instruction.mesh];
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      text += fmt::format("{} = {} {}({})", list(compute->outputs, true), name_of(graph_.kind(compute->op)),
                          graph_.name(compute->op), list(compute->inputs, false));
    } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      text += fmt::format("{} = {} over {} {{{}}} ({})", list(communicate->outputs, true),
                          name_of(communicate->collective), mesh.names_of(communicate->axes),
                          members(mesh, communicate->axes), list(communicate->inputs, false));
      if (communicate->collective != Collective::Slice)
        text += fmt::format("  # sends {}{}{}", human(bytes_sent(program_, graph_, *communicate)),
                            communicate->parts == Parts::Even ? "" : fmt::format(", {}", name_of(communicate->parts)),
                            communicate->staged ? ", through a contiguous copy" : "");
    } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
      const Transfer& transfer = program_.transfers[send->transfer];
      text += fmt::format("send t{}{} ({})  # {}, {}", send->transfer.index(), peer(" to", transfer.from, transfer.to),
                          name(transfer.from), graph_.name(program_.buffers[transfer.from].tensor),
                          human(bytes_sent(program_, graph_, *send)));
    } else if (const auto* receive = std::get_if<Receive>(&instruction.what)) {
      const Transfer& transfer = program_.transfers[receive->transfer];
      text += fmt::format("{} = receive t{}{}  # {}", typed(transfer.to), receive->transfer.index(),
                          peer(" from", transfer.to, transfer.from), graph_.name(program_.buffers[transfer.to].tensor));
    } else if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) {
      text += fmt::format("{} = sum scalars ({})", list(sum->outputs, true), list(sum->inputs, false));
    } else if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
      text += fmt::format("{} = combine {} ({})", list(combine->outputs, true), name_of(combine->reducer),
                          list(combine->inputs, false));
    } else if (std::holds_alternative<Wait>(instruction.what)) {
      text += "wait";
    } else if (const auto* free = std::get_if<Free>(&instruction.what)) {
      text += fmt::format("free {}", name(free->buffer));
    }
    if (instruction.stream != Stream::Compute) text += fmt::format("  @{}", name_of(instruction.stream));
    if (!instruction.after.empty()) {
      std::vector<std::string> waits;
      for (InstructionId before : instruction.after) waits.push_back(fmt::format("i{}", before.index()));
      text += fmt::format("  after {}", fmt::join(waits, " "));
    }
    return text;
  }

  const Graph& graph_;
  const Program& program_;
  const ProgramClass& of_;
  DeviceId device_;
};

std::string text_of(const Plan& plan, const CompiledStrategy& compiled, const ProgramClass& of, std::int64_t rank,
                    std::optional<std::int64_t> only_stage) {
  const Program& program = compiled.program;
  const DeviceId device = plan.ranks()[static_cast<std::size_t>(rank)];
  const Printer printer(plan, program, of, device);
  std::string text =
      fmt::format("rank {} of {}; ranks {} play the same code\n", rank, plan.ranks().size(), short_list(of.ranks));
  for (MeshId id : of.meshes) {
    const Mesh& mesh = program.meshes[id];
    std::vector<std::string> at;
    for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis)
      at.push_back(fmt::format("{} {}/{}", mesh.axes()[static_cast<std::size_t>(axis)].name,
                               mesh.coordinate(mesh.position_of(device), axis),
                               mesh.axes()[static_cast<std::size_t>(axis)].size));
    text += fmt::format("mesh m{}: {}\n", id.index(), fmt::join(at, ", "));
  }
  text += printer.holds();
  for (const auto& [name, list] : bodies_of(of, program, only_stage)) text += printer.body(name, *list);
  return text;
}

std::vector<std::int32_t> in_flight_of(const Schedule& schedule) {
  std::vector<std::int32_t> in_flight;
  const Playback playback = play(schedule).value();
  for (const RankPlay& rank : playback.ranks) in_flight.push_back(rank.in_flight);
  return in_flight;
}

}  // namespace

std::vector<ProgramClass> program_classes(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  const std::vector<DeviceId> ranks = plan.ranks();
  std::map<DeviceId, std::vector<MeshId>> meshes;
  for (MeshId id : program.meshes.ids())
    if (id != program.world)
      for (DeviceId device : program.meshes[id].devices()) meshes[device].push_back(id);
  std::map<std::vector<MeshId>, std::size_t> index;
  std::vector<ProgramClass> classes;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<MeshId>& in = meshes[ranks[rank]];
    const auto [known, fresh] = index.try_emplace(in, classes.size());
    if (fresh) classes.push_back({in, {}, {}});
    classes[known->second].ranks.push_back(static_cast<std::int64_t>(rank));
  }
  for (ProgramClass& of : classes)
    for (std::size_t stage = 0; stage < program.stages.size(); ++stage) {
      const StageProgram& code = program.stages[stage];
      const auto played = [&](InstructionId id) {
        const MeshId mesh = program.instructions[id].mesh;
        if (std::holds_alternative<Receive>(program.instructions[id].what)) return false;
        return std::find(of.meshes.begin(), of.meshes.end(), mesh) != of.meshes.end();
      };
      if (std::any_of(code.forward.begin(), code.forward.end(), played))
        of.stages.push_back(static_cast<std::int64_t>(stage));
    }
  return classes;
}

std::string describe_program(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  const std::vector<ProgramClass> classes = program_classes(plan, compiled);
  std::string text = headline(plan);
  text += fmt::format("program: {} instructions, {} buffers, {} transfers for {} ranks in {} class{}\n\n",
                      grouped(static_cast<std::int64_t>(program.instructions.size())),
                      grouped(static_cast<std::int64_t>(program.buffers.size())),
                      grouped(static_cast<std::int64_t>(program.transfers.size())),
                      grouped(static_cast<std::int64_t>(plan.ranks().size())), classes.size(),
                      classes.size() == 1 ? "" : "es");
  Table table{{{},
               {},
               {},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true},
               {.right = true}}};
  table.add({"class", "ranks", "body", "instructions", "compute", "collectives", "sends", "receives", "frees"});
  constexpr std::size_t kMost = 10;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (classes.size() > kMost && i >= kMost / 2 && i + 2 < classes.size()) {
      if (i == kMost / 2) table.add({"⋮"});
      continue;
    }
    bool first = true;
    for (const auto& [name, list] : bodies_of(classes[i], program)) {
      const BodyCount body = count(name, *list, classes[i], program);
      table.add({first ? fmt::format("{}", i) : "", first ? short_list(classes[i].ranks) : "", body.name,
                 grouped(body.all()), grouped(body.compute), grouped(body.collectives), grouped(body.sends),
                 grouped(body.receives), grouped(body.frees)});
      first = false;
    }
  }
  text += table.print() + "\n";
  text += traffic_table(traffic_of(plan, compiled), compiled.schedule);
  text += memory_table(plan, compiled.schedule, memory_of(plan, compiled), in_flight_of(compiled.schedule));
  text += "--rank R or --stage K prints every instruction of a class\n";
  return text;
}

Json program_json(const Plan& plan, const CompiledStrategy& compiled) {
  const Program& program = compiled.program;
  Json json = plan_json(plan);
  json["instructions"] = program.instructions.size();
  json["buffers"] = program.buffers.size();
  json["transfers"] = program.transfers.size();
  json["classes"] = Json::array();
  for (const ProgramClass& of : program_classes(plan, compiled)) {
    Json bodies = Json::array();
    for (const auto& [name, list] : bodies_of(of, program)) {
      const BodyCount body = count(name, *list, of, program);
      bodies.push_back({{"name", body.name},
                        {"instructions", body.all()},
                        {"compute", body.compute},
                        {"collectives", body.collectives},
                        {"sends", body.sends},
                        {"receives", body.receives},
                        {"frees", body.frees}});
    }
    json["classes"].push_back({{"ranks", of.ranks}, {"stages", of.stages}, {"bodies", std::move(bodies)}});
  }
  json["traffic"] = to_json(traffic_of(plan, compiled));
  json["memory"] = Json::array();
  for (const HeldBytes& held : memory_of(plan, compiled)) json["memory"].push_back(to_json(held));
  return json;
}

Result<std::string> rank_text(const Plan& plan, const CompiledStrategy& compiled, std::int64_t rank) {
  for (const ProgramClass& of : program_classes(plan, compiled))
    if (std::binary_search(of.ranks.begin(), of.ranks.end(), rank))
      return text_of(plan, compiled, of, rank, std::nullopt);
  return error("--rank {}: the plan has ranks 0 to {}", rank, plan.ranks().size() - 1);
}

Result<std::string> stage_text(const Plan& plan, const CompiledStrategy& compiled, std::int64_t stage) {
  for (const ProgramClass& of : program_classes(plan, compiled))
    if (std::find(of.stages.begin(), of.stages.end(), stage) != of.stages.end())
      return text_of(plan, compiled, of, of.ranks.front(), stage);
  return error("--stage {}: the plan has stages 0 to {}", stage, compiled.program.stages.size() - 1);
}

}  // namespace weft
