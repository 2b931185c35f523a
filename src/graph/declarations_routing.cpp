// Lookup by index, and the routing of tokens to experts.
//
// The tokens of each of b samples form n groups of t. Within a group each token picks j of e experts; an expert takes
// at most c rows of a group (its capacity), in token order. Dropless routing has no limit: c is then the average number
// of rows, instead of the true, data-dependent one.
//
// `groups` may be a product, groups=[2,4] where the sequence is cut into 2 parts and each again into 4 (context and
// sequence parallelism): tokens x[b, n0.n1.t], expert buffers y[e, b, n0, n1, c, k]. As every cut of the tokens is a
// dimension of its own in the buffers, resharding from split tokens to split experts is exactly one all-to-all.
#include <fmt/format.h>

#include "graph/declaration.h"

namespace weft {
namespace {

// The group axes of the attribute `groups`: "n0.n1" in a dimension of tokens, "n0,n1" as dimensions of a buffer.
struct Groups {
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  std::string product, dims, sample = "b";

  explicit Groups(const Attrs& attrs) {
    for (std::int64_t size : attrs.integers("groups", {1})) {
      const std::string axis = fmt::format("n{}", sizes.size());
      product += (sizes.empty() ? "" : ".") + axis;
      dims += (sizes.empty() ? "" : ",") + axis;
      sample += " " + axis;
      sizes.emplace_back(axis, size);
    }
  }
};

// The group axes, with the sizes of `experts` and `capacity`.
Result<Groups> routing(std::string_view op, const Attrs& attrs) {
  const std::int64_t experts = attrs.integer("experts", 0), capacity = attrs.integer("capacity", 0);
  if (experts <= 0 || capacity <= 0)
    return error("{}: experts={} and capacity={} must be positive", op, experts, capacity);
  Groups groups(attrs);
  groups.sizes.emplace_back("e", experts);
  groups.sizes.emplace_back("c", capacity);
  return groups;
}

const OpEntry kOperators[] = {
    {OpKind::Embedding, "embedding", "pool:str to:str",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const std::string_view pool = attrs.text("pool", "none");
       if (pool != "none" && pool != "sum") return error("embedding: pool '{}': write none or sum", pool);
       WEFT_TRY(const std::string type, output_type(attrs));
       return Declaration{
           // Splitting the vocabulary v: each shard looks up what it has and adds zero for the rest.
           // Pooled: the l rows of a bag are added (DLRM).
           .notation = (pool == "sum" ? "ids[...,l] table[v,d] -> y[...,d]" : "ids[...] table[v,d] -> y[...,d]") + type,
           .sample = "...",
           .linear = "table",
           .pointwise = pool == "sum" ? 1.0 : 0.0,
           .gradients = {"grad_weight: dy ids -> dtable"},
       };
     }},
    {OpKind::Router, "router", "top_k:int score:str normalize:int scale:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const std::string_view score = attrs.text("score", "softmax");
       if (score != "softmax" && score != "sigmoid")
         return error("router: score '{}': write softmax or sigmoid", score);
       return Declaration{
           .notation = "x[...,e] -> weights[...,j] index[...,j]:i64",
           .sizes = {{"j", attrs.integer("top_k", 1)}},
           .sample = "...",
           .whole = "e j",
           .pointwise = 8,
           .gradients = {"grad: dweights x index -> dx"},
       };
     }},
    {OpKind::AuxLoss, "aux_loss", "groups:ints coefficient:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const Groups groups(attrs);
       return Declaration{
           // Switch Transformer's load-balancing loss of each group, averaged over the groups of the global batch.
           .notation = fmt::format("x[b,{0}.t,e] index[b,{0}.t,j] -> loss[]:f32", groups.product),
           .sizes = groups.sizes,
           .sample = groups.sample,
           .whole = "t e j",
           .pointwise = 6,
           .gradients = {"grad: dloss x index -> dx"},
       };
     }},
    {OpKind::Dispatch, "dispatch", "experts:int capacity:int groups:ints dropless:int expert_groups:int top_groups:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       WEFT_TRY(const Groups groups, routing("dispatch", attrs));
       return Declaration{
           .notation = fmt::format("x[b,{0}.t,k] index[b,{0}.t,j] -> y[e,b,{1},c,k]", groups.product, groups.dims),
           .sizes = groups.sizes,
           .sample = groups.sample,
           .whole = "t j c",
           .parameter = "e",
           .linear = "x",
           .pointwise = 1,
           .gradients = {"grad: dy index -> dx"},
       };
     }},
    {OpKind::DispatchWeights, "dispatch_weights",
     "experts:int capacity:int groups:ints dropless:int expert_groups:int top_groups:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       WEFT_TRY(const Groups groups, routing("dispatch_weights", attrs));
       return Declaration{
           // The weight of each row, sent along with it.
           .notation = fmt::format("weights[b,{0}.t,j] index[b,{0}.t,j] -> y[e,b,{1},c]", groups.product, groups.dims),
           .sizes = groups.sizes,
           .sample = groups.sample,
           .whole = "t j c",
           .parameter = "e",
           .linear = "weights",
           .pointwise = 1,
           .gradients = {"grad: dy index -> dweights"},
       };
     }},
    {OpKind::WeighRows, "weigh_rows", "",
     [](const Attrs&, Inputs) -> Result<Declaration> {
       return Declaration{
           .notation = "x[e,...,f] weights[e,...] -> y[e,...,f]",
           .sample = "...",
           .parameter = "e",
           .linear = "x weights",
           .pointwise = 1,
           .gradients = {"grad_x: dy weights -> dx", "grad_weights: dy x -> dweights"},
       };
     }},
    {OpKind::Combine, "combine",
     "experts:int capacity:int groups:ints dropless:int expert_groups:int top_groups:int weighed:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       WEFT_TRY(const Groups groups, routing("combine", attrs));
       if (attrs.integer("weighed", 0))  // the rows are multiplied by their weights already
         return Declaration{
             .notation = fmt::format("y[e,b,{1},c,k] index[b,{0}.t,j] -> z[b,{0}.t,k]", groups.product, groups.dims),
             .sizes = groups.sizes,
             .sample = groups.sample,
             .whole = "t j c",
             .linear = "y",
             .pointwise = 1,
             .gradients = {"grad_y: dz index -> dy"},
         };
       return Declaration{
           .notation = fmt::format("y[e,b,{1},c,k] weights[b,{0}.t,j] index[b,{0}.t,j] -> z[b,{0}.t,k]", groups.product,
                                   groups.dims),
           .sizes = groups.sizes,
           .sample = groups.sample,
           .whole = "t j c",
           .linear = "y weights",
           .pointwise = 2,
           .gradients = {"grad_y: dz weights index -> dy", "grad_weights: dz y index -> dweights"},
       };
     }},
};

}  // namespace

std::span<const OpEntry> routing_operators() { return kOperators; }

}  // namespace weft
