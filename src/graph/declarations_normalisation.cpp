// Operators that normalise, pool or reduce.
#include <fmt/format.h>

#include <algorithm>

#include "graph/declaration.h"

namespace weft {
namespace {

Result<Declaration> reduce(const Attrs& attrs, Inputs inputs) {
  if (inputs.size() != 1) return error("reduce: takes 1 input, not {}", inputs.size());
  const std::string_view fn = attrs.text("fn", "sum");
  if (fn != "sum" && fn != "mean" && fn != "max") return error("reduce: fn '{}': write sum, mean or max", fn);
  const auto rank = static_cast<std::int64_t>(inputs[0].shape.size());
  const std::vector<std::string> names = axis_names_for_rank(inputs[0].shape.size());
  std::vector<std::int64_t> dims = attrs.integers("dims", {});
  if (!attrs.has("dims"))
    for (std::int64_t d = 0; d < rank; ++d) dims.push_back(d);
  for (std::int64_t d : dims)
    if (d < 0 || d >= rank) return error("reduce: dimension {} of an input with {}", d, rank);
  std::vector<std::string> kept;
  for (std::int64_t d = 0; d < rank; ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!reduced) kept.push_back(names[static_cast<std::size_t>(d)]);
    if (reduced && attrs.integer("keep", 0)) kept.push_back("1");
  }
  return Declaration{
      .notation = fmt::format("x[{}] -> y[{}]", fmt::join(names, ","), fmt::join(kept, ",")),
      .linear = fn == "max" ? "" : "x",
      .pointwise = 1,
      .reducers = fn == "max" ? "y:max" : "",
      .gradients = {fn == "max" ? "grad: dy x y -> dx" : "grad: dy -> dx"},
  };
}

Result<Declaration> pool2d(const Attrs& attrs, Inputs) {
  const std::string_view fn = attrs.text("fn", "max");
  if (fn != "max" && fn != "avg") return error("pool2d: fn '{}': write max or avg", fn);
  const std::vector<std::int64_t> kernel = attrs.integers("kernel", {});
  if (kernel.size() != 2) return error("pool2d: kernel=[height,width] missing");
  Declaration declaration{
      .notation = "x[b,c,h~kh,w~kw] -> y[b,c,h,w]",
      .sizes = {{"kh", kernel[0]}, {"kw", kernel[1]}},
      .windows = windows_of(attrs, 2),
      .whole = "kh kw",
      .linear = fn == "avg" ? "x" : "",
      .pointwise = 1,
      .gradients = {fn == "avg" ? "grad: dy -> dx" : "grad: dy x -> dx"},
  };
  declaration.windows.ceil = attrs.integer("ceil", 0) != 0;
  if (!attrs.has("stride")) declaration.windows.stride = kernel;
  return declaration;
}

const OpEntry kOperators[] = {
    {OpKind::BatchNorm, "batch_norm", "eps:num",
     [](const Attrs&, Inputs inputs) -> Result<Declaration> {
       if (inputs.size() != 3 || (inputs[0].shape.size() != 2 && inputs[0].shape.size() != 4))
         return error("batch_norm: takes x[b,c] or x[b,c,h,w], gamma[c] and beta[c]");
       const bool spatial = inputs[0].shape.size() == 4;
       return Declaration{
           .notation = spatial ? "x[b,c,h,w] gamma[c] beta[c] -> y[b,c,h,w] mean[c]:f32 rstd[c]:f32"
                               : "x[b,c] gamma[c] beta[c] -> y[b,c] mean[c]:f32 rstd[c]:f32",
           .pointwise = 8,
           // Statistics are a shard's own when samples or positions are split: what frameworks do without sync_bn.
           .local = "mean:b,h,w rstd:b,h,w",
           .gradients = {"grad: dy x gamma mean rstd -> dx dgamma dbeta"},
       };
     }},
    {OpKind::LayerNorm, "layer_norm", "eps:num bias:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       if (attrs.integer("bias", 1) == 0)
         return Declaration{
             .notation = "x[...,d] gamma[d] -> y[...,d] mean[...]:f32 rstd[...]:f32",
             .sample = "...",
             .whole = "d",
             .pointwise = 8,
             .gradients = {"grad: dy x gamma mean rstd -> dx dgamma"},
         };
       return Declaration{
           .notation = "x[...,d] gamma[d] beta[d] -> y[...,d] mean[...]:f32 rstd[...]:f32",
           .sample = "...",
           .whole = "d",
           .pointwise = 8,
           .gradients = {"grad: dy x gamma mean rstd -> dx dgamma dbeta"},
       };
     }},
    {OpKind::RmsNorm, "rms_norm", "eps:num heads:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return Declaration{
           // heads > 1 normalises each head on its own (query/key norm).
           .notation = "x[...,h.d] gamma[d] -> y[...,h.d] rstd[...,h]:f32",
           .sizes = {{"h", attrs.integer("heads", 1)}},
           .sample = "...",
           .whole = "d",
           .pointwise = 5,
           .gradients = {"grad: dy x gamma rstd -> dx dgamma"},
       };
     }},
    {OpKind::Softmax, "softmax", "causal:int scale:num window:int",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{
           // Causal: position t of row q is masked when t > q, q the last dimension but one; in a window of w also when
           // q − t ≥ w.
           .notation = "x[...,t] -> y[...,t]", .sample = "b", .whole = "t", .pointwise = 5,
           .gradients = {"grad: dy y -> dx"},
       };
     }},
    {OpKind::Pool2d, "pool2d", "fn:str kernel:ints stride:ints pad:ints dilation:ints ceil:int include_pad:int",
     pool2d},
    {OpKind::Reduce, "reduce", "fn:str dims:ints keep:int", reduce},
    {OpKind::CrossEntropy, "cross_entropy", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{
           // Loss per row = lse − picked, the logit of the target; both combine over a split vocabulary.
           .notation = "x[...,v] target[...] -> lse[...]:f32 picked[...]:f32",
           .sample = "...",
           .pointwise = 4,
           .reducers = "lse:logsumexp",
           .gradients = {"grad: dlse dpicked x target lse -> dx"},
       };
     }},
    {OpKind::NllLoss, "nll_loss", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{
           // Mean over all rows of the global batch, so that shards' losses add.
           .notation = "lse[...] picked[...] -> loss[]:f32",
           .linear = "lse+picked",
           .pointwise = 2,
           .gradients = {"grad: dloss -> dlse dpicked"},
       };
     }},
    {OpKind::BceLoss, "bce_loss", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{
           // Binary cross-entropy of logits, mean over all elements of the global batch.
           .notation = "x[...] target[...] -> loss[]:f32",
           .pointwise = 6,
           .gradients = {"grad: dloss x target -> dx"},
       };
     }},
};

}  // namespace

std::span<const OpEntry> normalisation_operators() { return kOperators; }

}  // namespace weft
