// Layout rules: what splitting one axis of an operator over the devices of one mesh axis does to each operand.
//
//   split an axis that indexes the operand          → the operand is split
//   split an axis that an input lacks               → the input is replicated
//   split an axis that an output lacks              → the output is partial, combined by its reducer
//
// A layout on a mesh of several axes (layout/layout.h) follows from one placement per mesh axis; the rules act on each
// independently.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/signature.h"

namespace weft {

struct Placement {
  enum class Kind : std::uint8_t {
    Replicated,
    Split,    // along `dim`, seen as `outer` blocks each of which is cut
    Partial,  // every device holds a contribution; `reducer` combines them
    Local,    // every device holds a value of its own, meaningful only there (BatchNorm statistics)
  };
  Kind kind = Kind::Replicated;
  int dim = 0;
  std::int64_t outer = 1;
  // Elements of the neighbours' parts that a device needs (inputs), or to which it contributes a sum (outputs).
  std::int64_t halo_low = 0, halo_high = 0;
  Reducer reducer = Reducer::Sum;

  bool operator==(const Placement&) const = default;

  static Placement replicated() { return {}; }
  static Placement split(int dim, std::int64_t outer = 1) { return {.kind = Kind::Split, .dim = dim, .outer = outer}; }
  static Placement partial(Reducer reducer = Reducer::Sum) {
    Placement placement;
    placement.kind = Kind::Partial;
    placement.reducer = reducer;
    return placement;
  }
};
std::string print(
    const Placement& placement);  // "R", "S(1)", "S(1/8)" in 8 blocks, "S(2,-1+1)" with halo, "P", "P(max)", "L"

struct LayoutRule {
  int axis = -1;  // the axis that is split; −1: none (all replicated, or partial inputs passed through)
  std::vector<Placement> inputs, outputs;
};

// How splitting an axis splits this operand of the signature; none when the axis does not index it.
std::optional<Placement> operand_split(const Signature& signature, const Operand& operand, int axis);
// Whether the axis can be split at all: not whole, more than one element, and it indexes some operand.
bool splittable(const Signature& signature, int axis);
// The rule of splitting a splittable axis.
LayoutRule split_rule(const Signature& signature, int axis);
// Every rule of the operator: nothing split, each splittable axis, each group of inputs it is linear in.
std::vector<LayoutRule> layout_rules(const Signature& signature);
// The rule whose inputs are exactly these (ignoring halos); none when the inputs must be resharded first.
std::optional<LayoutRule> rule_for(const Signature& signature, std::span<const Placement> inputs);

// The communication volume, forward and backward, of splitting an axis of a forward operator n ways, symbolically
// (SMSG): every tensor that lacks the axis is all-reduced once, 2(n−1)/n of it sent by each device; windows exchange
// halos.
struct VolumeTerm {
  std::string operand;     // "y" or "dw"
  std::string expression;  // "k·n"
  std::int64_t elements = 0;
};
struct SplitVolume {
  std::vector<VolumeTerm> all_reduced;
  std::vector<VolumeTerm> halo;  // elements each device sends to its neighbours

  // Elements one device sends when the axis is split over n devices.
  double elements_sent(int n) const;
};
SplitVolume split_volume(const Signature& forward, int axis);
std::string print(const SplitVolume& volume);  // "2(n-1)/n·(k·n)", "0"

}  // namespace weft
