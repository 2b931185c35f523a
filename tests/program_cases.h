// Compiled programs, for tests of passes over programs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "cluster/cluster.h"
#include "compile/from_strategy.h"
#include "models/models.h"
#include "strategy/shorthand.h"

namespace weft {

struct ProgramCase {
  TrainingGraph training;
  Program program;
  Schedule schedule;
};

// The product of the degrees in a shorthand.
inline std::int64_t devices_named(const Shorthand& shorthand) {
  std::int64_t devices = 1;
  for (const auto& degree :
       {shorthand.tp, shorthand.pp, shorthand.cp, shorthand.dp, shorthand.fsdp, shorthand.replicate})
    devices *= degree.value_or(1);
  return devices;
}

// The model; with experts, every part of the sequence routes its own tokens.
inline std::string routed_model(const std::string& model, const Parallelism& parallelism) {
  const std::vector<std::int64_t> cuts = parallelism.sequence_cuts();
  if (cuts.empty() || describe_model(model).value().experts == 0) return model;
  return fmt::format("{},groups={}", model, fmt::join(cuts, "x"));
}

// The training graph of a micro-batch.
inline Graph routed_graph(const std::string& model, const Parallelism& parallelism, std::optional<std::int64_t> seq,
                          DType dtype = DType::BF16) {
  return build_model(routed_model(model, parallelism), {.batch = parallelism.graph_batch(), .seq = seq, .dtype = dtype})
      .value();
}

// A model compiled by a strategy in shorthand, on as many devices as its degrees multiply to.
inline ProgramCase program_case(const std::string& model, const std::string& strategy, std::int64_t seq = 4,
                                const std::string& cluster = "dgx-h100:2", const CompileOptions& options = {},
                                DType dtype = DType::BF16, const TrainingOptions& trained = {}) {
  const Shorthand shorthand = parse_shorthand(strategy).value();
  const Parallelism parallelism = complete(shorthand, devices_named(shorthand)).value();
  Graph graph = routed_graph(model, parallelism, seq, dtype);
  const Strategy expanded = expand(parallelism, graph);
  TrainingGraph training = make_training_graph(std::move(graph), trained).value();
  const ResolvedStrategy resolved = resolve(expanded, training, parse_cluster(cluster).value()).value();
  CompiledStrategy compiled = compile_strategy(training, resolved, options).value();
  return {std::move(training), std::move(compiled.program), std::move(compiled.schedule)};
}

inline const char* const kSmallLlama = "llama3-8b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=24,vocab=16";
inline const char* const kSmallGpt = "gpt2-124m:layers=2,hidden=16,heads=4,vocab=16,dropout=0.1";
inline const char* const kSmallMoe =
    "mixtral-8x7b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=8,vocab=16,experts=4,capacity_factor=2";

}  // namespace weft
