// The figures of the report against those computed by hand.
#include "report/strategy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "report/table.h"
#include "report/tree.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Shown {
  Plan plan;
  CompiledStrategy compiled;
  StrategyReport report;

  std::string text() const { return describe(plan, compiled, report); }
};
Shown shown(PlanRequest request) {
  Plan plan = make_plan(request).value();
  CompiledStrategy compiled = compile_plan(plan).value();
  StrategyReport report = report_strategy(plan, compiled);
  return {std::move(plan), std::move(compiled), std::move(report)};
}
const Shown& llama() {
  static const Shown one = shown({.model = "llama3-8b", .cluster = "dgx-h100:2", .strategy = "tp=4,pp=2,dp=2,zero=1"});
  return one;
}
const OperatorRow& row(const StrategyReport& report, std::string_view section, std::string_view name) {
  for (const OperatorSection& each : report.sections)
    for (const OperatorRow& found : each.rows)
      if (each.name == section && found.name == name) return found;
  ADD_FAILURE() << section << " has no " << name;
  return report.sections.front().rows.front();
}
std::vector<std::string> moves(const OperatorRow& row, bool backward) {
  std::vector<std::string> list;
  for (const OperatorMove& move : row.moves)
    if (move.backward == backward)
      list.push_back(fmt::format("{} {} {}", name_of(move.collective), move.group, move.bytes.value));
  return list;
}
Bytes sent(const StrategyReport& report, Cargo cargo, std::string_view how, std::string_view group, std::size_t rank) {
  for (const StepTraffic& each : report.traffic)
    if (each.cargo == cargo && each.how == how && each.group == group) return each.bytes[rank];
  return {0};
}

constexpr std::int64_t kB = 1, kS = 8192, kH = 4096, kTp = 4, kDp = 2, kMicroBatches = 256;

// qkv of Llama-3-8B: 4,096 → 32 + 2·8 heads of 128 = 6,144 columns, a quarter on each device.
TEST(ShowStrategy, AColumnParallelLinearHasItsShareOfTheColumns) {
  const OperatorRow& qkv = row(llama().report, "layers.0", "attn.qkv");
  EXPECT_EQ(qkv.weights, std::vector<std::string>{"[4096,1536·tp]"});
  EXPECT_EQ(qkv.inputs, std::vector<std::string>{"[1·dp,8192,4096]"});
  EXPECT_EQ(qkv.outputs, std::vector<std::string>{"[1·dp,8192,1536·tp]"});
  const OperatorRow& down = row(llama().report, "layers.0", "mlp.down");
  EXPECT_EQ(down.weights, std::vector<std::string>{"[3584·tp,4096]"});  // 14,336 / 4
  EXPECT_EQ(down.outputs, std::vector<std::string>{"[1·dp,8192,4096]Σtp"});
}

// With sequence parallelism every collective of a layer moves b·s·h bf16 numbers: each device sends (tp − 1)/tp of
// them. 6 all-gathers and 4 reduce-scatters per layer and micro-batch: column-parallel linears gather their input again
// for the weight gradient.
TEST(ShowStrategy, SequenceParallelLayersGatherSixTimesAndScatterFour) {
  const std::int64_t bytes = kB * kS * kH * 2 * (kTp - 1) / kTp;
  EXPECT_EQ(bytes, 50331648);
  const std::string gather = fmt::format("all-gather tp {}", bytes),
                    scatter = fmt::format("reduce-scatter tp {}", bytes);
  using List = std::vector<std::string>;
  for (const char* column : {"attn.qkv", "mlp.gate_up"}) {
    EXPECT_EQ(moves(row(llama().report, "layers.0", column), false), List{gather});
    EXPECT_THAT(moves(row(llama().report, "layers.0", column), true), ::testing::UnorderedElementsAre(gather, scatter));
  }
  for (const char* line : {"attn.out", "mlp.down"}) {
    EXPECT_EQ(moves(row(llama().report, "layers.0", line), false), List{scatter});
    EXPECT_EQ(moves(row(llama().report, "layers.0", line), true), List{gather});
  }
  std::map<std::string, int> count;
  for (const OperatorSection& section : llama().report.sections)
    if (section.name == "layers.0")
      for (const OperatorRow& each : section.rows)
        for (const OperatorMove& move : each.moves) ++count[std::string(name_of(move.collective))];
  EXPECT_EQ(count, (std::map<std::string, int>{{"all-gather", 6}, {"reduce-scatter", 4}}));
}

// Without sequence parallelism: two all-reduces forward and two backward, 2(tp − 1)/tp of the tensor each.
TEST(ShowStrategy, TensorParallelLayersReduceFourTimes) {
  const Shown plain = shown({.model = "llama3-8b", .cluster = "dgx-h100:2", .strategy = "tp=4,pp=2,dp=2,sp=0,ga=2"});
  int reduces = 0;
  for (const OperatorSection& section : plain.report.sections)
    if (section.name == "layers.0")
      for (const OperatorRow& each : section.rows)
        for (const OperatorMove& move : each.moves) {
          EXPECT_EQ(move.collective, Collective::AllReduce) << each.name;
          EXPECT_EQ(move.bytes.value, kB * kS * kH * 2 * 2 * (kTp - 1) / kTp);
          ++reduces;
        }
  EXPECT_EQ(reduces, 4);
}

TEST(ShowStrategy, LayersAlikeAreOneSection) {
  std::vector<std::string> names;
  for (const OperatorSection& section : llama().report.sections) names.push_back(section.name);
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layers.0", "head"}));
  EXPECT_EQ(llama().report.sections[1].layers.size(), 32u);
  EXPECT_EQ(llama().report.sections[1].stages, (std::vector<std::int64_t>{0, 1}));
  // DeepSeek's first layers are dense, the others have experts.
  const Shown deep = shown({.model = "deepseek-v2-lite", .cluster = "dgx-h100:1", .strategy = "ep=8,ga=1"});
  std::vector<std::size_t> sizes;
  for (const OperatorSection& section : deep.report.sections)
    if (!section.layers.empty()) sizes.push_back(section.layers.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 26}));
}

// Stage 0 has the embedding and 16 layers, stage 1 16 layers, the last norm and the head, Ψ parameters each; a device
// has a quarter of the linears and tables and all of the norms. bf16 weights 2Ψ, fp32 gradients 4Ψ, ZeRO-1 state
// 12Ψ/dp.
TEST(ShowStrategy, ZeroOneHoldsSixBytesAndAShareOfTwelve) {
  const std::int64_t layer = kH * 6144 + kH * kH + kH * 28672 + 14336 * kH, norms = 2 * kH, table = 128512 * kH;
  const std::int64_t stage0 = (16 * layer + table) / kTp + 16 * norms;
  const std::vector<HeldKind>& held = llama().report.held;
  ASSERT_EQ(held.size(), 3u);
  EXPECT_EQ(held[0].bytes[0].value, 2 * stage0);
  EXPECT_EQ(held[1].bytes[0].value, 4 * stage0);
  EXPECT_EQ(held[2].bytes[0].value, 12 * stage0 / kDp);
  EXPECT_EQ(held[0].bytes[1].value, 2 * (stage0 + kH));
  EXPECT_EQ(held[2].cuts.front().first, (std::vector<std::string>{"tp", "dp"}));
  EXPECT_EQ(llama().report.memory[0].parameters, held[0].bytes[0]);
  EXPECT_EQ(llama().report.memory[0].optimizer, held[2].bytes[0]);
  // Gradients of fp32 are reduce-scattered once per step, each device sends (dp − 1)/dp; bf16 weights are all-gathered.
  EXPECT_EQ(sent(llama().report, Cargo::Gradients, "reduce-scatter", "dp", 0).value, 4 * stage0 * (kDp - 1) / kDp);
  EXPECT_EQ(sent(llama().report, Cargo::Weights, "all-gather", "dp", 0).value, 2 * stage0 * (kDp - 1) / kDp);
}

// A boundary tensor is b·s·h bf16 numbers, split by tokens over tp.
TEST(ShowStrategy, AStageSendsItsPartOfTheActivations) {
  EXPECT_EQ(llama().report.stages[0].sent_forward.value, kB * kS * kH * 2 / kTp);
  EXPECT_EQ(sent(llama().report, Cargo::Activations, "send", "pp", 0).value, kMicroBatches * kB * kS * kH * 2 / kTp);
  EXPECT_EQ(llama().report.stages[0].modules.size(), 17u);  // embed and 16 layers
}

// (p − 1)/(m + p − 1) = 1/257; stage 0 has p = 2 micro-batches in flight.
TEST(ShowStrategy, TheBubbleIsTheClosedForm) {
  EXPECT_NEAR(llama().report.bubble, 1.0 / 257, 1e-12);
  EXPECT_EQ(llama().report.in_flight, (std::vector<std::int32_t>{2, 1}));
}

// tp and dp stay inside a node of 8, pp goes from node 0 to node 1, each device over its own 400 Gb/s NIC.
TEST(ShowStrategy, GroupsKnowTheirLinks) {
  const std::vector<GroupKind>& groups = llama().report.groups;
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].degree, "tp");
  EXPECT_EQ(groups[0].first, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(groups[1].first, (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(groups[0].most_nodes, 1);
  EXPECT_DOUBLE_EQ(groups[0].together.value, 450e9);
  EXPECT_EQ(groups[2].degree, "pp");
  EXPECT_EQ(groups[2].first, (std::vector<std::int64_t>{0, 8}));
  EXPECT_EQ(groups[2].most_nodes, 2);
  EXPECT_EQ(groups[2].count, 8);
  EXPECT_DOUBLE_EQ(groups[2].together.value, 50e9);
}

// FSDP gathers every weight twice and reduce-scatters every gradient once per micro-batch: 2·2Ψ and 2Ψ bytes of bf16,
// of which a device sends 7/8.
TEST(ShowStrategy, FsdpMovesThreeTimesTheWeights) {
  const Shown one =
      shown({.model = "llama3-8b", .cluster = "dgx-h100:1", .strategy = "fsdp=8,ga=1", .stack = "pytorch-fsdp"});
  const double psi = static_cast<double>(one.plan.stored_parameters());
  const auto gathered = static_cast<double>(sent(one.report, Cargo::Weights, "all-gather", "dp", 0).value);
  const auto scattered = static_cast<double>(sent(one.report, Cargo::Gradients, "reduce-scatter", "dp", 0).value);
  EXPECT_NEAR(scattered / (2 * psi * 7 / 8), 1, 1e-9);
  // The embedding's backward pass needs no table.
  EXPECT_NEAR(gathered / (2 * (2 * psi - 128256.0 * 4096) * 7 / 8), 1, 1e-9);
  EXPECT_EQ(one.report.held[0].cuts.front().first, std::vector<std::string>{"dp"});
}

// Types and bytes are those that the program keeps and sends, for every stack and precision: on one device nothing is
// sharded, so its buffers have the bytes per parameter of the headline.
TEST(ShowStrategy, TellsTheTypesThatAreKept) {
  for (const std::string& stack : stack_names())
    for (const char* const dtype : {"", "bf16", "fp32", "fp8", "amp-fp16"})
      for (const char* const freeze : {"", "layers.0"}) {
        const Shown one = shown({.model = "llama3-8b:hidden=256,heads=4,kv_heads=4,ffn=512,vocab=1024,layers=2",
                                 .cluster = "dgx-h100:1",
                                 .strategy = "dp=1,ga=2",
                                 .seq = 64,
                                 .dtype = dtype,
                                 .devices = {0},
                                 .stack = stack,
                                 .freeze = freeze});
        SCOPED_TRACE(fmt::format("{} {} {}", stack, dtype, freeze));
        const std::int64_t all = one.plan.stored_parameters(), trained = all - one.plan.frozen_parameters();
        std::map<Stored, std::map<DType, std::int64_t>> kept;  // elements in buffers of the program
        const Graph& graph = one.plan.training().graph;
        std::set<TensorId> sums;
        for (const auto& [parameter, sum] : one.plan.training().accumulated) sums.insert(graph.tensors()[sum].storage);
        const Program& program = one.compiled.program;
        for (BufferId id : program.buffers.ids()) {
          const Buffer& buffer = program.buffers[id];
          const Tensor& tensor = graph.tensors()[buffer.tensor];
          const bool weight = buffer.kind == BufferKind::Parameter;
          if (buffer.memory != id || tensor.type.shape.empty() || (!weight && buffer.kind != BufferKind::State))
            continue;
          kept[weight                         ? Stored::Weights
               : sums.contains(buffer.tensor) ? Stored::Gradients
                                              : Stored::Optimizer][tensor.type.dtype] +=
              largest_local_elements(buffer.layout, program.meshes[buffer.layout.mesh]);
        }
        std::vector<std::string> figures;
        for (const Stored kind : {Stored::Weights, Stored::Gradients, Stored::Optimizer}) {
          std::int64_t bytes = 0;
          for (const auto& [type, elements] : kept[kind]) bytes += bytes_of(type, elements);
          figures.push_back(fmt::format("{}", bytes / (kind == Stored::Weights ? all : trained)));
        }
        EXPECT_THAT(one.text(), HasSubstr(fmt::format("= {} bytes per parameter", fmt::join(figures, "+"))));
        for (const HeldKind& held : one.report.held)
          for (const auto& [type, elements] : kept[held.kind])
            EXPECT_THAT(held.types, HasSubstr(std::string(name_of(type))));
      }
}

// Bytes sent are counted in the communication type. FSDP sums in fp32 and sends bf16; Megatron-LM sums in fp32, and
// with ZeRO-2 sends gradients, which are made in bf16, as fp32.
TEST(ShowStrategy, TellsTheTypesThatAreSent) {
  const auto reduced = [](const char* stack, const char* zero) {
    const Shown one = shown({.model = "llama3-8b:layers=2",
                             .cluster = "dgx-h100:1",
                             .strategy = fmt::format("dp=8,ga=1,{}", zero),
                             .stack = stack});
    for (const SyncReport& sync : one.report.syncs)
      if (sync.cargo == Cargo::Gradients) {
        EXPECT_EQ(sync.dtype, stack[0] == 'p' ? DType::BF16 : DType::F32);
      }
    return static_cast<double>(sent(one.report, Cargo::Gradients, "reduce-scatter", "dp", 0).value) /
           (static_cast<double>(one.plan.stored_parameters()) * 7 / 8);
  };
  EXPECT_NEAR(reduced("pytorch-fsdp", "zero=1"), 2, 1e-9);
  EXPECT_NEAR(reduced("megatron-lm", "zero=1"), 4, 1e-9);
  EXPECT_NEAR(reduced("megatron-lm", "zero=2"), 4, 1e-9);
  EXPECT_NEAR(reduced("megatron-lm", "zero=3"), 4, 1e-9);
}

// ResNet-50, data parallel: the fp32 gradients of 25,557,032 parameters, all-reduced: 2 · 7/8 of them sent.
TEST(ShowStrategy, DataParallelReducesEveryGradientOnce) {
  const Shown one = shown({.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "dp=8"});
  EXPECT_EQ(sent(one.report, Cargo::Gradients, "all-reduce", "dp", 0).value, 25557032 * 4 * 2 * 7 / 8);
  EXPECT_EQ(one.report.traffic.size(), 2u);  // and the loss
  EXPECT_THAT(one.text(), HasSubstr("only samples are split"));
}

// The peak of a long schedule is found from a short one of the same kind, unless more is in flight.
TEST(ShowStrategy, PeakMemoryOfManyMicroBatchesIsThatOfAFew) {
  for (const char* strategy :
       {"pp=2,dp=4", "pp=4,dp=2,schedule=gpipe", "pp=2,vpp=2,dp=4", "pp=2,dp=4,schedule=zb-h1", "dp=8,zero=1"}) {
    PlanRequest request{
        .model = "gpt2-124m:layers=4,hidden=32,heads=4,vocab=64", .cluster = "dgx-h100:1", .strategy = strategy};
    request.seq = 16;
    request.global_batch = 8 * 40;
    const Plan plan = make_plan(request).value();
    const CompiledStrategy compiled = compile_plan(plan).value();
    EXPECT_EQ(memory_of(plan, compiled), peak_memory(compiled.program, plan.training(), compiled.schedule)) << strategy;
  }
}

TEST(ShowStrategy, EveryKindOfModelIsSketchedWithinThePage) {
  const std::pair<const char*, PlanRequest> cases[] = {
      {"experts", {.model = "mixtral-8x7b:layers=2", .cluster = "dgx-h100:4", .strategy = "ep=8,tp=2,pp=2,zero=1"}},
      {"tables", {.model = "dlrm", .cluster = "dgx-a100:2", .strategy = "dp=16,tables=1"}},
      {"spatial", {.model = "resnet50", .cluster = "dgx-a100:1", .strategy = "h=2,w=2,dp=2"}},
      {"context", {.model = "llama3-8b:layers=2", .cluster = "dgx-h100:2", .strategy = "tp=2,cp=4,cp_mode=a2a"}},
      {"large", {.model = "gpt3-175b:layers=32", .cluster = "dgx-a100:128", .strategy = "tp=8,pp=16,vpp=2,ga=16"}},
      {"mixed", {.model = "bert-base", .cluster = "dgx1-v100:1+p100x8:1", .strategy = "dp=16"}},
      {"one device", {.model = "gpt2", .cluster = "k80x4:1", .strategy = "dp=4"}},
  };
  for (const auto& [name, request] : cases) {
    const std::string text = shown(request).text();
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), kPageColumns) << name << ": " << line;
    for (const char* part :
         {"parameters", "operators:", "held", "memory at the peak", "sent per device and step", "assumed"})
      EXPECT_THAT(text, HasSubstr(part)) << name;
  }
}

TEST(ShowStrategy, TheTreeIsDrawn) {
  EXPECT_THAT(draw_tree(llama().plan.strategy), HasSubstr("│  └─ *\n"
                                                          "│     ├─ attn\n"
                                                          "│     │  ├─ qkv      n over tp\n"));
}

}  // namespace
}  // namespace weft
