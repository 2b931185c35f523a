// Traces are decoded byte by byte with the field numbers of Chakra's schema 1.0.0, stated here once more, and played: every
// node is reached, every receive has its send, members of a group agree, and bytes are those of the program.
#include "report/chakra.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cost/analytic.h"
#include "report/traffic.h"

namespace weft {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

// Numbers of schema 1.0.0 (mlcommons/chakra 21585d8, schema/protobuf/et_def.proto).
enum NodeField { kId = 1, kName = 2, kType = 3, kControl = 4, kData = 5, kDuration = 7, kAttributes = 10 };
enum ValueField { kInt32 = 7, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29 };
enum NodeKind { kLoad = 2, kStore = 3, kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7 };
enum CollectiveKind { kAllReduce = 0, kAllGather = 2, kAllToAll = 6, kReduceScatter = 7 };
// The value that ASTRA-sim's reader takes each attribute from (src/feeder/et_feeder_node.cpp:29-52).
const std::map<std::string, int> kRead = {{"is_cpu_op", kBool},  {"num_ops", kInt64},   {"tensor_size", kUint64},
                                          {"comm_type", kInt64}, {"comm_size", kInt64}, {"comm_priority", kInt32},
                                          {"comm_src", kInt32},  {"comm_dst", kInt32},  {"comm_tag", kInt32},
                                          {"pg_name", kString}};
const std::map<int, std::set<std::string>> kNeeded = {
    {kLoad, {"is_cpu_op", "tensor_size"}},
    {kStore, {"is_cpu_op", "tensor_size"}},
    {kCompute, {"is_cpu_op", "num_ops", "tensor_size"}},
    {kSend, {"is_cpu_op", "comm_src", "comm_dst", "comm_tag", "comm_size"}},
    {kReceive, {"is_cpu_op", "comm_src", "comm_dst", "comm_tag", "comm_size"}},
    {kCollective, {"is_cpu_op", "comm_type", "comm_size", "comm_priority", "pg_name"}}};

struct Node {
  std::uint64_t id = 0, duration = 0;
  int type = 0;
  std::string name;
  std::vector<std::uint64_t> after;
  std::map<std::string, std::int64_t> numbers;
  std::string group;
};

// The protocol buffers' wire format: varints, and length-delimited fields.
class Wire {
 public:
  explicit Wire(std::string_view text) : text_(text) {}
  bool at_end() const { return text_.empty(); }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; !text_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(text_.front());
      text_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a number that does not end";
    return value;
  }
  std::string_view bytes() {
    const std::size_t length = varint();
    EXPECT_LE(length, text_.size());
    const std::string_view taken = text_.substr(0, length);
    text_.remove_prefix(std::min(length, text_.size()));
    return taken;
  }

 private:
  std::string_view text_;
};

void read_attribute(std::string_view text, Node& node) {
  Wire wire(text);
  std::string name;
  int field = 0;
  while (!wire.at_end()) {
    const auto tag = static_cast<int>(wire.varint());
    if (tag >> 3 == 1) {
      name = wire.bytes();
    } else if (tag % 8 == 2) {
      field = tag >> 3;
      node.group = wire.bytes();
    } else {
      field = tag >> 3;
      node.numbers[name] = static_cast<std::int64_t>(wire.varint());
    }
  }
  if (field == kString) node.numbers[name] = 0;
  EXPECT_TRUE(kRead.contains(name)) << name;
  if (kRead.contains(name)) {
    EXPECT_EQ(field, kRead.at(name)) << name;
  }
}

Node read_node(std::string_view text) {
  Wire wire(text);
  Node node;
  while (!wire.at_end()) {
    const auto tag = static_cast<int>(wire.varint());
    switch (tag >> 3) {
      case kId:
        node.id = wire.varint();
        break;
      case kName:
        node.name = wire.bytes();
        break;
      case kType:
        node.type = static_cast<int>(wire.varint());
        break;
      case kData:
        for (Wire packed(wire.bytes()); !packed.at_end();) node.after.push_back(packed.varint());
        break;
      case kDuration:
        node.duration = wire.varint();
        break;
      case kAttributes:
        read_attribute(wire.bytes(), node);
        break;
      default:
        ADD_FAILURE() << "field " << (tag >> 3);
        return node;
    }
  }
  return node;
}

std::vector<Node> read_trace(std::string_view text) {
  Wire wire(text);
  EXPECT_THAT(std::string(wire.bytes()), HasSubstr("1.0.0"));  // metadata
  std::vector<Node> nodes;
  while (!wire.at_end()) nodes.push_back(read_node(wire.bytes()));
  return nodes;
}

struct Traces {
  std::vector<std::vector<Node>> ranks;
  std::vector<std::vector<std::int64_t>> groups;
};

// What a simulator that reads the traces would stumble on.
std::vector<std::string> faults_of(const Traces& traces) {
  std::vector<std::string> faults;
  using Message = std::array<std::int64_t, 4>;  // source, destination, tag, size
  std::map<Message, int> sent, received;
  std::map<std::string, std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>>> calls;
  for (std::size_t r = 0; r < traces.ranks.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    std::set<std::uint64_t> known;
    for (const Node& node : traces.ranks[r]) {
      const auto fault = [&](const char* what) {
        faults.push_back(fmt::format("rank {} node {}: {}", r, node.id, what));
      };
      if (!kNeeded.contains(node.type)) {
        fault("type");
        continue;
      }
      std::set<std::string> has;
      for (const auto& [name, value] : node.numbers) has.insert(name);
      if (has != kNeeded.at(node.type)) fault("attributes");
      // Earlier ones only: then there is no cycle, and none that never appears.
      for (std::uint64_t before : node.after)
        if (!known.contains(before)) fault("waits for what is not before it");
      if (!known.insert(node.id).second) fault("number");
      const auto number = [&](const char* name) { return node.numbers.contains(name) ? node.numbers.at(name) : -1; };
      if (node.type == kSend || node.type == kReceive) {
        const Message message{number("comm_src"), number("comm_dst"), number("comm_tag"), number("comm_size")};
        if (message[node.type == kSend ? 0 : 1] != rank) fault("side");
        if (message[0] == message[1] || message[3] <= 0) fault("message");
        ++(node.type == kSend ? sent : received)[message];
      }
      if (node.type == kCollective) {
        if (number("comm_size") <= 0) fault("size");
        calls[node.group][rank].emplace_back(number("comm_type"), number("comm_size"));
      }
    }
  }
  if (sent != received) faults.emplace_back("sends are not receives");
  for (const auto& [message, count] : sent)
    if (count != 1) faults.emplace_back("two messages look alike");
  for (const auto& [name, by_rank] : calls) {
    const std::size_t group = static_cast<std::size_t>(std::atoi(name.c_str())) - 1;
    if (group >= traces.groups.size()) {
      faults.push_back("group " + name);
      continue;
    }
    std::set<std::int64_t> members(traces.groups[group].begin(), traces.groups[group].end());
    for (const auto& [rank, list] : by_rank) {
      if (members.erase(rank) == 0) faults.push_back("not a member of group " + name);
      if (list != by_rank.begin()->second) faults.push_back("members of group " + name + " differ");
    }
    if (!members.empty()) faults.push_back("a member of group " + name + " is missing");
  }
  return faults;
}

// Plays all ranks at once: a node begins when what it waits for is done; a collective is done when all members are at
// it, a receive when its send is. Returns how many nodes are never done.
std::size_t stuck(const Traces& traces) {
  std::vector<std::size_t> at(traces.ranks.size(), 0);  // nodes stand in an order in which they can be played
  std::map<std::pair<std::string, std::size_t>, std::set<std::size_t>> calls;
  std::vector<std::map<std::string, std::size_t>> called(traces.ranks.size());
  std::set<std::array<std::int64_t, 3>> arrived;
  std::vector<std::set<std::uint64_t>> done(traces.ranks.size());
  std::vector<std::set<std::size_t>> open(traces.ranks.size());  // begun and not done
  std::vector<std::map<std::size_t, std::size_t>> turn(traces.ranks.size());
  for (std::size_t r = 0; r < traces.ranks.size(); ++r)
    for (std::size_t i = 0; i < traces.ranks[r].size(); ++i) open[r].insert(i);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < traces.ranks.size(); ++r)
      for (auto it = open[r].begin(); it != open[r].end();) {
        const Node& node = traces.ranks[r][*it];
        bool ready =
            std::all_of(node.after.begin(), node.after.end(), [&](std::uint64_t id) { return done[r].contains(id); });
        if (ready && node.type == kCollective) {
          const auto [found, first] = turn[r].try_emplace(*it, 0);
          if (first) found->second = called[r][node.group]++, moved = true;
          auto& here = calls[{node.group, found->second}];
          here.insert(r);
          ready = here.size() == traces.groups[static_cast<std::size_t>(std::atoi(node.group.c_str())) - 1].size();
        }
        if (ready && (node.type == kSend || node.type == kReceive)) {
          const std::array<std::int64_t, 3> message{node.numbers.at("comm_src"), node.numbers.at("comm_dst"),
                                                    node.numbers.at("comm_tag")};
          if (node.type == kSend) arrived.insert(message);
          ready = arrived.contains(message);
        }
        if (!ready) {
          // Streams are few: nodes far behind the first that waits need not be looked at.
          if (*it > *open[r].begin() + 400) break;
          ++it;
          continue;
        }
        done[r].insert(node.id);
        it = open[r].erase(it);
        moved = true;
      }
  }
  std::size_t left = 0;
  for (const auto& each : open) left += each.size();
  return left;
}

struct Played {
  Plan plan;
  PlayedPlan played;
  Traces traces;
};

Played traced(const PlanRequest& request) {
  Plan plan = make_plan(request).value();
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  PlayedPlan played = play_plan(plan, cost).value();
  Traces traces;
  {
    const ChakraTraces made = ChakraTraces::of(plan, played, cost).value();
    traces.groups = made.groups();
    for (std::int64_t rank = 0; rank < made.ranks(); ++rank) {
      const ChakraTrace trace = made.trace_of(rank).value();
      traces.ranks.push_back(read_trace(trace.text));
      EXPECT_EQ(trace.nodes, static_cast<std::int64_t>(traces.ranks.back().size()));
    }
  }
  return {std::move(plan), std::move(played), std::move(traces)};
}

PlanRequest request_of(const char* model, const char* strategy, std::int64_t batch = 16) {
  PlanRequest request{.model = model, .cluster = "dgx-a100:1", .strategy = strategy};
  request.global_batch = batch;
  return request;
}

// Bytes that a device sends by ring algorithms: 2(n−1)/n of an all-reduce, n−1 parts of an all-gather, (n−1)/n of the
// others.
std::int64_t sent_by_ring(const Node& node, const Traces& traces) {
  if (node.type == kSend) return node.numbers.at("comm_size");
  if (node.type != kCollective) return 0;
  const double n =
      static_cast<double>(traces.groups[static_cast<std::size_t>(std::atoi(node.group.c_str())) - 1].size());
  const double size = static_cast<double>(node.numbers.at("comm_size"));
  const std::int64_t type = node.numbers.at("comm_type");
  return std::llround(type == kAllReduce   ? 2 * (n - 1) / n * size
                      : type == kAllGather ? (n - 1) * size
                                           : (n - 1) / n * size);
}

const char* const kGpt = "gpt2-124m:layers=4,hidden=64,heads=4,vocab=512,context=128,dropout=0";
const char* const kMixture =
    "mixtral-8x7b:layers=2,hidden=64,heads=8,kv_heads=8,ffn=64,expert_ffn=64,vocab=512,context=128";

TEST(Chakra, EveryNodeIsReachedAndEveryReceiveHasItsSend) {
  for (const auto& [model, strategy] : {std::pair{kGpt, "dp=8,zero=3"},
                                        {kGpt, "tp=2,pp=2,dp=2,zero=1,sp=1"},
                                        {kGpt, "pp=2,vpp=2,dp=4"},
                                        {kGpt, "cp=4,cp_mode=ring,dp=2"},
                                        {kGpt, "cp=2,cp_mode=a2a,tp=2,dp=2"},
                                        {kGpt, "dp=8,zero=2,offload=optimizer"},
                                        {kMixture, "dp=4,ep=4,pp=2,zero=1"},
                                        {"lenet5", "h=2,dp=4"},
                                        {kGpt, "pp=4,dp=2,schedule=zb-h1"}}) {
    SCOPED_TRACE(fmt::format("{} {}", model, strategy));
    const Played of = traced(request_of(model, strategy));
    EXPECT_THAT(faults_of(of.traces), IsEmpty());
    EXPECT_EQ(stuck(of.traces), 0u);
  }
}

TEST(Chakra, BytesAreThoseOfTheProgram) {
  for (const char* strategy :
       {"dp=8,zero=3", "tp=2,pp=2,dp=2,zero=1,sp=1", "pp=2,vpp=2,dp=4", "cp=2,cp_mode=a2a,tp=2,dp=2"}) {
    SCOPED_TRACE(strategy);
    const Played of = traced(request_of(kGpt, strategy));
    const std::vector<StepTraffic> traffic = traffic_of(of.plan, of.played.compiled);
    for (AgentId agent : of.played.priced.agents.ids()) {
      const auto stage = static_cast<std::size_t>(of.played.priced.agents[agent].rank);
      std::int64_t expected = 0;
      for (const StepTraffic& row : traffic) expected += row.bytes[stage].value;
      const std::vector<DeviceId> devices = of.plan.ranks();
      for (DeviceId device : of.played.priced.agents[agent].devices) {
        const auto rank = static_cast<std::size_t>(std::find(devices.begin(), devices.end(), device) - devices.begin());
        std::int64_t found = 0;
        for (const Node& node : of.traces.ranks[rank]) found += sent_by_ring(node, of.traces);
        EXPECT_EQ(found, expected) << "rank " << rank;
      }
    }
  }
}

TEST(Chakra, ComputationTakesAsLongAsInThePricedProgram) {
  const Played of = traced(request_of(kGpt, "tp=2,pp=2,dp=2,zero=1"));
  const Workload& workload = of.played.priced.workload;
  for (AgentId id : workload.agents.ids()) {
    const Agent& agent = workload.agents[id];
    const IdVec<BodyId, PlayedRange> ranges = played_ranges(agent);
    Picoseconds expected = 0;
    for (const Play& play : agent.plays)
      for (TaskId task_id : agent.bodies[play.body]) {
        const Task& task = agent.tasks[task_id];
        const auto& what = of.played.compiled.program.instructions[InstructionId(task.label)].what;
        const bool computes = std::holds_alternative<Compute>(what) || std::holds_alternative<Combine>(what);
        if (computes && task.work.valid() && works_in(task, ranges[play.body], play.micro_batch))
          expected += workload.works[task.work].fixed;
      }
    const std::vector<DeviceId> devices = of.plan.ranks();
    const auto rank =
        std::find(devices.begin(), devices.end(), of.played.priced.agents[id].devices.front()) - devices.begin();
    std::uint64_t found = 0;
    double flops = 0;
    for (const Node& node : of.traces.ranks[static_cast<std::size_t>(rank)])
      if (node.type == kCompute) found += node.duration, flops += static_cast<double>(node.numbers.at("num_ops"));
    EXPECT_EQ(found, static_cast<std::uint64_t>(expected / 1'000'000));  // of whole microseconds one is cut off at most
    EXPECT_GT(flops, 0);
  }
}

TEST(Chakra, PlantedFaultsAreFound) {
  const Traces good = traced(request_of(kGpt, "tp=2,pp=2,dp=2")).traces;
  const auto first = [](Traces& traces, int type) -> Node& {
    return *std::find_if(traces.ranks[0].begin(), traces.ranks[0].end(),
                         [&](const Node& each) { return each.type == type; });
  };
  Traces bad = good;
  first(bad, kSend).numbers["comm_tag"] += 1;
  EXPECT_THAT(faults_of(bad), Contains("sends are not receives"));
  bad = good;
  first(bad, kCollective).numbers["comm_size"] *= 2;
  EXPECT_THAT(faults_of(bad), Contains(HasSubstr("differ")));
  bad = good;
  bad.ranks[0].front().after.push_back(bad.ranks[0].back().id);  // a cycle
  EXPECT_THAT(faults_of(bad), Contains(HasSubstr("waits for what is not before it")));
  bad = good;
  first(bad, kCompute).numbers.erase("num_ops");
  EXPECT_THAT(faults_of(bad), Contains(HasSubstr("attributes")));
  bad = good;
  bad.ranks[1].erase(std::find_if(bad.ranks[1].begin(), bad.ranks[1].end(),
                                  [](const Node& each) { return each.type == kCollective; }));
  EXPECT_GT(stuck(bad), 0u);
}

TEST(Chakra, FilesAreNamedByRankAndGroupsByNumber) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("weft_chakra_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const Plan plan = make_plan(request_of(kGpt, "tp=2,dp=4")).value();
  const AnalyticCost cost(plan.stack(), plan.job->tuning);
  const PlayedPlan played = play_plan(plan, cost).value();
  const ChakraTraces traces = ChakraTraces::of(plan, played, cost).value();
  const ChakraCounts counts = write_chakra((folder / "gpt").string(), traces).value();
  EXPECT_EQ(counts.files, 9);  // eight ranks and the groups
  const Json groups = Json::parse(std::ifstream(folder / "gpt.groups.json"));
  EXPECT_EQ(groups.size(), traces.groups().size());
  EXPECT_EQ(groups["1"], Json(traces.groups()[0]));
  std::ifstream file(folder / "gpt.7.et", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), traces.trace_of(7).value().text);
  EXPECT_FALSE(write_chakra((folder / "absent" / "gpt").string(), traces).ok());
  fs::remove_all(folder);
}

TEST(Chakra, ASmallerLastMicroBatchIsRefused) {
  PlanRequest request = request_of(kGpt, "dp=8,mbs=2", 24);  // micro-batches of 2 and 1
  request.stack = "megatron-lm:smaller_last_batch=true";
  const auto plan = make_plan(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_NE(plan->batch.last_micro_batch, plan->batch.micro_batch);
  const AnalyticCost cost(plan->stack(), plan->job->tuning);
  const PlayedPlan played = play_plan(*plan, cost).value();
  EXPECT_THAT(ChakraTraces::of(*plan, played, cost).error().message, HasSubstr("a smaller last micro-batch"));
}

// The schema's own table.
TEST(Chakra, NumbersAreThoseOfThePublishedSchema) {
  const char* root = std::getenv("WEFT_SOURCE_DIR");
  std::ifstream file(std::string(root ? root : ".") + "/../shared/targets/chakra.json");
  if (!file) GTEST_SKIP() << "../shared/targets/chakra.json is absent: numbers are not compared with it";
  const Json table = Json::parse(file);
  std::map<std::string, int> numbers;
  for (const Json& field : table["fields"])
    numbers[field["message"].get<std::string>() + "." + field["name"].get<std::string>()] = field["number"];
  for (const auto& [name, number] : {std::pair{"Node.id", int{kId}},
                                     {"Node.name", int{kName}},
                                     {"Node.type", int{kType}},
                                     {"Node.ctrl_deps", int{kControl}},
                                     {"Node.data_deps", int{kData}},
                                     {"Node.duration_micros", int{kDuration}},
                                     {"Node.attr", int{kAttributes}},
                                     {"AttributeProto.name", 1},
                                     {"AttributeProto.int32_val", int{kInt32}},
                                     {"AttributeProto.int64_val", int{kInt64}},
                                     {"AttributeProto.uint64_val", int{kUint64}},
                                     {"AttributeProto.bool_val", int{kBool}},
                                     {"AttributeProto.string_val", int{kString}},
                                     {"GlobalMetadata.version", 1},
                                     {"GlobalMetadata.attr", 2}})
    EXPECT_EQ(numbers[name], number) << name;
  std::map<std::string, int> enums;
  for (const Json& each : table["enums"]) enums[each["name"]] = each["number"];
  for (const auto& [name, number] : {std::pair{"MEM_LOAD_NODE", int{kLoad}},
                                     {"MEM_STORE_NODE", int{kStore}},
                                     {"COMP_NODE", int{kCompute}},
                                     {"COMM_SEND_NODE", int{kSend}},
                                     {"COMM_RECV_NODE", int{kReceive}},
                                     {"COMM_COLL_NODE", int{kCollective}},
                                     {"ALL_REDUCE", int{kAllReduce}},
                                     {"ALL_GATHER", int{kAllGather}},
                                     {"ALL_TO_ALL", int{kAllToAll}},
                                     {"REDUCE_SCATTER", int{kReduceScatter}}})
    EXPECT_EQ(enums[name], number) << name;
  const std::map<std::string, int> values = {{"bool_val", kBool},
                                             {"int64_val", kInt64},
                                             {"uint64_val", kUint64},
                                             {"int32_val", kInt32},
                                             {"string_val", kString}};
  std::map<std::string, int> read;
  for (const Json& each : table["attributes_read_by_feeder"]) read[each["attr"]] = values.at(each["value_field"]);
  EXPECT_EQ(read, kRead);
}

}  // namespace
}  // namespace weft
