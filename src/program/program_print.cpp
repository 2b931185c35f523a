// Programs as text: print, and the view of one device.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "program/program_names.h"
#include "program/program_text.h"

namespace weft {
namespace {

using Out = std::back_insert_iterator<std::string>;

// "0…7, 16, 24…56 by 8": runs of at least three in equal steps.
std::string print_devices(const std::vector<DeviceId>& devices) {
  std::string text;
  const auto number = [&](std::size_t i) { return std::int64_t{devices[i].index()}; };
  for (std::size_t i = 0; i < devices.size();) {
    std::size_t last = i;
    const std::int64_t step = i + 1 < devices.size() ? number(i + 1) - number(i) : 0;
    while (step > 0 && last + 1 < devices.size() && number(last + 1) - number(last) == step) ++last;
    if (last < i + 2) last = i;
    if (i > 0) text += ", ";
    text += std::to_string(number(i));
    if (last > i) text += fmt::format("…{}", number(last));
    if (last > i && step > 1) text += fmt::format(" by {}", step);
    i = last + 1;
  }
  return text;
}

std::string print_buffers(std::span<const BufferId> buffers) {
  std::string text;
  for (BufferId id : buffers) text += fmt::format("{}b{}", text.empty() ? "" : ", ", id.index());
  return text;
}

std::string print_waits(std::span<const InstructionId> after) {
  std::string text;
  for (InstructionId id : after) text += fmt::format("{}#{}", text.empty() ? " after " : ", ", id.index());
  return text;
}

// "b:dp n:tp[outer 2] partial(cp:0,1)"
std::string print_sharding(const OpSharding& sharding, const Signature& signature, const Mesh& mesh) {
  std::string text;
  const Out out = std::back_inserter(text);
  bool blocks = false;
  for (std::size_t a = 0; a < sharding.axes.size(); ++a) {
    const std::int64_t outer = sharding.outer.empty() ? 1 : sharding.outer[a];
    if (sharding.axes[a].empty() && outer == 1) continue;
    fmt::format_to(out, " {}", signature.axes[a].name);
    if (!sharding.axes[a].empty()) fmt::format_to(out, ":{}", print(sharding.axes[a], mesh));
    if (outer != 1) fmt::format_to(out, "[outer {}]", outer);
    blocks = blocks || outer != 1;
  }
  if (sharding.partial != 0 || sharding.partial_inputs != 0) {
    std::vector<std::string> axes, inputs;
    for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
      if (sharding.partial >> axis & 1u) axes.push_back(mesh.axes()[axis].name);
    for (int i = 0; i < 64; ++i)
      if (sharding.partial_inputs >> i & 1u) inputs.push_back(std::to_string(i));
    const bool all = inputs.size() == 64;
    fmt::format_to(out, " partial({}:{})", fmt::join(axes, ","),
                   all ? "all" : fmt::format("{}", fmt::join(inputs, ",")));
  }
  if (!sharding.outer.empty() && !blocks) text += " outer 1";
  return text;
}

// " as bf16 once padded staged": how it goes over the wire.
std::string print_sent(const Communicate& what) {
  return fmt::format(
      "{}{}{}{}", what.wire ? fmt::format(" as {}", name_of(*what.wire)) : "", what.tokens_once ? " once" : "",
      what.parts != Parts::Even ? fmt::format(" {}", name_of(what.parts)) : "", what.staged ? " staged" : "");
}

std::string_view name_of(Guard guard) {
  return guard == Guard::Always ? "" : guard == Guard::FirstMicroBatch ? " first" : " last";
}

class Printer {
 public:
  Printer(const Program& program, const Graph& graph)
      : program_(program), graph_(graph), tensors_(graph, graph.tensors()), ops_(graph, graph.ops()) {}

  std::string run() {
    fmt::format_to(out_, "program of {}\n", graph_.name());
    for (MeshId id : program_.meshes.ids()) {
      fmt::format_to(out_, "mesh m{}", id.index());
      for (const MeshAxis& axis : program_.meshes[id].axes()) fmt::format_to(out_, " {}={}", axis.name, axis.size);
      fmt::format_to(out_, ": {}\n", print_devices(program_.meshes[id].devices()));
    }
    if (program_.world.valid()) fmt::format_to(out_, "world m{}\n", program_.world.index());
    for (BufferId id : program_.buffers.ids()) print_buffer(id);
    for (TransferId id : program_.transfers.ids())
      fmt::format_to(out_, "transfer t{}: b{} -> b{}\n", id.index(), program_.transfers[id].from.index(),
                     program_.transfers[id].to.index());
    IdVec<InstructionId, char> placed(program_.instructions.size(), 0);
    const auto body = [&](const std::vector<InstructionId>& list) {
      for (InstructionId id : list) {
        if (placed[id]++)
          fmt::format_to(out_, "  #{} again\n", id.index());
        else
          print_instruction(id);
      }
    };
    for (std::size_t stage = 0; stage < program_.stages.size(); ++stage) {
      fmt::format_to(out_, "stage {} forward:\n", stage);
      body(program_.stages[stage].forward);
      fmt::format_to(out_, "stage {} backward:\n", stage);
      body(program_.stages[stage].backward);
    }
    text_ += "step:\n";
    body(program_.step);
    if (std::find(placed.begin(), placed.end(), 0) != placed.end()) text_ += "nowhere:\n";
    for (InstructionId id : program_.instructions.ids())
      if (!placed[id]) print_instruction(id);
    return std::move(text_);
  }

 private:
  void print_buffer(BufferId id) {
    const Buffer& buffer = program_.buffers[id];
    fmt::format_to(out_, "buffer b{} {} {} m{}", id.index(), name_of(buffer.kind), tensors_.written(buffer.tensor),
                   buffer.layout.mesh.index());
    const std::string layout = print(buffer.layout, program_.meshes[buffer.layout.mesh]);
    if (!layout.empty() && layout.front() != ' ') text_ += ' ';
    text_ += layout;
    if (buffer.storage != id) fmt::format_to(out_, " updates b{}", buffer.storage.index());
    if (buffer.memory != buffer.storage) fmt::format_to(out_, " views b{}", buffer.memory.index());
    if (buffer.narrow) fmt::format_to(out_, " as {}", name_of(*buffer.narrow));
    if (buffer.on_host) text_ += " on host";
    text_ += '\n';
  }

  void print_instruction(InstructionId id) {
    const Instruction& instruction = program_.instructions[id];
    const bool free = std::holds_alternative<Free>(instruction.what);
    fmt::format_to(out_, "  #{} m{}", id.index(), instruction.mesh.index());
    if (!free || instruction.stream != Stream::Compute) fmt::format_to(out_, " {}", name_of(instruction.stream));
    fmt::format_to(out_, "{}{}: ", name_of(instruction.guard), instruction.weight_part ? " weight" : "");
    std::visit([&](const auto& what) { print_what(what, instruction.mesh); }, instruction.what);
    text_ += print_waits(instruction.after);
    text_ += '\n';
  }
  void print_results(std::span<const BufferId> outputs) {
    if (!outputs.empty()) fmt::format_to(out_, "{} = ", print_buffers(outputs));
  }
  void print_what(const Compute& what, MeshId on) {
    print_results(what.outputs);
    fmt::format_to(out_, "op {}({})", ops_.written(what.op), print_buffers(what.inputs));
    const std::string split =
        print_sharding(what.sharding, graph_.signature(what.op), program_.meshes[what.sharding.mesh]);
    const bool elsewhere = what.sharding.mesh != on;
    if (!split.empty() || elsewhere) text_ += " by";
    if (elsewhere) fmt::format_to(out_, " on m{}", what.sharding.mesh.index());
    text_ += split;
    if (what.products) fmt::format_to(out_, " in {}", name(*what.products));
    if (what.begins) text_ += " begins";
  }
  void print_what(const Communicate& what, MeshId on) {
    print_results(what.outputs);
    fmt::format_to(out_, "{} ", name_of(what.collective));
    if (what.reducer != Reducer::Sum) fmt::format_to(out_, "{} ", name_of(what.reducer));
    fmt::format_to(out_, "over {}({})", program_.meshes[on].names_of(what.axes), print_buffers(what.inputs));
    text_ += print_sent(what);
  }
  void print_what(const Send& what, MeshId) {
    fmt::format_to(out_, "send b{} by t{}", program_.transfers[what.transfer].from.index(), what.transfer.index());
  }
  void print_what(const Receive& what, MeshId) {
    fmt::format_to(out_, "b{} = receive by t{}", program_.transfers[what.transfer].to.index(), what.transfer.index());
  }
  void print_what(const SumScalars& what, MeshId) {
    print_results(what.outputs);
    text_ += "sum scalars(";
    const BufferId* next = what.inputs.begin();
    for (const std::uint32_t count : what.counts) {
      if (next != what.inputs.begin()) text_ += "; ";
      text_ += print_buffers({next, count});
      next += count;
    }
    text_ += ')';
  }
  void print_what(const Copy& what, MeshId) {
    fmt::format_to(out_, "b{} = copy(b{})", what.to.index(), what.from.index());
  }
  void print_what(const Combine& what, MeshId) {
    print_results(what.outputs);
    fmt::format_to(out_, "combine {}({})", name_of(what.reducer), print_buffers(what.inputs));
  }
  void print_what(const Wait&, MeshId) { text_ += "wait"; }
  void print_what(const Free& what, MeshId) { fmt::format_to(out_, "free b{}", what.buffer.index()); }

  const Program& program_;
  const Graph& graph_;
  const NameTable<TensorId> tensors_;
  const NameTable<OpId> ops_;
  std::string text_;
  const Out out_ = std::back_inserter(text_);
};

// The program as one device sees it.
class DevicePrinter {
 public:
  DevicePrinter(const Program& program, const Graph& graph, DeviceId device)
      : program_(program), graph_(graph), device_(device), position_(program.meshes.size()) {
    for (MeshId mesh : program.meshes.ids()) position_[mesh] = program.meshes[mesh].position_of(device);
  }

  std::string run() {
    fmt::format_to(out_, "device {}\n", device_.index());
    for (MeshId id : program_.meshes.ids()) {
      if (position_[id] < 0) continue;
      fmt::format_to(out_, "in mesh m{}:", id.index());
      const Mesh& mesh = program_.meshes[id];
      for (std::size_t axis = 0; axis < mesh.axes().size(); ++axis)
        fmt::format_to(out_, " {} {} of {}", mesh.axes()[axis].name,
                       mesh.coordinate(position_[id], static_cast<int>(axis)), mesh.axes()[axis].size);
      text_ += '\n';
    }
    for (std::size_t stage = 0; stage < program_.stages.size(); ++stage) {
      body(fmt::format("stage {} forward", stage), program_.stages[stage].forward);
      body(fmt::format("stage {} backward", stage), program_.stages[stage].backward);
    }
    body("step", program_.step);
    return std::move(text_);
  }

 private:
  bool plays(InstructionId id) const { return position_[program_.instructions[id].mesh] >= 0; }

  void body(std::string_view name, const std::vector<InstructionId>& list) {
    if (std::none_of(list.begin(), list.end(), [&](InstructionId id) { return plays(id); })) return;
    fmt::format_to(out_, "{}:\n", name);
    for (InstructionId id : list)
      if (plays(id)) print_instruction(id);
  }

  // "b3 layers.0.mlp.up.y bf16[2,8,512]", of those that the device holds.
  std::string held(std::span<const BufferId> buffers) const {
    std::string text;
    for (BufferId id : buffers) {
      const Buffer& buffer = program_.buffers[id];
      const int position = position_[buffer.layout.mesh];
      if (position < 0) continue;
      text += fmt::format("{}b{} {} {}[{}]{}", text.empty() ? "" : ", ", id.index(), graph_.name(buffer.tensor),
                          name_of(stored_type(program_, graph_, id)),
                          fmt::join(local_shape(buffer.layout, program_.meshes[buffer.layout.mesh], position), ","),
                          buffer.on_host ? " on host" : "");
    }
    return text;
  }

  void print_instruction(InstructionId id) {
    const Instruction& instruction = program_.instructions[id];
    const bool free = std::holds_alternative<Free>(instruction.what);
    fmt::format_to(out_, "  #{}", id.index());
    if (!free) fmt::format_to(out_, " {}", name_of(instruction.stream));
    fmt::format_to(out_, "{}{}: ", name_of(instruction.guard), instruction.weight_part ? " weight" : "");
    const std::string writes = held(writes_of(program_, instruction)), reads = held(reads_of(program_, instruction));
    if (!writes.empty()) fmt::format_to(out_, "{} = ", writes);
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
      fmt::format_to(out_, "{} {}", weft::name_of(graph_.kind(compute->op)), graph_.name(compute->op));
      if (compute->products) fmt::format_to(out_, " in {}", name(*compute->products));
      if (compute->begins) text_ += " begins";
    } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      const Mesh& mesh = program_.meshes[instruction.mesh];
      std::vector<DeviceId> group;
      for (int member : mesh.group(position_[instruction.mesh], communicate->axes))
        group.push_back(mesh.devices()[static_cast<std::size_t>(member)]);
      fmt::format_to(out_, "{} ", name_of(communicate->collective));
      if (communicate->reducer != Reducer::Sum) fmt::format_to(out_, "{} ", name_of(communicate->reducer));
      fmt::format_to(out_, "over {}", mesh.names_of(communicate->axes));
      if (communicate->collective != Collective::Slice) fmt::format_to(out_, " {{{}}}", print_devices(group));
      text_ += print_sent(*communicate);
    } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
      const Transfer& transfer = program_.transfers[send->transfer];
      fmt::format_to(out_, "send t{} to m{}", send->transfer.index(),
                     program_.buffers[transfer.to].layout.mesh.index());
    } else if (const auto* receive = std::get_if<Receive>(&instruction.what)) {
      const Transfer& transfer = program_.transfers[receive->transfer];
      fmt::format_to(out_, "receive t{} from m{}", receive->transfer.index(),
                     program_.buffers[transfer.from].layout.mesh.index());
    } else if (std::holds_alternative<SumScalars>(instruction.what)) {
      text_ += "sum scalars";
    } else if (std::holds_alternative<Copy>(instruction.what)) {
      text_ += "copy";
    } else if (const auto* combine = std::get_if<Combine>(&instruction.what)) {
      fmt::format_to(out_, "combine {}", name_of(combine->reducer));
    } else if (std::holds_alternative<Wait>(instruction.what)) {
      text_ += "wait";
    }
    if (const auto* released = std::get_if<Free>(&instruction.what))
      fmt::format_to(out_, "free {}", held({&released->buffer, 1}));
    else if (!std::holds_alternative<Receive>(instruction.what) && !std::holds_alternative<Wait>(instruction.what))
      fmt::format_to(out_, " ({})", reads);
    std::vector<InstructionId> waits;
    for (InstructionId before : instruction.after)
      if (plays(before)) waits.push_back(before);
    text_ += print_waits(waits);
    text_ += '\n';
  }

  const Program& program_;
  const Graph& graph_;
  const DeviceId device_;
  IdVec<MeshId, int> position_;  // −1: not a member
  std::string text_;
  const Out out_ = std::back_inserter(text_);
};

}  // namespace

std::string print(const Program& program, const Graph& graph) { return Printer(program, graph).run(); }

std::string print_for(const Program& program, const Graph& graph, DeviceId device) {
  return DevicePrinter(program, graph, device).run();
}

}  // namespace weft
