// Shorthand: a strategy in one line, `tp=8,pp=16,dp=8,vpp=2,zero=1,sp=1,recompute=selective,mbs=1`.
//
//   parse_shorthand(text)                     the keys as written
//   complete(shorthand, devices, batch)       every degree and count determined; the model is then built with
//                                             Parallelism::graph_batch() samples, one micro-batch of all replicas
//   expand(parallelism, graph)                the strategy tree, by the presets
//
// Keys: tp cp pp dp degrees (default 1; one may be left out of the product and is inferred, dp unless it is given) · ep
// and etp, degrees of experts (below) · vpp model chunks per pipeline rank · zero 0…3 · fsdp and replicate, hybrid
// sharding: dp = fsdp·replicate, zero=3 · sp 0 or 1, sequence parallelism (default 1 if tp > 1) · cp_mode gather, a2a,
// ring · recompute none, selective, full, op · full modules that are also recomputed as a whole, layers.*.mlp
// (joined by +); both also in so many first layers of every stage alone, op:12, layers.*.mlp:12, or in a number of each
// stage, layers.*.mlp:4+6x3+2 · mbs micro-batch per replica · ga micro-batches per step · schedule · stages layers per stage, 8+8+7+9,
// alike ones counted, 1+62x2+1 · shares samples of each replica relative to the others, 3+3+1+1 or 2x3+2x1 (mbs is then
// per share) · order of ranks, innermost first, tp-cp-ep-dp-pp · offload optimizer, gradients, weights, activations
// (joined by +), of some modules activations:layers.*.mlp · h and w, degrees of image height and width · tables=1, embedding tables
// split over dp (DLRM).
//
// Experts have degrees of their own on the same devices (Megatron Core's parallel folding): each is split over `etp` of
// the tp devices (default all of them) and whole experts are distributed over `ep` devices; ep divides tp/etp·cp·dp.
// Layers with experts number their ranks etp, ep, then the replicas of an expert, innermost first: an ep group takes
// the nearest devices, first tp/etp devices of tp, then those of cp, then of dp. With tp=8,etp=1,ep=8 it is the tp
// group. Every part of the sequence (cp, and tp with sp=1) is a routing group of its own: an all-to-all over ep, an
// all-gather over etp, the products, and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"
#include "strategy/tree.h"

namespace weft {

// A kind of tensors kept in the host's memory, of some modules or of all.
struct Offload {
  Stored kind{};
  std::string modules = {};  // a glob; empty: all

  bool operator==(const Offload&) const = default;
};

// Modules that are recomputed as a whole.
struct Recomputed {
  std::string modules;  // a glob
  // In so many first layers of every stage: a number for all stages, or one for each; empty: in all layers. What is
  // outside of layers is not limited.
  std::vector<std::int64_t> layers = {};

  bool operator==(const Recomputed&) const = default;
};
// These modules in all layers.
std::vector<Recomputed> in_all_layers(const std::vector<std::string>& modules);
// "layers.*.mlp:12": as the shorthand writes it.
std::string print(const Recomputed& recomputed);
std::string print_modules(const std::vector<Recomputed>& recomputed);  // joined by +

struct Shorthand {
  std::optional<std::int64_t> tp, cp, pp, dp, ep, etp, vpp, zero, fsdp, replicate, sp, mbs, ga, h, w, tables;
  std::optional<ContextMode> cp_mode;
  std::optional<Recompute> recompute;
  std::vector<std::int64_t> recompute_layers;  // as Recomputed::layers
  std::string schedule;                        // empty: by pp and vpp
  std::vector<std::int64_t> stages, shares;
  std::vector<std::string> order;
  std::vector<Recomputed> full;
  std::vector<Offload> offload;

  bool operator==(const Shorthand&) const = default;
};

// Bounds that keep every product of a degree, a micro-batch and a count of them within 64 bits.
inline constexpr std::int64_t kMostDegree = std::int64_t{1} << 24, kMostBatch = std::int64_t{1} << 19;
inline constexpr std::int64_t kMostGlobalBatch = std::int64_t{1} << 40;

// Errors name the item and the remedy.
Result<Shorthand> parse_shorthand(std::string_view text);
std::string print(const Shorthand& shorthand);  // parse∘print = identity

// "1+62x2+1": runs of at least three alike numbers are counted.
std::string print_counted(const std::vector<std::int64_t>& numbers);

// Whether a strategy argument is a file: it ends in .yaml or .yml, or has no `=`.
bool names_a_file(std::string_view argument);

struct BatchRequest {
  std::optional<std::int64_t> global_batch = {};  // samples per step
  std::optional<std::int64_t> micro_batch = {};   // per replica, from the command line
  bool smaller_last = false;                      // the stack allows a smaller last micro-batch
};

// A shorthand with all degrees and counts determined.
struct Parallelism {
  std::int64_t tp = 1, cp = 1, pp = 1, dp = 1, h = 1, w = 1;  // dp excludes cp
  std::int64_t ep = 1, etp = 1;                               // etp divides tp, and ep tp/etp·cp·dp
  std::int64_t vpp = 1;
  int zero = 0;
  std::int64_t fsdp = 1;  // the devices over which ZeRO shards: dp unless hybrid sharding
  bool sequence_parallel = false, tables = false;
  ContextMode cp_mode = ContextMode::Gather;
  Recompute recompute = Recompute::None;
  std::vector<std::int64_t> recompute_layers = {};  // as Recomputed::layers
  std::int64_t micro_batch = 1, micro_batches = 1;
  std::int64_t last_micro_batch = 1;  // smaller if the batch does not divide and the stack allows it
  std::string schedule = "1f1b";
  std::vector<std::int64_t> stages = {};
  std::vector<std::int64_t> shares = {};  // of the samples, by replica, without a common divisor; empty: equal
  std::vector<std::string> order = {};
  std::vector<Recomputed> full = {};
  std::vector<Offload> offload = {};

  std::int64_t world() const { return tp * cp * pp * dp * h * w; }
  // That a micro-batch of all replicas has `micro_batch` samples of: the replicas, or the sum of their shares.
  std::int64_t units() const;
  std::int64_t graph_batch() const { return micro_batch * units(); }
  std::int64_t global_batch() const { return units() * (micro_batch * (micro_batches - 1) + last_micro_batch); }
  // The degrees by which the sequence is cut, nested, major first; empty: it is whole. Every part routes its own tokens
  // to experts, so the model is built with these groups.
  std::vector<std::int64_t> sequence_cuts() const;
  bool operator==(const Parallelism&) const = default;
};

Result<Parallelism> complete(const Shorthand& shorthand, std::int64_t devices, const BatchRequest& batch = {});

// "tp=4,pp=4,dp=8,vpp=5,zero=1,sp=1,mbs=1": what `weft simulate --strategy` takes.
Shorthand shorthand_of(const Parallelism& parallelism);

// The tree. Mesh axes, major first: pp, dp (with hybrid sharding: replicate, fsdp), cp, tp, and h, w for images; axes
// of size 1 are left out. Degrees of experts refine them: tp becomes tp·etp·eptp, cp becomes cp·ecp and dp becomes
// dp·ep, and experts are distributed over eptp, ecp and ep.
Strategy expand(const Parallelism& parallelism, const Graph& graph);

}  // namespace weft
