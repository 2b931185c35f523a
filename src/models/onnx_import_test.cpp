#include "models/onnx_import.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

std::string source(const std::string& path) { return std::string(std::getenv("WEFT_SOURCE_DIR")) + "/" + path; }

double forward_flops(const Graph& graph) {
  double total = 0;
  for (OpId op : graph.ops().ids()) total += contraction_flops(graph.signature(op)).value;
  return total;
}

TEST(ImportOnnx, ParametersAndFlopsAreTheExporters) {
  std::ifstream file(source("tests/onnx/expected.json"));
  const nlohmann::json expected = nlohmann::json::parse(file);
  for (const auto& [name, figures] : expected.items()) {
    const auto graph = import_onnx(source("tests/onnx/" + name + ".onnx"), {.batch = 2});
    EXPECT_TRUE(graph.ok()) << graph.error().message;
    if (!graph.ok()) continue;
    fmt::print("{} {} {} {} {}\n", name, graph->parameter_count(), figures["parameters"].get<std::int64_t>(), forward_flops(*graph), figures["contraction_flops_forward"].get<double>());
    EXPECT_EQ(graph->parameter_count(), figures["parameters"].get<std::int64_t>()) << name;
    EXPECT_EQ(forward_flops(*graph), figures["contraction_flops_forward"].get<double>()) << name;
  }
}

}  // namespace
}  // namespace weft
