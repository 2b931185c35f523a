// The strategy tree: how a model is split, stored and scheduled, as plain data.
//
// The tree is the model's own tree of modules and operators; a *rule* attaches configurations to the nodes that its
// glob names. There are three kinds (Proteus): computation — which axis of an operator each mesh axis splits —, memory
// — over which mesh axes weights, gradients, optimizer state and saved activations are sharded, or whether they are
// offloaded to the host — and recomputation. Configurations are inherited from the root down, field by field: a deeper
// node wins over a shallower, among rules for one node the one with fewer wildcards, then the later. Operators without
// a rule are split by propagation (layout/sharding.h). Stages and micro-batches belong to the root: the schedule.
//
// Written by hand or by presets.h, read and written by yaml.h, made from `tp=8,pp=2` by shorthand.h, applied to a model
// and a cluster by resolve.h.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "layout/mesh.h"
#include "strategy/glob.h"

namespace weft {

// The line of a file in which an item was written; 0: not from a file. All lines compare equal, so that strategies
// compare by meaning.
struct Line {
  int number = 0;

  bool operator==(const Line&) const { return true; }
};

// One mesh axis over an operator: the axis it splits.
struct Split {
  std::string axis;                      // empty: the operator is not split by the mesh axis
  std::int64_t outer = 1;                // the number of blocks each of which is split: 2 for a packed gate and value
  std::vector<std::int64_t> ratio = {};  // uneven shares, one per coordinate of the mesh axis: 3 2 1

  bool operator==(const Split&) const = default;
};

// One mesh axis over the graph's inputs: the dimension it splits.
struct InputSplit {
  int dim = 0;                           // −1: not split by the mesh axis
  std::vector<std::int64_t> ratio = {};  // as in Split

  bool operator==(const InputSplit&) const = default;
};

enum class Stored : std::uint8_t { Weights, Gradients, Optimizer, Activations };
inline constexpr int kStoredKinds = 4;
std::string_view name_of(Stored kind);

struct Storage {
  std::optional<std::vector<std::string>> over = {};  // mesh axes of sharding beyond the split of the computation
  std::optional<bool> offload = {};                   // to the host's memory
  // By mesh axis of `over`: uneven shares, so that a device with more memory keeps more.
  std::map<std::string, std::vector<std::int64_t>> ratio = {};

  bool operator==(const Storage&) const = default;
};

enum class Recompute : std::uint8_t {
  None,
  Selective,  // core attention only
  Full,       // the whole node, from its inputs; at the root: each layer separately
  Op,         // contractions are saved, everything else is recomputed
};
std::string_view name_of(Recompute recompute);
std::optional<Recompute> recompute_named(std::string_view name);

// FlexFlow's configuration of one operator: a degree per axis and the devices of the parts, the last axis fastest.
struct OpPlacement {
  std::vector<MeshAxis> degrees;
  std::vector<std::int64_t> devices;

  bool operator==(const OpPlacement&) const = default;
};

struct Rule {
  std::string match;
  std::optional<std::int64_t> route = {};         // of the schedule: the rule is for its micro-batches alone
  std::map<std::string, Split> compute = {};      // by mesh axis
  std::map<std::string, InputSplit> inputs = {};  // by mesh axis
  std::array<Storage, kStoredKinds> memory = {};
  std::optional<Recompute> recompute = {};
  std::optional<OpPlacement> place = {};
  Line line = {};

  Storage& stored(Stored kind) { return memory[static_cast<std::size_t>(kind)]; }
  const Storage& stored(Stored kind) const { return memory[static_cast<std::size_t>(kind)]; }
  bool operator==(const Rule&) const = default;
};

struct MeshDeclaration {
  std::vector<MeshAxis> axes;              // major first: the order in which axes cut a dimension that several split
  std::vector<std::string> order = {};     // of rank numbering, innermost first; empty: the last axis first
  std::vector<std::int64_t> devices = {};  // by rank; empty: 0, 1, 2, …
  Line line = {};

  int size_of(std::string_view axis) const;  // 1 when there is none
  bool operator==(const MeshDeclaration&) const = default;
};

// A pipeline stage: a number of layers, or its modules; with a mesh of its own if stages differ.
struct Stage {
  std::optional<std::int64_t> layers = {};
  std::vector<std::string> modules = {};  // globs
  std::optional<MeshDeclaration> mesh = {};
  Line line = {};

  bool operator==(const Stage&) const = default;
};

// A route of micro-batches through a pipeline of its own, beside others: a replica of another shape.
struct RouteConfig {
  std::int64_t stages = 1;         // of the schedule's, the first route's first
  std::int64_t micro_batches = 1;  // that take it
  Line line = {};

  bool operator==(const RouteConfig&) const = default;
};

struct ScheduleConfig {
  std::string name = "1f1b";
  std::int64_t micro_batches = 1;        // of all routes
  std::int64_t interleave = 1;           // model chunks per pipeline rank
  std::vector<Stage> stages = {};        // none: the layers are cut evenly
  std::vector<RouteConfig> routes = {};  // none: all micro-batches take one
  Line line = {};

  bool operator==(const ScheduleConfig&) const = default;
};

// How attention over a split sequence receives the keys and values of the other parts.
enum class ContextMode : std::uint8_t {
  Gather,    // all-gather them
  AllToAll,  // all-to-all from a split of the sequence to one of the heads, and back (Ulysses)
  Ring,      // rotate them around a ring, merging partial softmaxes
};
std::string_view name_of(ContextMode mode);
std::optional<ContextMode> context_mode_named(std::string_view name);

// The mesh axis of pipeline parallelism; all others split operators.
inline constexpr std::string_view kPipelineAxis = "pp";

struct Strategy {
  MeshDeclaration mesh;
  ScheduleConfig schedule = {};
  std::map<std::string, std::string> reduce_onto = {};  // mesh axis → operator axis: sequence parallelism, tp → s
  Line reduce_onto_line = {};
  ContextMode context = ContextMode::Gather;
  Line context_line = {};
  std::vector<Rule> rules = {};

  bool operator==(const Strategy&) const = default;
};

// The degrees by which the strategy cuts the sequence, nested, major first; empty: it is whole. Cuts of the inputs'
// tokens (context parallelism) are one factor, those of sequence parallelism another. The tokens of each part are
// routed to experts separately: a model with experts is built with these groups.
std::vector<std::int64_t> sequence_cuts(const Strategy& strategy);

// An inherited field of a node, with the rule it comes from.
template <class T>
struct Inherited {
  T value{};
  std::size_t rule = 0;
  int depth = 0;  // components of the node that the rule names
};
struct NodeConfig {
  std::map<std::string, Inherited<Split>> compute;
  std::map<std::string, Inherited<InputSplit>> inputs;
  std::array<std::optional<Inherited<std::vector<std::string>>>, kStoredKinds> over;
  std::array<std::optional<Inherited<bool>>, kStoredKinds> offload;
  std::array<std::map<std::string, Inherited<std::vector<std::int64_t>>>, kStoredKinds> ratio;
  std::optional<Inherited<Recompute>> recompute;
  std::optional<Inherited<OpPlacement>> place;
};

// The rules, indexed for look-ups by name. Holds a reference to the strategy.
class Inheritance {
 public:
  // Of the rules for all routes, and those for this one.
  explicit Inheritance(const Strategy& strategy, std::optional<std::int64_t> route = {});

  // The configuration of a module, operator or tensor by name. Cost: rules with wildcards × components, and one look-up
  // per component for the others.
  NodeConfig of(std::string_view name) const;

 private:
  const Strategy& strategy_;
  std::vector<std::pair<Glob, std::size_t>> globs_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> literal_;
};

}  // namespace weft
