// Any bytes as a program for a tiny graph: an error, or a program that survives printing and that the verifier accepts
// or refuses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "graph/training.h"
#include "program/program_text.h"
#include "program/verify.h"

namespace {

// Two linear layers and a loss, with backward and optimizer.
weft::TrainingGraph tiny() {
  weft::GraphBuilder b("tiny");
  weft::TensorId x = b.input("x", weft::DType::F32, {4, 8});
  for (const char* name : {"one", "two"}) {
    auto scope = b.scope(name);
    x = b.op1(weft::OpKind::Linear, "fc", {x, b.parameter("weight", weft::DType::F32, {8, 8})});
  }
  const auto terms = b.op(weft::OpKind::CrossEntropy, "entropy", {x, b.input("labels", weft::DType::I64, {4})});
  b.result(b.op1(weft::OpKind::NllLoss, "loss", {terms[0], terms[1]}));
  return weft::make_training_graph(std::move(b).freeze().value()).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const weft::TrainingGraph training = tiny();
  const weft::Graph& graph = training.graph;
  const auto program = weft::parse_program({reinterpret_cast<const char*>(data), size}, graph, "fuzz");
  if (!program.ok()) return 0;
  WEFT_CHECK(weft::parse_program(weft::print(*program, graph), graph, "again").value() == *program);
  const auto stages = static_cast<std::int32_t>(program->stages.size());
  if (stages < 1 || stages > 64) return 0;
  for (const char* schedule : {"gpipe", "zb-h1"})
    if (weft::verify(*program, graph, weft::make_schedule({schedule, stages, 3, 0}).value()).ok())
      for (weft::DeviceId device : program->meshes[program->world].devices())
        if (device.index() < 4) WEFT_CHECK(!weft::print_for(*program, graph, device).empty());
  return 0;
}
