// Lookup by index, and the routing of tokens to experts.
//
// Tokens x[b, n.t] form b·n groups of t tokens. Within a group each token picks j of e experts; an expert takes at most
// c rows of a group (its capacity), in token order. Expert buffers y[e, b.n.c, k] keep the group axes, so that
// splitting groups on one side and experts on the other is exactly an all-to-all. Dropless routing has no limit: c is
// then the average number of rows, which stands for the true, data-dependent one.
#include "base/checked.h"
#include "graph/declaration.h"

namespace weft {
namespace {

struct Routing {
  std::vector<std::pair<std::string, std::int64_t>> sizes;
};

Result<Routing> routing(std::string_view op, const Attrs& attrs) {
  const std::int64_t experts = attrs.integer("experts", 0), capacity = attrs.integer("capacity", 0);
  const std::int64_t groups = attrs.integer("groups", 1);
  if (experts <= 0 || capacity <= 0 || groups <= 0)
    return error("{}: experts={}, capacity={} and groups={} must be positive", op, experts, capacity, groups);
  return Routing{{{"e", experts}, {"c", capacity}, {"n", groups}}};
}

const OpEntry kOperators[] = {
    {OpKind::Embedding, "embedding", "pool:str",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       const std::string_view pool = attrs.text("pool", "none");
       if (pool != "none" && pool != "sum") return error("embedding: pool '{}': write none or sum", pool);
       return Declaration{
           // Splitting the vocabulary v: each shard looks up what it has and adds zero for the rest.
           // Pooled: the l rows of a bag are added (DLRM).
           .notation = pool == "sum" ? "ids[...,l] table[v,d] -> y[...,d]" : "ids[...] table[v,d] -> y[...,d]",
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
    {OpKind::AuxLoss, "aux_loss", "groups:int coefficient:num",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       return Declaration{
           // Switch Transformer's load-balancing loss of each group, averaged over the groups of the global batch.
           .notation = "x[b,n.t,e] index[b,n.t,j] -> loss[]:f32",
           .sizes = {{"n", attrs.integer("groups", 1)}},
           .sample = "b n",
           .whole = "t e j",
           .pointwise = 6,
           .gradients = {"grad: dloss x index -> dx"},
       };
     }},
    {OpKind::Dispatch, "dispatch", "experts:int capacity:int groups:int dropless:int expert_groups:int top_groups:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       WEFT_TRY(Routing sizes, routing("dispatch", attrs));
       return Declaration{
           .notation = "x[b,n.t,k] index[b,n.t,j] -> y[e,b.n.c,k]",
           .sizes = std::move(sizes.sizes),
           .sample = "b n",
           .whole = "t j c",
           .parameter = "e",
           .linear = "x",
           .pointwise = 1,
           .gradients = {"grad: dy index -> dx"},
       };
     }},
    {OpKind::DispatchWeights, "dispatch_weights",
     "experts:int capacity:int groups:int dropless:int expert_groups:int top_groups:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       WEFT_TRY(Routing sizes, routing("dispatch_weights", attrs));
       return Declaration{
           // The weight of each row, sent along with it.
           .notation = "weights[b,n.t,j] index[b,n.t,j] -> y[e,b.n.c]",
           .sizes = std::move(sizes.sizes),
           .sample = "b n",
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
           .notation = "x[e,m,f] weights[e,m] -> y[e,m,f]",
           .sample = "m",
           .parameter = "e",
           .linear = "x weights",
           .pointwise = 1,
           .gradients = {"grad_x: dy weights -> dx", "grad_weights: dy x -> dweights"},
       };
     }},
    {OpKind::Combine, "combine",
     "experts:int capacity:int groups:int dropless:int expert_groups:int top_groups:int weighed:int",
     [](const Attrs& attrs, Inputs) -> Result<Declaration> {
       WEFT_TRY(Routing sizes, routing("combine", attrs));
       if (attrs.integer("weighed", 0))  // the rows were weighed already: they are added up
         return Declaration{
             .notation = "y[e,b.n.c,k] index[b,n.t,j] -> z[b,n.t,k]",
             .sizes = std::move(sizes.sizes),
             .sample = "b n",
             .whole = "t j c",
             .linear = "y",
             .pointwise = 1,
             .gradients = {"grad_y: dz index -> dy"},
         };
       return Declaration{
           .notation = "y[e,b.n.c,k] weights[b,n.t,j] index[b,n.t,j] -> z[b,n.t,k]",
           .sizes = std::move(sizes.sizes),
           .sample = "b n",
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
