// What every trainer's file offers to export.cpp: one entry a target.
#pragma once

#include "export/export.h"
#include "models/transformer.h"

namespace weft {

// A job whose strategies are to be said, and the decoder that it trains.
struct ExportSubject {
  const TrainingJob& job;
  std::optional<TransformerConfig> decoder = {};  // none: another kind of model
};

struct TargetFunctions {
  // Why no strategy of the job can be said; why this one cannot. None: it can.
  std::optional<std::string> (*no_strategy)(const ExportSubject&);
  std::optional<std::string> (*why_not)(const ExportSubject&, const Parallelism&);
  // Of a strategy that can be said.
  Result<std::string> (*write)(const ExportSubject&, const Parallelism&, const ExportOptions&);
  Result<ImportedRun> (*read)(std::string_view text, std::string_view file);
};

extern const TargetFunctions kMegatron, kDeepSpeed, kTorchtitan, kPyTorch;

// Features that no target has.
std::optional<std::string> unusual(const Parallelism& strategy);
// Why the stack of `words` would execute the strategy otherwise than the job's; none: all knobs of consequence agree.
std::optional<std::string> other_stack(const TrainingJob& job, const Parallelism& strategy, const std::string& words,
                                       std::string_view usual);
// The devices of every node that a job uses; an error where nodes differ.
Result<std::int64_t> devices_per_node(const TrainingJob& job);

}  // namespace weft
