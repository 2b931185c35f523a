// How many samples a step has, and how they are divided among replicas and micro-batches.
//
// Defaults: language models take about 4 M tokens per step, rounded to whole micro-batches of all replicas; others 32
// samples per device. The default micro-batch is one sample per replica for language models, and what 32 samples per
// device amount to for others. Stating a default explicitly changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "strategy/shorthand.h"
#include "strategy/tree.h"

namespace weft {

// Default global batches: about 4 M tokens for language models (Llama 3: 4 M at first, then more), else 32 samples per
// device.
inline constexpr std::int64_t kTokensPerStep = std::int64_t{1} << 22;
inline constexpr std::int64_t kSamplesPerDevice = 32;

// Most micro-batches of a step: a schedule is a table of them.
inline constexpr std::int64_t kMostMicroBatches = std::int64_t{1} << 20;

struct BatchPlan {
  std::int64_t replicas = 1;       // over which samples are divided: dp
  std::int64_t micro_batch = 1;    // samples per replica, or per share where replicas have uneven shares
  std::int64_t micro_batches = 1;  // per step
  std::int64_t last_micro_batch = 1;
  std::int64_t global_batch = 1;
  std::optional<std::int64_t> shares = {};  // sum of uneven shares of the samples; none: even

  std::int64_t graph_batch() const { return micro_batch * shares.value_or(replicas); }
  std::int64_t last_graph_batch() const { return last_micro_batch * shares.value_or(replicas); }
  bool operator==(const BatchPlan&) const = default;
};

// What a default batch depends on.
struct BatchDefaults {
  bool tokens = false;  // the batch is counted in tokens
  std::int64_t seq = 0;
};

// The shorthand with all defaults filled in, the batch's included; each is added to the assumptions.
Result<Parallelism> complete_with_batch(const Shorthand& shorthand, std::int64_t devices, BatchRequest request,
                                        const BatchDefaults& defaults, std::vector<std::string>& assumptions);
BatchPlan batch_of(const Parallelism& parallelism);
// Assumptions: the defaults that the shorthand of a parallelism leaves out.
std::vector<std::string> defaults_of(const Shorthand& shorthand, const Parallelism& parallelism);

// A strategy file gives the number of micro-batches; their size comes from the request.
Result<BatchPlan> batch_of_file(const Strategy& strategy, std::int64_t devices, const BatchRequest& request,
                                const BatchDefaults& defaults, std::vector<std::string>& assumptions);

}  // namespace weft
