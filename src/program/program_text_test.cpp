// Programs as text: nothing is lost, the text is readable, and errors in it are reported with place and reason.
#include "program/program_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "program_cases.h"

namespace weft {
namespace {

using testing::HasSubstr;

void expect_survives(const Program& program, const Graph& graph, const std::string& what) {
  const std::string text = print(program, graph);
  const Result<Program> again = parse_program(text, graph, "program");
  ASSERT_TRUE(again.ok()) << what << ": " << again.error().message;
  EXPECT_EQ(again->meshes, program.meshes) << what;
  EXPECT_EQ(again->buffers, program.buffers) << what;
  EXPECT_EQ(again->instructions, program.instructions) << what;
  EXPECT_TRUE(*again == program) << what;
  EXPECT_EQ(print(*again, graph), text) << what;
}

TEST(ProgramText, CompiledProgramsSurviveIt) {
  const std::pair<const char*, const char*> cases[] = {
      {kSmallLlama, "dp=4,zero=3"},
      {kSmallGpt, "tp=2,dp=2"},
      {kSmallLlama, "tp=2,pp=2,dp=2,zero=1,recompute=full,ga=3"},
      {kSmallLlama, "tp=2,pp=2,dp=2,zero=1,schedule=zb-h1,ga=4"},
      {kSmallLlama, "cp=2,dp=2"},
      {kSmallLlama, "cp=4,cp_mode=ring"},
      {kSmallMoe, "tp=2,dp=2,ep=2,zero=1"},
      {"gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "pp=2,vpp=2,ga=4"},
  };
  for (const auto& [model, strategy] : cases) {
    const ProgramCase each = program_case(model, strategy);
    expect_survives(each.program, each.training.graph, fmt::format("{} {}", model, strategy));
  }
}

// Two stages of two tensor-parallel devices: an activation is sent in halves and gathered; computation waits for what
// was sent, and copies from the host for gradients that were written there.
TEST(ProgramText, WaitsAndTransfersInPartsSurviveIt) {
  const CompileOptions options{.transfers = {.overlap = false, .node = std::vector<int>(16, 0)}};
  const ProgramCase each = program_case(kSmallLlama, "tp=2,pp=2,sp=0,ga=3,offload=gradients", 4, "dgx-h100:2", options);
  const std::string text = print(each.program, each.training.graph);
  EXPECT_THAT(text, testing::ContainsRegex(" send: send b[0-9]+ by t0 after #[0-9]+\n.*\n"));
  EXPECT_THAT(text, testing::ContainsRegex(" m1 receive: b[0-9]+ = receive by t0\n"));
  EXPECT_THAT(text, testing::ContainsRegex(" m0 compute: wait after #[0-9]+\n"));
  EXPECT_THAT(text, testing::ContainsRegex(" m0 copy-in weight: wait after #[0-9]+\n"));
  EXPECT_THAT(text, testing::ContainsRegex("all-gather over tp\\(b[0-9]+\\) after #[0-9]+\n"));
  expect_survives(each.program, each.training.graph, "waits");
}

// Parameters and gradients that are copied into buckets and out of them.
TEST(ProgramText, StagedBucketsSurviveIt) {
  CompileOptions options;
  options.gradients.flat = options.parameters.flat = false;
  for (const char* const strategy : {"dp=4", "dp=4,zero=3", "tp=2,dp=2,zero=1"}) {
    const ProgramCase each = program_case(kSmallLlama, strategy, 4, "dgx-h100:2", options);
    EXPECT_THAT(print(each.program, each.training.graph), HasSubstr(" staged"));
    expect_survives(each.program, each.training.graph, strategy);
  }
}

// A convolution over rows in uneven parts, with halos forward and sums of halos backward; optimizer state and
// activations on the host.
TEST(ProgramText, UnevenPartsHalosAndHostBuffersSurviveIt) {
  GraphBuilder b("cnn");
  TensorId x = b.input("image", DType::F32, {4, 2, 12, 8});
  for (const char* name : {"one", "two"}) {
    auto scope = b.scope(name);
    const TensorId w = b.parameter("weight", DType::F32, {4, b.shape(x)[1], 3, 3});
    x = b.op1(OpKind::Conv2d, "conv", {x, w}, {{"pad", std::vector<std::int64_t>{1, 1}}});
  }
  x = b.op1(OpKind::Reduce, "average", {x}, {{"fn", "mean"}, {"dims", std::vector<std::int64_t>{2, 3}}});
  const auto terms = b.op(OpKind::CrossEntropy, "entropy", {x, b.input("labels", DType::I64, {4})});
  b.result(b.op1(OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  const TrainingGraph training = make_training_graph(std::move(b).freeze().value()).value();
  const Graph& graph = training.graph;
  const Placing placing =
      on_one_mesh(graph, Mesh::make({{"rows", 3}}, {DeviceId(4), DeviceId(1), DeviceId(9)}).value());
  ShardingChoices choices{{{}}, {{}}, {""}};
  for (OpId op : graph.ops().ids())
    if (graph.ops()[op].phase == Phase::Forward && graph.kind(op) == OpKind::Conv2d)
      choices.ops[0][op] = {"h", 1, {6, 4, 2}};
  MemoryPlan memory{1, 0b1};
  memory.ratio[0] = {3, 2, 1};
  memory.offload[static_cast<std::size_t>(Stored::Optimizer)] = true;
  memory.offload[static_cast<std::size_t>(Stored::Activations)] = true;
  const ShardingPlan plan = plan_sharding(training, placing, choices).value();
  const auto compiled = [&](Parts parts) {
    return compile(training, placing, plan, {.memory = memory, .uneven_parts = parts}, RecomputeRegions::none(graph))
        .value();
  };
  for (Parts parts : {Parts::Padded, Parts::Grouped}) {
    const Program each = compiled(parts);
    EXPECT_THAT(print(each, graph),
                testing::ContainsRegex(fmt::format("all-gather over rows\\([b0-9, ]+\\) {}", name_of(parts))));
    expect_survives(each, graph, std::string(name_of(parts)));
  }
  const Program program = compiled(Parts::Grouped);
  const std::string text = print(program, graph);
  EXPECT_THAT(text, HasSubstr("mesh m0 rows=3: 4, 1, 9\n"));
  EXPECT_THAT(text, HasSubstr("12:rows(3+2+1)-1+1]"));
  EXPECT_THAT(text, HasSubstr("12:rows(3+2+1)Σ-1+1]"));
  EXPECT_THAT(text, HasSubstr(" on host\n"));
  EXPECT_THAT(text, HasSubstr(" = halo-sum over rows("));
  EXPECT_THAT(text, HasSubstr(" = copy(b"));
  expect_survives(program, graph, "cnn");
}

// A program of two devices by hand: x·w with w in two parts, the sum all-reduced, sent on.
class TinyText : public testing::Test {
 protected:
  static Graph make_graph() {
    GraphBuilder b("tiny");
    const TensorId w = b.parameter("w", DType::F32, {8, 6});
    b.result(b.op1(OpKind::Linear, "fc", {b.input("x", DType::F32, {4, 8}), w}));
    return std::move(b).freeze().value();
  }
  const Graph graph = make_graph();
  const std::string text =
      "program of tiny\n"
      "mesh m0 dp=1 tp=2: 0, 1\n"
      "mesh m1: 2\n"
      "mesh m2 world=3: 0…2\n"
      "world m2\n"
      "buffer b0 input x m0 [4][8:tp]\n"
      "buffer b1 parameter w m0 [8:tp][6]\n"
      "buffer b2 temporary fc.y m0 [4][6] P(tp)\n"
      "buffer b3 temporary fc.y m0 [4][6]\n"
      "buffer b4 saved fc.y m1 [4][6]\n"
      "transfer t0: b3 -> b4\n"
      "stage 0 forward:\n"
      "  #0 m0 compute: b2 = op fc(b0, b1) by k:tp\n"
      "  #1 m0: free b0 after #0\n"
      "  #2 m0 tensor: b3 = all-reduce over tp(b2) after #0\n"
      "  #3 m0: free b2 after #2\n"
      "  #4 m0 send: send b3 by t0 after #2\n"
      "  #5 m0: free b3 after #4\n"
      "  #6 m1 receive: b4 = receive by t0\n"
      "stage 0 backward:\n"
      "  #7 m1 weight: free b4 after #6\n"
      "step:\n";

  std::string problem(const std::string& line, const std::string& instead) const {
    std::string broken = text;
    const std::size_t at = broken.find(line);
    EXPECT_NE(at, std::string::npos) << line;
    broken.replace(at, line.size(), instead);
    const Result<Program> program = parse_program(broken, graph, "p.weft");
    return program.ok() ? "" : program.error().message;
  }
};

TEST_F(TinyText, IsReadAsItStands) {
  const Result<Program> program = parse_program(text, graph, "p.weft");
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_EQ(print(*program, graph), text);
  EXPECT_EQ(program->meshes[MeshId(2)].size(), 3);
  const Instruction& reduce = program->instructions[InstructionId(2)];
  EXPECT_EQ(reduce.stream, Stream::Tensor);
  EXPECT_EQ(reduce.after, InstructionList{InstructionId(0)});
  EXPECT_EQ(std::get<Communicate>(reduce.what),
            (Communicate{Collective::AllReduce, axis_set(1), Reducer::Sum, {BufferId(2)}, {BufferId(3)}}));
  EXPECT_TRUE(program->instructions[InstructionId(7)].weight_part);
}

// Everything that a program can express, including what the compiler rarely emits.
TEST_F(TinyText, KeepsWhatIsRare) {
  Program program = parse_program(text, graph, "p.weft").value();
  auto& compute = std::get<Compute>(program.instructions[InstructionId(0)].what);
  compute.sharding.outer = {1, 2, 1};
  compute.sharding.partial = 0b11;
  compute.sharding.partial_inputs = 0b101;
  expect_survives(program, graph, "blocks and partial inputs");
  compute.sharding.outer = {1, 1, 1};
  compute.sharding.partial_inputs = ~std::uint64_t{0};
  compute.sharding.mesh = MeshId(2);
  compute.sharding.partial = 0;
  compute.sharding.axes = {{}, {{0, {1, 2, 3}, 0, 0, true}}, {}};
  program.buffers[BufferId(2)].layout.partial[0] = Reducer::Max;
  program.buffers[BufferId(2)].layout.partial[1] = Reducer::SoftmaxMerge;
  program.buffers[BufferId(3)].layout.local = 0b10;
  program.buffers[BufferId(3)].layout.dims[1] = {{2, {}}, {3, {}}};
  program.buffers[BufferId(1)].memory = BufferId(4);
  program.buffers[BufferId(0)].storage = BufferId(3);
  program.buffers[BufferId(0)].memory = BufferId(2);
  program.instructions[InstructionId(1)].stream = Stream::Data;
  program.instructions[InstructionId(1)].guard = Guard::FirstMicroBatch;
  std::get<Communicate>(program.instructions[InstructionId(2)].what).reducer = Reducer::LogSumExp;
  program.stages[0].backward.push_back(InstructionId(3));  // twice
  program.stages[0].forward.erase(program.stages[0].forward.begin());
  program.stages.emplace_back();
  std::swap(program.stages[0].forward[1], program.stages[0].forward[2]);
  expect_survives(program, graph, "all kinds of things");
}

TEST_F(TinyText, TellsWhereAndWhatIsWrong) {
  EXPECT_THAT(problem("program of tiny", "program of huge"), HasSubstr("p.weft:1: expected 'program of tiny'"));
  EXPECT_THAT(problem("0, 1\n", "0, 0\n"), HasSubstr("p.weft:2: device 0 is in the mesh twice"));
  EXPECT_THAT(problem("0, 1\n", "0…4\n"), HasSubstr("p.weft:2: a mesh of 2 positions needs as many devices, not 5"));
  EXPECT_THAT(problem("0, 1\n", "0…2000000000\n"), HasSubstr("p.weft:2: the meshes name more than 2097152 devices"));
  EXPECT_THAT(problem("tp=2", "tp=99999999999"), HasSubstr("p.weft:2: expected a mesh axis such as dp=2"));
  EXPECT_THAT(problem("mesh m1", "mesh m7"), HasSubstr("p.weft:3: mesh m7: the next one is m1"));
  EXPECT_THAT(problem("world m2", "world m9"), HasSubstr("p.weft:5: mesh m9: there are m0 to m2"));
  EXPECT_THAT(problem("input x", "input y"), HasSubstr("p.weft:6: 'y' is not in the graph"));
  EXPECT_THAT(problem("[8:tp]", "[8:np]"), HasSubstr("p.weft:6: expected a mesh axis (dp, tp), found 'np]'"));
  EXPECT_THAT(problem("[8:tp]", "[99999999999999999999]"), HasSubstr("p.weft:6: expected a number below 2^63"));
  EXPECT_THAT(problem("buffer b4", "buffer b3"), HasSubstr("p.weft:10: buffer b3: the next one is b4"));
  EXPECT_THAT(problem("m1 [4][6]", "m1 [4][6] views b77"), HasSubstr("p.weft:10: buffer b77: there are b0 to b4"));
  EXPECT_THAT(problem("#0 m0 compute", "#0 m0 turbo"), HasSubstr("p.weft:13: expected a stream"));
  EXPECT_THAT(problem("op fc(", "op gc("), HasSubstr("p.weft:13: 'gc' is not in the graph"));
  EXPECT_THAT(problem("by k:tp", "by j:tp"), HasSubstr("p.weft:13: expected an axis of the operator"));
  EXPECT_THAT(problem("(b0, b1)", "(b0, b12)"), HasSubstr("p.weft:13: buffer b12: there are b0 to b4"));
  EXPECT_THAT(problem("over tp", "over pp"),
              HasSubstr("p.weft:15: expected 'over' and axes of mesh m0, such as 'over dp,cp'"));
  EXPECT_THAT(problem("over tp", "over tp,tp"), HasSubstr("p.weft:15: expected 'over' and axes of mesh m0"));
  EXPECT_THAT(problem("free b2 after #2", "free b2 after #88"), HasSubstr("p.weft:16: instruction #88 is not there"));
  EXPECT_THAT(problem("#5 m0", "#4 m0"), HasSubstr("p.weft:18: instruction #4 is there twice"));
  EXPECT_THAT(problem("#5 m0", "#50 m0"), HasSubstr("p.weft:18: instruction #50: there are 8"));
  EXPECT_THAT(problem("b4 = receive", "b3 = receive"), HasSubstr("p.weft:19: transfer t0 is of b4 here, not of b3"));
  EXPECT_THAT(problem("stage 0 backward", "stage 1 backward"), HasSubstr("p.weft:20: stage 1 backward"));
  EXPECT_THAT(problem("step:\n", ""), HasSubstr("no step; end with 'step:'"));
}

TEST_F(TinyText, CollectivesOverSeveralAxesAreReadAsTheyAreWritten) {
  std::string joint = text;
  joint.replace(joint.find("over tp"), 7, "over dp,tp");
  const Program program = parse_program(joint, graph, "p.weft").value();
  EXPECT_EQ(std::get<Communicate>(program.instructions[InstructionId(2)].what).axes, 0b11u);
  EXPECT_EQ(print(program, graph), joint);
}

TEST_F(TinyText, OneDeviceSeesItsOwnPartsAndGroups) {
  const Program program = parse_program(text, graph, "p.weft").value();
  EXPECT_EQ(print_for(program, graph, DeviceId(1)),
            "device 1\n"
            "in mesh m0: dp 0 of 1 tp 1 of 2\n"
            "in mesh m2: world 1 of 3\n"
            "stage 0 forward:\n"
            "  #0 compute: b2 fc.y f32[4,6] = linear fc (b0 x f32[4,4], b1 w f32[4,6])\n"
            "  #1: free b0 x f32[4,4] after #0\n"
            "  #2 tensor: b3 fc.y f32[4,6] = all-reduce over tp {0, 1} (b2 fc.y f32[4,6]) after #0\n"
            "  #3: free b2 fc.y f32[4,6] after #2\n"
            "  #4 send: send t0 to m1 (b3 fc.y f32[4,6]) after #2\n"
            "  #5: free b3 fc.y f32[4,6] after #4\n");
}

// Any layout, sensible or not, on mesh axes of which one name is a prefix of another.
RC_GTEST_PROP(LayoutText, ParseOfPrintIsIdentity, ()) {
  const Mesh mesh =
      Mesh::make({{"x", 2}, {"xy", 2}, {"tp", 1}}, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)}).value();
  const auto below = [](int limit) { return *rc::gen::inRange(0, limit); };
  Layout layout{MeshId(0), {}, PartialAxes(3), static_cast<MeshAxes>(below(8))};
  for (auto& reducer : layout.partial)
    if (below(2)) reducer = static_cast<Reducer>(below(4));
  layout.dims.resize(static_cast<std::size_t>(below(4)));
  for (DimLayout& dim : layout.dims) {
    dim.resize(static_cast<std::size_t>(below(3)));
    for (Factor& factor : dim) {
      factor.size = 2 + below(1000);
      factor.cuts.resize(static_cast<std::size_t>(below(3)));
      for (Cut& cut : factor.cuts) {
        const int axis = below(3);
        cut = {axis, {}, below(3), below(3), below(2) == 1, axis == 2 ? 0 : below(2)};
        for (int i = below(4); i > 0; --i) cut.shares.push_back(below(100));
      }
    }
  }
  const std::string text = print(layout, mesh) + " and more";
  std::string_view rest = text;
  const Result<Layout> again = parse_layout(rest, MeshId(0), mesh);
  RC_ASSERT(again.ok());
  RC_ASSERT(*again == layout);
  RC_ASSERT(rest == " and more");
}

TEST(ProgramText, NamesThatTwoTensorsHaveAreNumbers) {
  GraphBuilder b("twins");
  TensorId leaf;
  {
    auto scope = b.scope("fc");
    leaf = b.input("y", DType::F32, {4, 8});  // fc.y, as what operator fc makes
  }
  b.result(b.op1(OpKind::Unary, "fc", {leaf}, {{"fn", "relu"}}));
  const Graph graph = std::move(b).freeze().value();
  ASSERT_EQ(graph.name(TensorId(0)), graph.name(TensorId(1)));
  const std::string text =
      "program of twins\nmesh m0: 0\nworld m0\nbuffer b0 input @0 m0 [4][8]\nbuffer b1 temporary @1 m0 [4][8]\n"
      "stage 0 forward:\n  #0 m0 compute: b1 = op fc(b0)\nstage 0 backward:\nstep:\n";
  const Result<Program> program = parse_program(text, graph, "p");
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_EQ(print(*program, graph), text);
}

}  // namespace
}  // namespace weft
