// How many samples a step has, and how they are cut into replicas and micro-batches.
//
// Defaults: language models take about 4 M tokens per step, rounded to whole micro-batches of all replicas; others 32
// samples per device. A micro-batch that nobody gave has one sample per replica, or what 32 per device leave to it.
// Saying a default aloud changes nothing: 32 samples per device that were asked for are cut as those that were not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "strategy/shorthand.h"
#include "strategy/tree.h"

namespace weft {

// Default steps: of language models "about 4 M" tokens (Llama 3: 4 M at first, then more), of others so many samples.
inline constexpr std::int64_t kTokensPerStep = std::int64_t{1} << 22;
inline constexpr std::int64_t kSamplesPerDevice = 32;

// A schedule is a table of them.
inline constexpr std::int64_t kMostMicroBatches = std::int64_t{1} << 20;

struct BatchPlan {
  std::int64_t replicas = 1;       // that samples are spread over: dp
  std::int64_t micro_batch = 1;    // samples per replica; of uneven replicas, per share
  std::int64_t micro_batches = 1;  // per step
  std::int64_t last_micro_batch = 1;
  std::int64_t global_batch = 1;
  std::optional<std::int64_t> shares = {};  // of replicas that get uneven shares of the samples: their sum

  std::int64_t graph_batch() const { return micro_batch * shares.value_or(replicas); }
  std::int64_t last_graph_batch() const { return last_micro_batch * shares.value_or(replicas); }
  bool operator==(const BatchPlan&) const = default;
};

// What a default batch depends on.
struct BatchDefaults {
  bool tokens = false;  // counted in tokens
  std::int64_t seq = 0;
};

// Shorthand with everything settled, batch included. Adds what it chose to the assumptions.
Result<Parallelism> complete_with_batch(const Shorthand& shorthand, std::int64_t devices, BatchRequest request,
                                        const BatchDefaults& defaults, std::vector<std::string>& assumptions);
BatchPlan batch_of(const Parallelism& parallelism);
// What the shorthand of a parallelism leaves to defaults, for people.
std::vector<std::string> defaults_of(const Shorthand& shorthand, const Parallelism& parallelism);

// A strategy file has its count of micro-batches; the samples of each come from the request.
Result<BatchPlan> batch_of_file(const Strategy& strategy, std::int64_t devices, const BatchRequest& request,
                                const BatchDefaults& defaults, std::vector<std::string>& assumptions);

}  // namespace weft
