// Operators that multiply and add: almost all of a network's FLOPs.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "graph/declaration.h"

namespace weft {
namespace {

// "g=8 r=4" → sizes of axes.
Result<std::vector<std::pair<std::string, std::int64_t>>> parse_sizes(std::string_view text) {
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view item = text.substr(0, end);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return error("axis size '{}': write axis=size", item);
    WEFT_TRY(const std::int64_t size, parse_integer(item.substr(equals + 1), "axis size"));
    sizes.emplace_back(std::string(item.substr(0, equals)), size);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return sizes;
}

Result<Declaration> matmul(const Attrs& attrs, Inputs inputs) {
  Declaration declaration{
      .notation = std::string(attrs.text("notation", "a[...,m,k] b[...,k,n] -> y[...,m,n]")),
      .sample = "b ...",
      .linear = "a b",
      .contractions = "*",
      .gradients = {"grad_a: dy b -> da [*]", "grad_b: dy a -> db [*]"},
  };
  WEFT_TRY(declaration.sizes, parse_sizes(attrs.text("axes", "")));
  for (std::string_view operand : {"a[", " b[", "-> y["})
    if (declaration.notation.find(operand) == std::string::npos)
      return error("matmul: notation '{}': the operands are a, b -> y", declaration.notation);
  if (inputs.size() != 2) return error("matmul: takes 2 inputs, not {}", inputs.size());
  return declaration;
}

}  // namespace

WindowSizes windows_of(const Attrs& attrs, std::size_t rank) {
  const std::vector<std::int64_t> ones(rank, 1), pad = attrs.integers("pad", std::vector<std::int64_t>(2 * rank, 0));
  WindowSizes windows{.stride = attrs.integers("stride", ones), .dilation = attrs.integers("dilation", ones)};
  // pad = [low, …] for both ends, or [low, …, high, …].
  for (std::size_t i = 0; i < rank; ++i) {
    windows.pad_low.push_back(i < pad.size() ? pad[i] : 0);
    windows.pad_high.push_back(pad.size() == 2 * rank ? pad[rank + i] : i < pad.size() ? pad[i] : 0);
  }
  return windows;
}

namespace {

Declaration conv(std::string notation, std::string whole, const Attrs& attrs, std::size_t rank) {
  return {
      .notation = std::move(notation),
      .sizes = {{"g", attrs.integer("groups", 1)}},
      .windows = windows_of(attrs, rank),
      .whole = std::move(whole),
      .linear = "x w",
      .contractions = "*",
      .gradients = {"grad_input: dy w -> dx [*]", "grad_weight: dy x -> dw [*]"},
  };
}

Result<Declaration> attention(const Attrs& attrs, Inputs inputs) {
  const std::int64_t heads = attrs.integer("heads", 0), kv_heads = attrs.integer("kv_heads", heads);
  if (heads <= 0 || kv_heads <= 0 || heads % kv_heads != 0)
    return error("attention: heads={} must be a positive multiple of kv_heads={}", heads, kv_heads);
  if (const std::int64_t parts = attrs.integer("zigzag", 1); parts != 1) {
    if (inputs.size() < 2 || inputs[0].shape.size() != 3 || inputs[1].shape.size() != 3)
      return error("attention: takes q, k and v of rank 3");
    const std::int64_t queries = inputs[0].shape[1], keys = inputs[1].shape[1];
    if (parts < 1 || parts > keys || queries != keys || keys % (2 * parts) != 0)
      return error("attention: zigzag={} needs as many queries as keys, in 2·{} chunks; there are {} and {}", parts,
                   parts, queries, keys);
  }
  return Declaration{
      // g groups of r query heads share a key/value head: MHA r = 1, MQA g = 1. e: query/key size, d: value size (MLA:
      // e ≠ d).
      .notation = "q[b,q,g.r.e] k[b,t,g.e] v[b,t,g.d] -> y[b,q,g.r.d] lse[b,g.r,q]:f32",
      .sizes = {{"g", kv_heads}, {"r", heads / kv_heads}},
      .whole = "e d",
      .parameter = "g r",
      .contractions = "b.g.r.q.t.e b.g.r.q.t.d",
      .reducers = "y:softmax-merge lse:logsumexp",
      .gradients = {"grad: dy q k v y lse -> dq dk dv [b.g.r.q.t.e b.g.r.q.t.e b.g.r.q.t.d b.g.r.q.t.d]"},
  };
}

const OpEntry kOperators[] = {
    {OpKind::Linear, "linear", "transposed:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return Declaration{
           // Transposed: the weight is stored [out, in], as a tied embedding table is.
           .notation = attrs.integer("transposed", 0) ? "x[...,k] w[n,k] -> y[...,n]" : "x[...,k] w[k,n] -> y[...,n]",
           .sample = "...",
           .linear = "x w",
           .contractions = "*",
           .gradients = {"grad_input: dy w -> dx [*]", "grad_weight: dy x -> dw [*]"},
       };
     }},
    {OpKind::ExpertLinear, "expert_linear", "imbalance:num ragged:str",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       // Dropless: which operand's rows come from tokens or go to them, so many as have chosen the expert.
       const std::string_view ragged = attrs.text("ragged", "in");
       if (ragged != "in" && ragged != "out") return error("expert_linear: ragged '{}': write in or out", ragged);
       return Declaration{
           // "...": the rows routed to an expert, by their groups (declarations_routing.cpp).
           .notation = "x[e,...,k] w[e,k,n] -> y[e,...,n]",
           .sample = "...",
           .parameter = "e",
           .linear = "x w",
           .contractions = "*",
           .gradients = {"grad_input: dy w -> dx [*]", "grad_weight: dy x -> dw [*]"},
       };
     }},
    {OpKind::Matmul, "matmul", "notation:str axes:str", matmul},
    {OpKind::Conv1d, "conv1d", "stride:ints dilation:ints pad:ints groups:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return conv("x[b,g.c,s~ks] w[g.o,c,ks] -> y[b,g.o,s]", "ks", attrs, 1);
     }},
    {OpKind::Conv2d, "conv2d", "stride:ints dilation:ints pad:ints groups:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return conv("x[b,g.c,h~kh,w~kw] w[g.o,c,kh,kw] -> y[b,g.o,h,w]", "kh kw", attrs, 2);
     }},
    {OpKind::Attention, "attention",
     "heads:int kv_heads:int causal:int scale:num window:int softcap:num dropout:num alibi:int zigzag:int", attention},
    {OpKind::LstmCell, "lstm_cell", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{
           // a: the four gates (input, forget, cell, output). i, m: the reduction axes; gates are not linear in their
           // sums, so these stay whole.
           .notation = "x[b,i] h[b,m] c[b,n] wi[i,a.n] wh[m,a.n] bias[a.n] -> hn[b,n] cn[b,n] gates[b,a.n]",
           .sizes = {{"a", 4}},
           .whole = "a i m",
           .contractions = "b.i.a.n b.m.a.n",
           .pointwise = 8,
           .gradients = {"grad: dhn dcn x h c wi wh gates cn -> dx dh dc dwi dwh dbias "
                         "[b.i.a.n b.m.a.n b.i.a.n b.m.a.n]"},
       };
     }},
    {OpKind::DotInteraction, "dot_interaction", "",
     [](const Attrs&, Inputs inputs) -> Result<Declaration> {
       if (inputs.size() != 1 || inputs[0].shape.size() != 3 || inputs[0].shape[1] < 2)
         return error("dot_interaction: takes one input [batch, features ≥ 2, size]");
       const std::int64_t features = inputs[0].shape[1];
       return Declaration{
           // p: pairs of features; computed as the full f × f product, of which the lower triangle is kept (DLRM).
           .notation = "x[b,f,d] -> y[b,p]",
           .sizes = {{"f2", features}, {"p", features * (features - 1) / 2}},
           .whole = "f f2 p",
           .contractions = "b.f.f2.d",
           .gradients = {"grad: dy x -> dx [b.f.f2.d b.f.f2.d]"},
       };
     }},
};

}  // namespace

std::span<const OpEntry> contraction_operators() { return kOperators; }

}  // namespace weft
