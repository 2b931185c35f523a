// How an operator is declared. The tables are in declarations_*.cpp; operators.cpp turns them into signatures.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/operators.h"

namespace weft {

// Stride, dilation and padding of the windows of a notation, one entry per windowed axis in order of appearance.
struct WindowSizes {
  std::vector<std::int64_t> stride = {}, dilation = {}, pad_low = {}, pad_high = {};
  bool ceil = false;  // a last, partly padded window counts (ceil_mode)
};

// The string fields are lists separated by spaces.
struct Declaration {
  std::string notation;
  std::vector<std::pair<std::string, std::int64_t>> sizes = {};  // axes that the inputs' shapes alone do not determine
  WindowSizes windows = {};
  std::string sample = "b";       // sample axes; "..." stands for those of the ellipsis
  std::string whole = "";         // axes that cannot be split
  std::string parameter = "";     // parameter axes beyond those that index a weight and the output (attention heads)
  std::string linear = "";        // inputs in which the operator is linear; "a+b": jointly
  std::string contractions = "";  // "*": all axes; or products like "b.q.t"; each costs 2·Π FLOPs
  double pointwise = 0;           // other arithmetic per element
  std::string reducers = "";      // "lse:logsumexp": outputs whose partial results do not simply add
  std::string local = "";         // "mean:b,h,w": outputs that stay a shard's own when one of these axes is split
  std::string aliases = "";       // "y:x": output y shares the storage of input x
  bool parameter_shaped = false;  // the ellipsis stands for a parameter's dimensions: axes i0, i1, …
  std::vector<std::string> gradients = {};  // "grad_weight: dy x -> dw [contractions]", or "x = dy": passes through
};

using Inputs = std::span<const TensorType>;

struct OpEntry {
  OpKind kind;
  std::string_view name;
  std::string_view attrs;  // "stride:ints groups:int fn:str p:num": every attribute the operator takes, with its type
  Result<Declaration> (*declare)(const Attrs&, Inputs);
};

std::span<const OpEntry> contraction_operators();
std::span<const OpEntry> normalisation_operators();
std::span<const OpEntry> pointwise_operators();
std::span<const OpEntry> routing_operators();
std::span<const OpEntry> movement_operators();
std::span<const OpEntry> training_operators();

// The windows that the attributes `stride`, `dilation` and `pad` (low ends, then high ends) describe.
WindowSizes windows_of(const Attrs& attrs, std::size_t rank);

// The type of an output as notation, ":f32", where the attribute `to` gives one; else empty.
Result<std::string> output_type(const Attrs& attrs);

// Axis names for a tensor of `rank` dimensions when only the rank is known: b,d · b,s,d · b,c,h,w · i0,i1,….
std::vector<std::string> axis_names_for_rank(std::size_t rank);

}  // namespace weft
