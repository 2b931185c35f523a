// How every forward operator is split, and what it communicates: the rows of `weft show strategy`. Equal layers are one
// section.
#pragma once

#include <string>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"
#include "report/traffic.h"

namespace weft {

// A collective of one micro-batch, or a few equal ones at the same place.
struct OperatorMove {
  Collective collective{};
  std::string group;
  Cargo cargo{};
  Bytes bytes;
  bool backward = false;
  bool before = false;  // it makes an input of the operator; otherwise it moves the operator's output
  std::string of;       // the backward product it belongs to: "grad_weight"; empty: the operator itself

  bool operator==(const OperatorMove&) const = default;
};

struct OperatorSplit {
  std::string axis;               // of the operator
  std::vector<std::string> over;  // mesh axes, major first
  bool samples = false;           // a sample axis: a loss is summed over it
  std::string role;               // "column", "row", "heads", "experts"; empty: none

  bool operator==(const OperatorSplit&) const = default;
};

struct OperatorRow {
  std::string name;  // within its section: "attn.qkv"
  std::string kind;
  std::vector<OperatorSplit> splits;
  std::vector<std::string> inputs, weights, outputs;  // local shapes, marked with the mesh axes that cut them
  bool recomputed = false;
  std::vector<OperatorMove> moves = {};

  bool operator==(const OperatorRow&) const = default;
};

// One layer, or several equal ones; or the operators outside of layers on one stage.
struct OperatorSection {
  std::string name;                  // "layers.0…15", "embed"; the first of the layers
  std::vector<std::string> layers;   // empty: outside of layers
  std::vector<std::int64_t> stages;  // that have such layers
  std::vector<OperatorRow> rows;
};

std::vector<OperatorSection> operator_sections(const Plan& plan, const CompiledStrategy& compiled);

// "[1·dp,8192,1536·tp] Σtp": the local shape; a size with ·tp is one of tp parts, Σtp a partial sum over tp.
std::string marked_shape(const Layout& layout, const Mesh& mesh);

// "layers.0…15 (16×)" of names that count up, else joined by commas.
std::string folded_names(const std::vector<std::string>& names);

}  // namespace weft
