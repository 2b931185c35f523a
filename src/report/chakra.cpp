#include "report/chakra.h"

#include <chakra.pb.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/whole_file.h"
#include "price/communications.h"
#include "program/slice_moves.h"
#include "report/local_compute.h"

namespace weft {
namespace {

// The reader of mlcommons/chakra (src/feeder/et_feeder.cpp:9) loads so many nodes at a time and may leave a node of a
// later window waiting for ever for one that it has forgotten.
constexpr std::int64_t kWindow = 1'048'576;

void set_attribute(chakra::Node& node, const char* name, bool value) {
  chakra::Attribute& made = *node.add_attr();
  made.set_name(name);
  made.set_bool_val(value);
}
chakra::Attribute& attribute(chakra::Node& node, const char* name) {
  chakra::Attribute& made = *node.add_attr();
  made.set_name(name);
  return made;
}

// The collective's number; none: it goes as messages between pairs.
std::optional<chakra::CollectiveType> type_of(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return chakra::ALL_REDUCE;
    case Collective::ReduceScatter:
      return chakra::REDUCE_SCATTER;
    case Collective::AllGather:
      return chakra::ALL_GATHER;
    case Collective::AllToAll:
      return chakra::ALL_TO_ALL;
    case Collective::Slice:
    case Collective::HaloExchange:
    case Collective::HaloSum:
    case Collective::Shift:
      return std::nullopt;
  }
  return std::nullopt;
}

// The elements that one device has in one layout and another is to have in another.
std::int64_t common_elements(const Layout& held, int from, const Layout& wanted, int to, const Mesh& mesh) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < held.dims.size(); ++d) {
    std::int64_t length = 0;
    for (const Range& a : held_ranges(held.dims[d], mesh, from))
      for (const Range& b : held_ranges(wanted.dims[d], mesh, to))
        length += std::max<std::int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
    elements *= length;
  }
  return elements;
}

// What a device sends to and receives from others, in bytes by rank.
struct Messages {
  std::map<std::int64_t, std::int64_t> to, from;
};

}  // namespace

class ChakraTraces::Writer {
 public:
  Writer(const Plan& plan, const PlayedPlan& played, const CostModel& cost)
      : plan_(plan),
        played_(played),
        program_(played.compiled.program),
        graph_(plan.training().graph),
        workload_(played.priced.workload),
        communications_(program_, graph_, plan.cluster(), cost),
        devices_(plan.ranks()) {
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) rank_of_[devices_[rank]] = narrow(rank);
    for (AgentId agent : played.priced.agents.ids())
      for (DeviceId device : played.priced.agents[agent].devices) agent_of_[device] = agent;
    for (InstructionId id : program_.instructions.ids())
      kind_of_.push_back(communications_.kind_of(program_.instructions[id]));
    number_groups();
  }

  Status check() const {
    if (plan_.batch.last_micro_batch != plan_.batch.micro_batch)
      return error("--to chakra: a smaller last micro-batch: the global batch must divide by micro-batch and dp");
    const std::int64_t channels = narrow(program_.transfers.size() + program_.instructions.size());
    if (channels * workload_.micro_batches > std::numeric_limits<std::int32_t>::max())
      return error("--to chakra: {} communications of {} micro-batches: more than tags of 32 bits", channels,
                   workload_.micro_batches);
    return Ok{};
  }

  std::int64_t ranks() const { return narrow(devices_.size()); }

  Result<ChakraTrace> trace_of(std::int64_t rank) const {
    ChakraTrace trace;
    {
      google::protobuf::io::StringOutputStream stream(&trace.text);
      Out out(&stream);
      trace.nodes = write(rank, out);
    }
    if (trace.nodes > kWindow)
      return error("--to chakra: rank {} has {} nodes; readers take {} of a file: fewer micro-batches", rank,
                   trace.nodes, kWindow);
    return trace;
  }

  const std::vector<std::vector<std::int64_t>>& groups() const { return groups_; }

 private:
  using Out = google::protobuf::io::CodedOutputStream;

  static std::int64_t narrow(std::size_t value) { return static_cast<std::int64_t>(value); }

  // A communicator for every set of ranks and stream: on a stream all members issue in one order.
  void number_groups() {
    std::map<std::pair<std::vector<std::int64_t>, Stream>, std::int64_t> known;
    for (InstructionId id : program_.instructions.ids()) {
      const Instruction& instruction = program_.instructions[id];
      const auto* communicate = std::get_if<Communicate>(&instruction.what);
      if (!communicate || !type_of(communicate->collective)) continue;
      const auto stream = instruction.stream;
      if (numbers_.contains({kind_of_[id], stream})) continue;
      std::unordered_map<CommGroupId, std::int64_t>& numbers = numbers_[{kind_of_[id], stream}];
      for (CommGroupId group : communications_.kinds()[kind_of_[id]].group_at) {
        if (numbers.contains(group)) continue;
        std::vector<std::int64_t> members;
        for (std::uint32_t member : communications_.groups()[group].members) members.push_back(rank_at(member));
        std::sort(members.begin(), members.end());
        const auto [found, added] = known.try_emplace({members, stream}, narrow(groups_.size()) + 1);
        if (added) groups_.push_back(members);
        numbers[group] = found->second;
      }
    }
  }

  // The rank at a position of the world's mesh.
  std::int64_t rank_at(std::uint32_t position) const {
    return rank_of_.at(program_.meshes[program_.world].devices()[position]);
  }

  Messages messages_of(const Instruction& instruction, DeviceId device) const {
    Messages messages;
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      const Mesh& mesh = program_.meshes[instruction.mesh];
      const int here = mesh.position_of(device);
      for (int other : mesh.group(here, communicate->axes)) {
        if (other == here) continue;
        const std::int64_t rank = rank_of_.at(mesh.devices()[static_cast<std::size_t>(other)]);
        for (std::size_t i = 0; i < communicate->outputs.size(); ++i) {
          const Layout &before = program_.buffers[communicate->inputs[i]].layout,
                       &after = program_.buffers[communicate->outputs[i]].layout;
          const DType dtype = sent_type(program_, graph_, *communicate, communicate->inputs[i]);
          if (const auto sent = common_elements(before, here, after, other, mesh))
            messages.to[rank] += bytes_of(dtype, sent);
          if (const auto got = common_elements(before, other, after, here, mesh))
            messages.from[rank] += bytes_of(dtype, got);
        }
      }
      return messages;
    }
    const auto* send = std::get_if<Send>(&instruction.what);
    const TransferId id = send ? send->transfer : std::get<Receive>(instruction.what).transfer;
    const Transfer& transfer = program_.transfers[id];
    const Layout &from = program_.buffers[transfer.from].layout, &to = program_.buffers[transfer.to].layout;
    const Mesh &senders = program_.meshes[from.mesh], &receivers = program_.meshes[to.mesh];
    const DType dtype = stored_type(program_, graph_, transfer.from);
    for (const SliceMove& move : moves_of(id)) {
      const DeviceId a = senders.devices()[static_cast<std::size_t>(move.from)],
                     b = receivers.devices()[static_cast<std::size_t>(move.to)];
      if (a == b) continue;
      if (send && a == device) messages.to[rank_of_.at(b)] += bytes_of(dtype, move.elements);
      if (!send && b == device) messages.from[rank_of_.at(a)] += bytes_of(dtype, move.elements);
    }
    return messages;
  }

  const std::vector<SliceMove>& moves_of(TransferId id) const {
    const auto [found, added] = moves_.try_emplace(id);
    if (added) {
      const Transfer& transfer = program_.transfers[id];
      const Layout &from = program_.buffers[transfer.from].layout, &to = program_.buffers[transfer.to].layout;
      found->second = slice_moves(from, program_.meshes[from.mesh], to, program_.meshes[to.mesh]);
    }
    return found->second;
  }

  // Sends and receives of one transfer have one channel, those between the members of a collective another.
  std::int64_t channel_of(InstructionId id) const {
    const Instruction& instruction = program_.instructions[id];
    if (const auto* send = std::get_if<Send>(&instruction.what)) return send->transfer.index();
    if (const auto* receive = std::get_if<Receive>(&instruction.what)) return receive->transfer.index();
    return narrow(program_.transfers.size()) + id.index();
  }

  // What an instruction is in the trace of one device: its nodes, but for what differs from play to play.
  struct Made {
    std::vector<chakra::Node> nodes;  // of messages: the tag is the last attribute
    bool messages = false;
  };

  Made make(InstructionId id, const Task& task, DeviceId device) const {
    const Instruction& instruction = program_.instructions[id];
    Made made;
    const auto add = [&](chakra::NodeType type) -> chakra::Node& {
      chakra::Node& node = made.nodes.emplace_back();
      node.set_name(title_of(program_, graph_, id));
      node.set_type(type);
      set_attribute(node, "is_cpu_op", false);
      return node;
    };
    const auto add_messages = [&] {
      made.messages = true;
      const std::int64_t self = rank_of_.at(device);
      const Messages messages = messages_of(instruction, device);
      const auto add_each = [&](chakra::NodeType type, const std::map<std::int64_t, std::int64_t>& list, bool sends) {
        for (const auto& [other, bytes] : list) {
          chakra::Node& node = add(type);
          attribute(node, "comm_size").set_int64_val(bytes);
          attribute(node, "comm_src").set_int32_val(static_cast<std::int32_t>(sends ? self : other));
          attribute(node, "comm_dst").set_int32_val(static_cast<std::int32_t>(sends ? other : self));
          attribute(node, "comm_tag");
        }
      };
      add_each(chakra::COMM_SEND_NODE, messages.to, true);
      add_each(chakra::COMM_RECV_NODE, messages.from, false);
    };
    if (std::holds_alternative<Send>(instruction.what) || std::holds_alternative<Receive>(instruction.what)) {
      add_messages();
    } else if (!task.work.valid() && !task.meeting.valid()) {
      // A view or a wait: what comes after it waits for what it waits for.
    } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      const auto type = type_of(communicate->collective);
      if (!type) {
        add_messages();
        return made;
      }
      const CommKind& kind = communications_.kinds()[kind_of_[id]];
      const int position = program_.meshes[instruction.mesh].position_of(device);
      const CommGroupId group_id = kind.group_at[static_cast<std::size_t>(position)];
      const CommGroup& group = communications_.groups()[group_id];
      const std::int64_t members = narrow(group.members.size());
      std::int64_t bytes = communications_.payload_of(instruction, group).bytes;
      // ASTRA-sim means a member's input: of an all-gather its part.
      if (*type == chakra::ALL_GATHER) bytes = (bytes + members - 1) / members;
      chakra::Node& node = add(chakra::COMM_COLL_NODE);
      attribute(node, "comm_type").set_int64_val(*type);
      attribute(node, "comm_size").set_int64_val(bytes);
      attribute(node, "comm_priority").set_int32_val(0);
      attribute(node, "pg_name")
          .set_string_val(std::to_string(numbers_.at({kind_of_[id], instruction.stream}).at(group_id)));
    } else if (const auto* copy = std::get_if<Copy>(&instruction.what)) {
      chakra::Node& node = add(program_.buffers[copy->to].on_host ? chakra::MEM_STORE_NODE : chakra::MEM_LOAD_NODE);
      attribute(node, "tensor_size").set_uint64_val(static_cast<std::uint64_t>(bytes_moved(copy->from, device)));
    } else {
      const LocalCompute work = local_work(instruction, device);
      chakra::Node& node = add(chakra::COMP_NODE);
      attribute(node, "num_ops").set_int64_val(static_cast<std::int64_t>(work.flops));
      attribute(node, "tensor_size").set_uint64_val(static_cast<std::uint64_t>(work.bytes));
    }
    return made;
  }

  std::int64_t bytes_moved(BufferId buffer, DeviceId device) const {
    const Layout& layout = program_.buffers[buffer].layout;
    const Mesh& mesh = program_.meshes[layout.mesh];
    std::int64_t elements = 1;
    for (std::int64_t size : local_shape(layout, mesh, mesh.position_of(device))) elements *= size;
    return bytes_of(stored_type(program_, graph_, buffer), elements);
  }

  LocalCompute local_work(const Instruction& instruction, DeviceId device) const {
    const Mesh& mesh = program_.meshes[instruction.mesh];
    if (const auto* compute = std::get_if<Compute>(&instruction.what))
      return local_compute(graph_.signature(compute->op), compute->sharding, mesh, mesh.position_of(device));
    LocalCompute work;
    for (BufferId buffer : reads_of(program_, instruction)) work.bytes += bytes_moved(buffer, device);
    for (BufferId buffer : writes_of(program_, instruction)) work.bytes += bytes_moved(buffer, device);
    return work;
  }

  // Writes the rank's records; returns how many nodes.
  std::int64_t write(std::int64_t rank, Out& out) const {
    const DeviceId device = devices_[static_cast<std::size_t>(rank)];
    const AgentId agent_id = agent_of_.at(device);
    const Agent& agent = workload_.agents[agent_id];
    const auto put = [&](const google::protobuf::MessageLite& record) {
      out.WriteVarint32(static_cast<std::uint32_t>(record.ByteSizeLong()));
      record.SerializeWithCachedSizes(&out);
    };
    chakra::Metadata metadata;
    metadata.set_version("1.0.0");
    for (const auto& [name, value] : {std::pair<const char*, const std::string&>{"model", plan_.job->words.model},
                                      {"cluster", plan_.job->words.cluster},
                                      {"strategy", plan_.name}}) {
      chakra::Attribute& said = *metadata.add_attr();
      said.set_name(name);
      said.set_string_val(value);
    }
    put(metadata);
    std::vector<std::optional<Made>> made(agent.tasks.size());
    using Ids = std::vector<std::uint64_t>;
    std::vector<Ids> ends(agent.tasks.size());  // nodes that complete the last issue of each task
    std::array<Ids, kMaxStreams> last;          // … of each stream
    std::array<Picoseconds, kMaxStreams> computed{};
    const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
    std::uint64_t next = 1;
    for (const Play& play : agent.plays)
      for (TaskId task_id : agent.bodies[play.body]) {
        const Task& task = agent.tasks[task_id];
        if (!is_in(task, ranges[play.body], play.micro_batch)) continue;
        std::optional<Made>& known = made[task_id.index()];
        if (!known) known = make(InstructionId(task.label), task, device);
        Ids waits = last[task.stream];
        for (TaskId before : task.after)
          waits.insert(waits.end(), ends[before.index()].begin(), ends[before.index()].end());
        std::sort(waits.begin(), waits.end());
        waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
        Ids done;
        if (works_in(task, ranges[play.body], play.micro_batch))
          for (chakra::Node& node : known->nodes) {
            done.push_back(next);
            node.set_id(next++);
            node.mutable_data_deps()->Assign(waits.begin(), waits.end());
            if (known->messages)
              node.mutable_attr(node.attr_size() - 1)
                  ->set_int32_val(static_cast<std::int32_t>(
                      channel_of(InstructionId(task.label)) * workload_.micro_batches + play.micro_batch));
            if (node.type() == chakra::COMP_NODE) {
              // Whole microseconds: what is cut off is carried to the next one of the stream.
              Picoseconds& time = computed[task.stream];
              const Picoseconds before = time;
              time += workload_.works[task.work].fixed;
              node.set_duration_micros(static_cast<std::uint64_t>(time / 1'000'000 - before / 1'000'000));
            }
            put(node);
          }
        if (done.empty()) done = std::move(waits);
        last[task.stream] = done;
        ends[task_id.index()] = std::move(done);
      }
    return static_cast<std::int64_t>(next) - 1;
  }

  const Plan& plan_;
  const PlayedPlan& played_;
  const Program& program_;
  const Graph& graph_;
  const Workload& workload_;
  Communications communications_;
  const std::vector<DeviceId> devices_;
  std::unordered_map<DeviceId, std::int64_t> rank_of_;
  std::unordered_map<DeviceId, AgentId> agent_of_;
  IdVec<InstructionId, KindId> kind_of_;
  std::map<std::pair<KindId, Stream>, std::unordered_map<CommGroupId, std::int64_t>> numbers_;
  std::vector<std::vector<std::int64_t>> groups_;
  mutable std::unordered_map<TransferId, std::vector<SliceMove>> moves_;
};

ChakraTraces::ChakraTraces(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
ChakraTraces::~ChakraTraces() = default;
ChakraTraces::ChakraTraces(ChakraTraces&&) noexcept = default;

Result<ChakraTraces> ChakraTraces::of(const Plan& plan, const PlayedPlan& played, const CostModel& cost) {
  auto writer = std::make_unique<Writer>(plan, played, cost);
  WEFT_TRY_OK(writer->check());
  return ChakraTraces(std::move(writer));
}

std::int64_t ChakraTraces::ranks() const { return writer_->ranks(); }
Result<ChakraTrace> ChakraTraces::trace_of(std::int64_t rank) const { return writer_->trace_of(rank); }
const std::vector<std::vector<std::int64_t>>& ChakraTraces::groups() const { return writer_->groups(); }

Result<ChakraCounts> write_chakra(const std::string& prefix, const ChakraTraces& traces,
                                  const std::function<bool(double)>& progress) {
  ChakraCounts counts;
  const auto write = [&](const std::string& path, const std::string& text) -> Status {
    WEFT_TRY_OK(write_whole(path, text));
    ++counts.files;
    counts.bytes += static_cast<std::int64_t>(text.size());
    return Ok{};
  };
  for (std::int64_t rank = 0; rank < traces.ranks(); ++rank) {
    if (progress && !progress(static_cast<double>(rank) / static_cast<double>(traces.ranks())))
      return error("interrupted");
    WEFT_TRY(const ChakraTrace trace, traces.trace_of(rank));
    WEFT_TRY_OK(write(fmt::format("{}.{}.et", prefix, rank), trace.text));
    counts.nodes += trace.nodes;
  }
  std::string groups = "{";
  for (const std::vector<std::int64_t>& members : traces.groups())
    groups +=
        fmt::format("{}\n  \"{}\": [{}]", counts.groups == 0 ? "" : ",", counts.groups + 1, fmt::join(members, ", ")),
        ++counts.groups;
  WEFT_TRY_OK(write(prefix + ".groups.json", groups + "\n}\n"));
  return counts;
}

}  // namespace weft
