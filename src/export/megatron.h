// Megatron-LM core 0.20.0 (NVIDIA/Megatron-LM d98e8a64dd): a job and a strategy as arguments of pretrain_gpt.py, and
// back. Each part is written and read in one file, so that the two stay each other's inverse.
#pragma once

#include "export/arguments.h"
#include "export/export.h"
#include "models/transformer.h"

namespace weft {

// The model's shape.
Status write_shape(const TransformerConfig& config, Arguments& into);
Result<TransformerConfig> read_shape(const Arguments& arguments, std::vector<std::string>& notes);

// Number types, and what the software stack does: "megatron-lm:gradient_overlap=false".
struct MegatronHabits {
  std::string dtype, stack;
};
Status write_habits(const SoftwareStack& stack, const Precision& precision, const TransformerConfig& config,
                    const Parallelism& strategy, Arguments& into);
Result<MegatronHabits> read_habits(const Arguments& arguments, std::vector<std::string>& notes);

// Degrees, stages, batch, recomputation, sharding. `why_not` has the rules on combinations.
std::optional<std::string> megatron_rule_broken(const TransformerConfig& config, std::int64_t seq,
                                                const Parallelism& strategy);
void write_strategy(const TransformerConfig& config, std::int64_t seq, const Parallelism& strategy, Arguments& into);
Result<Shorthand> read_strategy_arguments(const Arguments& arguments, const TransformerConfig& config);

// The decoder that a job trains; the error says why Megatron-LM has none such.
Result<TransformerConfig> decoder_of(const TrainingJob& job);

// All arguments of a strategy of a job: the strategy must have passed the rules.
Result<Arguments> megatron_arguments_of(const TrainingJob& job, const TransformerConfig& config,
                                        const Parallelism& strategy);
std::string megatron_script(const TrainingJob& job, const Parallelism& strategy, const Arguments& arguments,
                            const std::vector<std::string>& kept);
Result<ImportedRun> import_megatron(std::string_view text, std::string_view file);

// "([0]*2+[1])*8": a list of zeros and ones, one per layer, in Python's notation.
Result<std::vector<int>> read_layer_pattern(std::string_view text, std::int64_t layers);
std::string write_layer_pattern(const std::vector<int>& pattern);

}  // namespace weft
