#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/units.h"
#include "report/local_compute.h"
#include "report/table.h"
#include "report/timeline_columns.h"
#include "report/traffic.h"

namespace weft {
namespace {

// Threads of a process: micro-batches, then the streams, then the host.
constexpr int kBodies = 0, kHost = kStreams + 1;
int thread_of(const Task& task) { return 1 + task.stream; }

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds, exact to the picosecond.
void append_time(fmt::memory_buffer& out, Picoseconds time) {
  const Picoseconds whole = time / 1'000'000, rest = time % 1'000'000;
  fmt::format_to(std::back_inserter(out), "{}", whole);
  if (rest == 0) return;
  std::string digits = fmt::format("{:06}", rest);
  digits.erase(digits.find_last_not_of('0') + 1);
  fmt::format_to(std::back_inserter(out), ".{}", digits);
}

// The length of a slice. Viewers add it to the start in floating point; if the sum would exceed the end, and so overlap
// the next slice, the length is written a few femtoseconds short.
void append_length(fmt::memory_buffer& out, Picoseconds from, Picoseconds to) {
  const auto microseconds = [](double picoseconds) { return picoseconds / 1e6; };
  const double start = microseconds(static_cast<double>(from)), end = microseconds(static_cast<double>(to));
  if (start + microseconds(static_cast<double>(to - from)) <= end) return append_time(out, to - from);
  for (std::int64_t less = 1; less < 500; less *= 2) {
    const std::int64_t femtoseconds = (to - from) * 1000 - less;
    if (less < 256 && start + static_cast<double>(femtoseconds) / 1e9 > end) continue;
    fmt::format_to(std::back_inserter(out), "{}.{:09}", femtoseconds / 1'000'000'000, femtoseconds % 1'000'000'000);
    return;
  }
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

// The attributes of a task in the trace besides its times.
struct TaskLabels {
  std::string name;      // quoted
  std::string category;  // quoted
  std::string args;      // of its JSON object, without "micro_batch"
  bool always = false;   // written also for micro-batches without detail
};

struct MeetingParties {
  std::vector<std::pair<AgentId, TaskId>> list;  // traced parties
  std::int64_t first_flow = 0;
};

class TraceWriter {
 public:
  TraceWriter(WholeFile& file, const Plan& plan, const PlayedPlan& played, const TraceOptions& options,
              const MeasuredRun* measured)
      : file_(file),
        plan_(plan),
        played_(played),
        options_(options),
        program_(played.compiled.program),
        graph_(plan.training().graph),
        workload_(played.priced.workload),
        measured_(measured),
        timeline_(workload_, played.run),
        activities_(activities_of(program_, graph_)),
        devices_(plan.ranks()),
        classes_(memory_classes(played.compiled, plan.cluster(), devices_)) {
    if (measured) measured_timeline_.emplace(workload_, measured->run);
  }

  Result<TraceCounts> run() {
    choose_processes();
    choose_detail();
    number_flows();
    put(R"({"displayTimeUnit":"ms","otherData":{)");
    put(fmt::format(R"("model":{},"cluster":{},"strategy":{}}},"traceEvents":[)", json_text(plan_.job->words.model),
                    json_text(plan_.job->words.cluster), json_text(plan_.name)));
    for (const Process& process : processes_) {
      if (!write_process(process)) return error("interrupted");
      if (measured_ && !write_process(beside(process))) return error("interrupted");
    }
    put("\n]}\n");
    flush();
    return counts_;
  }

 private:
  struct Process {
    AgentId agent;
    std::int64_t rank = 0;
    std::string name;
    const MeasuredRun::Host* measured = nullptr;  // none: it is simulated
    std::int64_t id = rank;
  };

  // The measured run of the same agent.
  Process beside(const Process& process) const {
    Process other = process;
    other.measured = &measured_->hosts[process.agent];
    other.id += static_cast<std::int64_t>(devices_.size());
    return other;
  }

  void choose_processes() {
    std::unordered_map<std::uint32_t, std::int64_t> rank_of;
    for (std::size_t rank = 0; rank < devices_.size(); ++rank)
      rank_of[devices_[rank].index()] = static_cast<std::int64_t>(rank);
    const auto add = [&](AgentId agent, std::int64_t rank, std::string ranks) {
      const DeviceId device = devices_[static_cast<std::size_t>(rank)];
      processes_.push_back({agent, rank,
                            fmt::format("stage {} · {} · node {}", played_.priced.agents[agent].rank, ranks,
                                        plan_.cluster().node_of(device).index())});
    };
    if (options_.ranks.empty()) {
      for (AgentId agent : representatives(plan_, played_)) {
        std::vector<std::int64_t> ranks;
        for (DeviceId device : played_.priced.agents[agent].devices) ranks.push_back(rank_of.at(device.index()));
        std::sort(ranks.begin(), ranks.end());
        add(agent, ranks.front(),
            ranks.size() == 1 ? fmt::format("rank {}", ranks.front()) : fmt::format("ranks {}", short_list(ranks)));
      }
      return;
    }
    std::unordered_map<std::uint32_t, AgentId> agent_of;
    for (AgentId agent : played_.priced.agents.ids())
      for (DeviceId device : played_.priced.agents[agent].devices) agent_of[device.index()] = agent;
    for (std::int64_t rank : options_.ranks)
      add(agent_of.at(devices_[static_cast<std::size_t>(rank)].index()), rank, fmt::format("rank {}", rank));
  }

  // Chooses the micro-batches that are written operator by operator: all, or the first ones and the last.
  void choose_detail() {
    detailed_.assign(static_cast<std::size_t>(workload_.micro_batches), true);
    std::int64_t all = 0;
    for (const Process& process : processes_)
      all += static_cast<std::int64_t>(played_.run.agents[process.agent].tasks.size());
    const std::int64_t each = std::max<std::int64_t>(1, all / workload_.micro_batches);
    if (options_.most_tasks > 0 && all > options_.most_tasks) {
      const std::int64_t first = std::max<std::int64_t>(1, options_.most_tasks / each - 1);
      for (std::size_t m = 0; m + 1 < detailed_.size(); ++m) detailed_[m] = static_cast<std::int64_t>(m) < first;
    }
    counts_.detailed_micro_batches = std::count(detailed_.begin(), detailed_.end(), true);
    all_plays_ = 0;
    for (const Process& process : processes_)
      all_plays_ += static_cast<double>(workload_.agents[process.agent].plays.size());
  }

  // At every occurrence of a meeting, each traced party but the first is connected to the one before by a flow.
  void number_flows() {
    std::set<AgentId> traced;  // an agent traced as several ranks has flows on the first
    parties_.resize(workload_.meetings.size());
    std::vector<std::int64_t> held(workload_.meetings.size(), 0);
    for (const Process& process : processes_) {
      if (!traced.insert(process.agent).second) continue;
      const Agent& agent = workload_.agents[process.agent];
      std::vector<char> seen(agent.tasks.size(), 0);
      timeline_.for_each(process.agent, [&](const Span& span) {
        const MeetingId meeting = agent.tasks[span.task].meeting;
        if (!meeting.valid()) return;
        held[meeting.index()] = std::max<std::int64_t>(held[meeting.index()], span.occurrence + 1);
        if (!std::exchange(seen[span.task.index()], 1))
          parties_[meeting.index()].list.emplace_back(process.agent, span.task);
      });
    }
    std::int64_t next = 1;
    for (std::size_t m = 0; m < parties_.size(); ++m) {
      parties_[m].first_flow = next;
      if (parties_[m].list.size() > 1) next += held[m] * static_cast<std::int64_t>(parties_[m].list.size() - 1);
    }
    flows_ = next;
  }

  bool write_process(const Process& process) {
    const Agent& agent = workload_.agents[process.agent];
    const bool flows =
        process.measured ? measured_flowing_.insert(process.agent).second : flowing_.insert(process.agent).second;
    write_names(process, agent);
    const std::vector<TaskLabels> labels = labels_of(process);
    const DeviceId device = devices_[static_cast<std::size_t>(process.rank)];
    const auto of = std::find_if(classes_.begin(), classes_.end(), [&](const MemoryClass& each) {
      return std::find(each.devices.begin(), each.devices.end(), device) != each.devices.end();
    });
    const MemoryOfClass memory(played_.compiled, plan_.training(), plan_.stack(), *of);
    HeldBytes held = memory.kept();
    if (process.measured)
      write_host(process);
    else
      count_memory(process, 0, held);

    std::vector<Span> of_play;
    std::uint32_t play = 0;
    bool going = true;
    const auto finish_play = [&] {
      write_body(process, agent, play, of_play);
      if (!process.measured) write_memory(process, agent, memory, play, of_play, held);
      of_play.clear();
      if (options_.progress && play % 16 == 0) going = going && options_.progress(plays_done_ / all_plays_);
      ++plays_done_;
      ++play;
    };
    (process.measured ? *measured_timeline_ : timeline_).for_each(process.agent, [&](const Span& span) {
      if (!going) return;
      while (play < span.play) finish_play();
      of_play.push_back(span);
      write_task(process, agent, span, labels[span.task.index()], flows);
    });
    while (going && play < agent.plays.size()) finish_play();
    ++counts_.processes;
    return going;
  }

  void write_names(const Process& process, const Agent& agent) {
    const auto name = [&](std::string_view what, int thread, std::string_view value) {
      event(
          fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", process.id, thread, what, value));
    };
    const std::string side = !measured_ ? "" : process.measured ? " · measured" : " · predicted";
    name("process_name", 0, fmt::format(R"("name":{})", json_text(process.name + side)));
    name("process_sort_index", 0,
         fmt::format(R"("sort_index":{})", measured_ ? 2 * process.rank + (process.measured ? 1 : 0) : process.rank));
    std::set<int> threads = {kBodies};
    for (const Task& task : agent.tasks) {
      threads.insert(thread_of(task));
      if (task.host > 0) threads.insert(kHost);
    }
    for (int thread : threads) {
      const std::string_view title = thread == kBodies ? "micro-batches"
                                     : thread == kHost ? "host"
                                                       : name_of(static_cast<Stream>(thread - 1));
      name("thread_name", thread, fmt::format(R"("name":{})", json_text(title)));
      name("thread_sort_index", thread, fmt::format(R"("sort_index":{})", thread));
    }
  }

  // The labels of every task of the agent, made once.
  std::vector<TaskLabels> labels_of(const Process& process) const {
    const Agent& agent = workload_.agents[process.agent];
    const DeviceId device = played_.priced.agents[process.agent].devices.front();
    std::vector<TaskLabels> labels(agent.tasks.size());
    for (TaskId id : agent.tasks.ids()) {
      TaskLabels& made = labels[id.index()];
      const InstructionId instruction_id(agent.tasks[id].label);
      const Instruction& instruction = program_.instructions[instruction_id];
      const Activity activity = activities_[instruction_id];
      made.name = json_text(title_of(program_, graph_, instruction_id));
      made.category = json_text(name_of(activity));
      made.always = activity == Activity::Pipeline || activity == Activity::Data || activity == Activity::Offload;
      if (const auto* compute = std::get_if<Compute>(&instruction.what)) {
        made.args = compute_args(*compute, instruction, device);
      } else if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
        const Mesh& mesh = program_.meshes[instruction.mesh];
        made.args =
            fmt::format(R"("bytes_sent":{},"group":{},"devices":{},"buffers":{},)",
                        bytes_sent(program_, graph_, *communicate).value, json_text(mesh.names_of(communicate->axes)),
                        mesh.group_size(communicate->axes), communicate->inputs.size());
      } else if (const auto* send = std::get_if<Send>(&instruction.what)) {
        made.args = fmt::format(R"("bytes_sent":{},)", bytes_sent(program_, graph_, *send).value);
      }
    }
    return labels;
  }

  std::string compute_args(const Compute& compute, const Instruction& instruction, DeviceId device) const {
    const Signature& signature = graph_.signature(compute.op);
    const Mesh& mesh = program_.meshes[instruction.mesh];
    const LocalCompute local = local_compute(signature, compute.sharding, mesh, mesh.position_of(device));
    std::string shapes;
    for (std::size_t i = 0; i < local.shapes.size(); ++i) {
      shapes += i == 0 ? "" : i == signature.inputs.size() ? " → " : " ";
      shapes += (signature.operand(static_cast<int>(i)).weight ? "w" : "") + shape_text(local.shapes[i]);
    }
    std::string text = fmt::format(R"("kind":{},"shapes":{},)", json_text(name_of(signature.kind)), json_text(shapes));
    if (local.flops > 0) text += fmt::format(R"("flops":{:.0f},)", local.flops);
    return text + fmt::format(R"("bytes":{},)", local.bytes);
  }

  bool detailed(std::int32_t micro_batch) const { return detailed_[static_cast<std::size_t>(micro_batch)]; }

  void complete(std::int64_t pid, int tid, Picoseconds from, Picoseconds to, std::string_view name,
                std::string_view category, std::string_view args) {
    begin_event();
    fmt::format_to(std::back_inserter(buffer_), R"({{"ph":"X","pid":{},"tid":{},"ts":)", pid, tid);
    append_time(buffer_, from);
    buffer_.append(std::string_view(R"(,"dur":)"));
    append_length(buffer_, from, to);
    fmt::format_to(std::back_inserter(buffer_), R"(,"name":{},"cat":{}{}}})", name, category, args);
  }

  void write_task(const Process& process, const Agent& agent, const Span& span, const TaskLabels& labels, bool flows) {
    const Task& task = agent.tasks[span.task];
    const std::int32_t micro_batch = agent.plays[span.play].micro_batch;
    if (!labels.always && !detailed(micro_batch)) return;
    const int thread = thread_of(task);
    if (task.host > 0 && detailed(micro_batch) && !process.measured)
      complete(process.id, kHost, span.issued - task.host, span.issued, labels.name, R"("host")", "");
    if (span.start < span.work) complete(process.id, thread, span.start, span.work, R"("wait")", R"("wait")", "");
    if (span.work == span.end) return;
    complete(process.id, thread, span.work, span.end, labels.name, labels.category,
             fmt::format(R"(,"args":{{{}"micro_batch":{}}})", labels.args, micro_batch));
    if (!task.meeting.valid() || !flows) return;
    const MeetingParties& parties = parties_[task.meeting.index()];
    if (parties.list.size() < 2) return;
    const auto own =
        std::find(parties.list.begin(), parties.list.end(), std::pair(process.agent, span.task)) - parties.list.begin();
    const std::int64_t joints = static_cast<std::int64_t>(parties.list.size()) - 1;
    const std::int64_t flow = parties.first_flow + span.occurrence * joints + (process.measured ? flows_ : 0);
    // A flow begins at the start of the work and ends in the middle of it: both within the slices it connects.
    if (own > 0) flow_event("f", process.id, thread, span.work + (span.end - span.work) / 2, flow + own - 1);
    if (own < joints) flow_event("s", process.id, thread, span.work, flow + own);
  }

  void write_host(const Process& process) {
    for (const MeasuredRun::Host::Slice& slice : process.measured->slices)
      if (detailed(slice.micro_batch) && slice.from < slice.to)
        complete(process.id, kHost, slice.from, slice.to, json_text(title_of(program_, graph_, slice.instruction)),
                 slice.waits ? R"("wait")" : R"("host")", "");
    for (const auto& [time, bytes] : process.measured->bytes) {
      begin_event();
      fmt::format_to(std::back_inserter(buffer_), R"({{"ph":"C","pid":{},"tid":0,"ts":)", process.id);
      append_time(buffer_, time);
      fmt::format_to(std::back_inserter(buffer_), R"(,"name":"memory","args":{{"allocated":{}}}}})", bytes);
    }
  }

  void flow_event(std::string_view phase, std::int64_t pid, int tid, Picoseconds time, std::int64_t id) {
    begin_event();
    fmt::format_to(std::back_inserter(buffer_), R"({{"ph":"{}","pid":{},"tid":{},"ts":)", phase, pid, tid);
    append_time(buffer_, time);
    fmt::format_to(std::back_inserter(buffer_), R"(,"name":"meeting","cat":"meeting","id":{}{}}})", id,
                   phase == "f" ? R"(,"bp":"e")" : "");
  }

  // From the first to the last computation of a body.
  void write_body(const Process& process, const Agent& agent, std::uint32_t play, const std::vector<Span>& spans) {
    Picoseconds from = -1, to = -1;
    for (const Span& span : spans) {
      if (agent.tasks[span.task].stream != static_cast<std::uint8_t>(Stream::Compute) || span.start == span.end)
        continue;
      if (from < 0) from = span.start;
      to = span.end;
    }
    if (from == to) return;
    const std::int32_t rank = played_.priced.agents[process.agent].rank;
    const IssuedBody& issued = played_.priced.issued[static_cast<std::size_t>(rank)][play];
    const std::string name = name_of_play(played_.compiled.schedule, rank, issued);
    complete(process.id, kBodies, from, to, json_text(name), json_text(body_name(issued)),
             fmt::format(R"(,"args":{{"micro_batch":{}}})", agent.plays[play].micro_batch));
  }

  // Writes the allocations of the body: buffers are allocated when their instruction starts and freed when it ends, by
  // the time of the compute stream.
  void write_memory(const Process& process, const Agent& agent, const MemoryOfClass& memory, std::uint32_t play,
                    const std::vector<Span>& spans, HeldBytes& held) {
    const BodyMemory& body = memory.body(play);
    const bool all = detailed(agent.plays[play].micro_batch);
    const std::vector<InstructionId>& instructions = memory.instructions(play);
    std::size_t next = 0, at = 0;  // span; instruction
    const auto clock_at = [&](std::uint32_t position, bool goes) {
      for (; at <= position; ++at)
        if (next < spans.size() && spans[next].instruction == instructions[at].index()) {
          if (agent.tasks[spans[next].task].stream == static_cast<std::uint8_t>(Stream::Compute)) {
            clock_ = std::max(clock_, spans[next].start);
            computed_ = spans[next].end;
          }
          ++next;
        }
      if (goes) clock_ = std::max(clock_, computed_);
      return clock_;
    };
    if (play == 0) {
      clock_ = computed_ = 0;
      counted_.reset();
    }
    for (std::size_t i = 0; i < body.changes.size(); ++i) {
      const MemoryChange& change = body.changes[i];
      const Picoseconds time = clock_at(change.position, change.bytes < 0);
      if (counted_ && counted_->time < time) write_counted(process);
      (change.activation ? held.activations : held.buffers).value += change.bytes;
      if (!all && !counted_ && i + 1 != body.highest && i + 1 != body.changes.size()) continue;
      if (!counted_) counted_ = Counted{time, held, held};
      counted_->outcome = held;
      if (held.total() > counted_->most.total()) counted_->most = held;
    }
    if (play + 1 == memory.plays() && counted_) write_counted(process);
  }

  // For several changes at one time: the peak, then the final value.
  void write_counted(const Process& process) {
    if (counted_->most.total() > counted_->outcome.total()) count_memory(process, counted_->time, counted_->most);
    count_memory(process, counted_->time, counted_->outcome);
    counted_.reset();
  }

  void count_memory(const Process& process, Picoseconds time, const HeldBytes& held) {
    begin_event();
    fmt::format_to(std::back_inserter(buffer_), R"({{"ph":"C","pid":{},"tid":0,"ts":)", process.id);
    append_time(buffer_, time);
    fmt::format_to(
        std::back_inserter(buffer_),
        R"(,"name":"memory","args":{{"parameters":{},"gradients":{},"optimizer":{},"activations":{},"buffers":{}}}}})",
        held.parameters.value, held.gradients.value, held.optimizer.value, held.activations.value, held.buffers.value);
  }

  void begin_event() {
    if (buffer_.size() > 1 << 20) flush();
    put(counts_.events++ == 0 ? "\n" : ",\n");
  }
  void event(std::string_view text) {
    begin_event();
    put(text);
  }
  void put(std::string_view text) { buffer_.append(text); }
  void flush() {
    file_.write({buffer_.data(), buffer_.size()});
    counts_.bytes += static_cast<std::int64_t>(buffer_.size());
    buffer_.clear();
  }

  WholeFile& file_;
  const Plan& plan_;
  const PlayedPlan& played_;
  const TraceOptions& options_;
  const Program& program_;
  const Graph& graph_;
  const Workload& workload_;
  const MeasuredRun* measured_;
  Timeline timeline_;
  std::optional<Timeline> measured_timeline_;
  IdVec<InstructionId, Activity> activities_;
  std::vector<DeviceId> devices_;  // by rank
  std::vector<MemoryClass> classes_;
  std::vector<Process> processes_;
  std::vector<bool> detailed_;  // by micro-batch
  std::vector<MeetingParties> parties_;
  std::set<AgentId> flowing_, measured_flowing_;
  std::int64_t flows_ = 0;                // of one run
  Picoseconds clock_ = 0, computed_ = 0;  // of the process's compute stream: current time; end of the last task
  struct Counted {
    Picoseconds time = 0;
    HeldBytes most, outcome;
  };
  std::optional<Counted> counted_;  // to be written
  double plays_done_ = 0, all_plays_ = 1;
  fmt::memory_buffer buffer_;
  TraceCounts counts_;
};

}  // namespace

Result<std::vector<std::int64_t>> parse_ranks(std::string_view list, std::int64_t count) {
  std::set<std::int64_t> ranks;
  if (list == "all") {
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string_view word = list.substr(at, end - at);
    const std::size_t dash = word.find('-', 1);
    const Result<std::int64_t> first = parse_integer(word.substr(0, dash), "rank");
    const Result<std::int64_t> last =
        dash == std::string_view::npos ? first : parse_integer(word.substr(dash + 1), "rank");
    if (!first.ok() || !last.ok())
      return error("--trace-ranks '{}': '{}' is no rank; write ranks and ranges, 0,8,16-23, or all", list, word);
    if (*first < 0 || *last >= count || *first > *last)
      return error("--trace-ranks '{}': {}: the plan has ranks 0 to {}", list, word, count - 1);
    for (std::int64_t rank = *first; rank <= *last; ++rank) ranks.insert(rank);
    at = end + 1;
  }
  return std::vector<std::int64_t>(ranks.begin(), ranks.end());
}

Result<TraceCounts> write_trace(WholeFile& file, const Plan& plan, const PlayedPlan& played,
                                const TraceOptions& options, const MeasuredRun* measured) {
  const auto count = static_cast<std::int64_t>(plan.ranks().size());
  for (std::int64_t rank : options.ranks)
    if (rank < 0 || rank >= count) return error("rank {}: the plan has ranks 0 to {}", rank, count - 1);
  return TraceWriter(file, plan, played, options, measured).run();
}

}  // namespace weft
