// A measured event: an operator or a collective on a device, and its time (DistSim's unique events).
//
//   computation     an operator of Weft with its attributes, the types of its inputs and the product that was timed:
//                   linear {transposed=1} "bf16[4096,1024] bf16[4096,1024]" bf16 grad_weight
//   communication   a collective of `bytes` bytes among `members` devices on `nodes` nodes: all-reduce 1048576 8 1
//
// `variant` names the kernel or library, `cache` whether its data was in the device's caches (cold, warm).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/operators.h"

namespace weft {

struct Event {
  std::string device = {};  // as its driver calls it: "NVIDIA H200"
  std::string stack = {};   // software and its versions: "torch 2.11.0+cu130"
  std::string op = {};      // "linear", "all-reduce"
  std::string variant = {}, cache = {};
  std::string attributes = {};  // "{causal=1, heads=16}", as print(Attrs) writes them
  std::string shapes = {};      // types of the inputs: "bf16[4096,1024] bf16[4096,1024]"
  std::string dtype = {};       // of the arithmetic: "bf16", "tf32"
  std::string direction = {};   // "forward", or a gradient's name: "grad_weight"
  // Of communications: bytes as in cost/cost.h's CommunicateQuery, and the group's shape. Between nodes: nodes > 1.
  std::int64_t bytes = 0, members = 1, nodes = 1, most_per_node = 1;

  auto operator<=>(const Event&) const = default;
};

// Runs of an event at one time.
struct Sample {
  double mean_s = 0;    // seconds of one run
  double spread_s = 0;  // standard deviation of single runs
  std::int64_t count = 0;
  std::string date = {};    // "2026-11-15", or with a time; empty: unknown
  std::string source = {};  // the file it came from

  auto operator<=>(const Sample&) const = default;
};

struct MeasuredEvent {
  Event event;
  std::vector<Sample> samples;  // one or more

  bool operator==(const MeasuredEvent&) const = default;
};

// Several samples as one: means weighted by their counts, the standard deviation of all runs, the latest date.
Sample pooled(const std::vector<Sample>& samples);

bool is_communication(const Event& event);

// The operator that a computation's event ran. Errors name the operator, attribute, type or direction at fault.
Result<Signature> signature_of(const Event& event);

// Checks an event, and a sample: numbers in range, a known operator with inputs that fit it, or a collective.
Status check(const Event& event);
Status check(const Sample& sample);

// Operators whose inputs from the second on are parameters.
bool has_weights(OpKind kind);

}  // namespace weft
