// Embeddings, and the routing of tokens to experts.
#include <ATen/ops/arange.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "run/kernel.h"

namespace weft::runtime {
namespace {

// A device looks up the rows it has; what others have counts as zero.
void embedding(Kernel& k) {
  const auto [place, held] = k.find(k.axis("v"), k.in("ids").to(at::kLong));
  const bool pooled = k.signature.attrs.text("pool", "none") == "sum", all = k.is_whole(k.axis("v"));
  const std::int64_t width = k.size("d");
  if (!k.backward()) {
    std::vector<std::int64_t> shape(place.sizes().begin(), place.sizes().end());
    shape.push_back(width);
    Tensor rows = k.size("v") > 0 ? k.in("table").index_select(0, place.reshape({-1})).reshape(shape)
                                  : at::zeros(shape, k.in("table").options());
    if (!all) rows = rows * held.unsqueeze(-1).to(rows.scalar_type());
    return k.give("y", pooled ? rows.sum(-2) : rows);
  }
  Tensor dy = k.in("dy");
  if (pooled) dy = dy.unsqueeze(-2);
  dy = all ? dy.expand([&] {
    std::vector<std::int64_t> shape(place.sizes().begin(), place.sizes().end());
    shape.push_back(width);
    return shape;
  }())
           : dy * held.unsqueeze(-1).to(dy.scalar_type());
  k.give("dtable",
         at::zeros({k.size("v"), width}, dy.options()).index_add_(0, place.reshape({-1}), dy.reshape({-1, width})));
}

// Scores of all experts, the best chosen, their weights.
void router(Kernel& k) {
  const Tensor x = k.in("x");
  const std::int64_t chosen = k.size("j");
  const bool soft = k.signature.attrs.text("score", "softmax") == "softmax", normalize = k.integer("normalize", 0) != 0;
  const double scale = k.number("scale", 1.0);
  const Tensor score = soft ? x.softmax(-1) : x.sigmoid();
  if (!k.backward()) {
    const auto order = at::sort(score, /*stable=*/true, -1, /*descending=*/true);
    const Tensor best = std::get<0>(order).narrow(-1, 0, chosen);
    k.give("weights", (normalize ? best / best.sum(-1, true) : best) * scale);
    k.give("index", std::get<1>(order).narrow(-1, 0, chosen).contiguous());
    return;
  }
  const Tensor index = k.in("index"), up = k.in("dweights"), best = score.gather(-1, index);
  Tensor dbest = up * scale;
  if (normalize) {
    const Tensor sum = best.sum(-1, true);
    dbest = (up / sum - (up * best).sum(-1, true) / (sum * sum)) * scale;
  }
  const Tensor dscore = at::zeros(x.sizes(), x.options()).scatter_add(-1, index, dbest);
  k.give("dx", soft ? score * (dscore - (dscore * score).sum(-1, true)) : dscore * score * (1 - score));
}

// Groups of tokens: samples times the parts that `groups` cuts each into.
std::int64_t groups_of(const Kernel& k, bool whole) {
  std::int64_t groups = whole ? k.whole_size("b") : k.size("b");
  for (std::size_t i = 0; i < k.signature.attrs.integers("groups", {1}).size(); ++i) {
    const std::string axis = "n" + std::to_string(i);
    groups *= whole ? k.whole_size(axis) : k.size(axis);
  }
  return groups;
}

// Experts · Σ over experts of (share of picks) · (mean probability), per group, averaged over all groups.
void aux_loss(Kernel& k) {
  const std::int64_t groups = groups_of(k, false), tokens = k.size("t"), experts = k.size("e"), chosen = k.size("j");
  const Tensor p = k.in("x").softmax(-1).reshape({groups, tokens, experts});
  const Tensor picks = at::one_hot(k.in("index").reshape({groups, tokens * chosen}), experts).to(p.scalar_type());
  const Tensor share = picks.mean(1);  // [group, expert]
  const double factor =
      k.number("coefficient", 1.0) * static_cast<double>(experts) / static_cast<double>(groups_of(k, true));
  if (!k.backward()) return k.give("loss", (share * p.mean(1)).sum() * factor);
  const Tensor each = share.unsqueeze(1);
  const Tensor up = k.in("dloss").to(p.scalar_type()) * (factor / static_cast<double>(tokens));
  k.give("dx", p * (each - (each * p).sum(-1, true)) * up);
}

// Where every pick goes: the row of the device's experts' buffer [e, group, c], flattened, of each pick in the order
// [group, token, pick]. Picks that find no room, or whose expert is elsewhere, go to one more row behind the last.
struct Routes {
  explicit Routes(const Kernel& k)
      : groups(groups_of(k, false)),
        tokens(k.size("t")),
        chosen(k.size("j")),
        capacity(k.size("c")),
        rows(k.size("e") * groups * capacity) {
    const Tensor index = k.in("index").reshape({groups, tokens * chosen}).to(at::kLong);
    const Tensor picked = at::one_hot(index, k.whole_size("e"));
    // How many picks of the same expert come before, in token order: also of experts that are elsewhere.
    const Tensor slot = picked.cumsum(1).gather(2, index.unsqueeze(2)).squeeze(2) - 1;
    const auto [expert, held] = k.find(k.axis("e"), index);
    const Tensor group = at::arange(groups, index.options()).unsqueeze(1);
    const Tensor row = (expert * groups + group) * capacity + slot;
    to = at::where(held.logical_and(slot.lt(capacity)), row, at::zeros({1}, index.options()) + rows).reshape({-1});
  }

  // From rows [e, group, c, k] to picks [group·token, pick, k]; zero where a pick has no row.
  Tensor picks(const Tensor& buffer, std::int64_t width) const {
    const Tensor extended = at::zeros({rows + 1, width}, buffer.options());
    extended.narrow(0, 0, rows).copy_(buffer.reshape({rows, width}));
    return extended.index_select(0, to).reshape({groups * tokens, chosen, width});
  }
  // And back; a row takes one pick at most.
  Tensor buffer(const Tensor& picks, std::int64_t width) const {
    return at::zeros({rows + 1, width}, picks.options())
        .index_copy_(0, to, picks.reshape({groups * tokens * chosen, width}))
        .narrow(0, 0, rows);
  }
  // Every token's row once per pick.
  Tensor repeated(const Tensor& rows_of_tokens, std::int64_t width) const {
    return rows_of_tokens.reshape({groups * tokens, 1, width}).expand({groups * tokens, chosen, width});
  }
  Tensor weights(const Tensor& tensor) const { return tensor.reshape({groups * tokens, chosen, 1}); }

  const std::int64_t groups, tokens, chosen, capacity, rows;
  Tensor to;
};

void dispatch(Kernel& k) {
  const Routes routes(k);
  const std::int64_t width = k.size("k");
  if (!k.backward()) return k.give("y", routes.buffer(routes.repeated(k.in("x"), width), width));
  k.give("dx", routes.picks(k.in("dy"), width).sum(1));
}

void dispatch_weights(Kernel& k) {
  const Routes routes(k);
  if (!k.backward()) return k.give("y", routes.buffer(k.in("weights"), 1));
  k.give("dweights", routes.picks(k.in("dy"), 1));
}

void combine(Kernel& k) {
  const Routes routes(k);
  const std::int64_t width = k.size("k");
  const std::string& gradient = k.signature.gradient;
  const Tensor weights = k.in("weights");
  if (gradient.empty()) {
    const Tensor picks = routes.picks(k.in("y"), width);
    return k.give("z", (weights.defined() ? picks * routes.weights(weights) : picks).sum(1));
  }
  const Tensor up = routes.repeated(k.in("dz"), width);
  if (gradient == "grad_y")
    return k.give("dy", routes.buffer(weights.defined() ? up * routes.weights(weights) : up, width));
  k.give("dweights", (up * routes.picks(k.in("y"), width)).sum(2));
}

void weigh_rows(Kernel& k) {
  const std::string& gradient = k.signature.gradient;
  if (gradient.empty()) return k.give("y", k.in("x") * k.in("weights").unsqueeze(-1));
  if (gradient == "grad_x") return k.give("dx", k.in("dy") * k.in("weights").unsqueeze(-1));
  k.give("dweights", (k.in("dy") * k.in("x")).sum(-1));
}

}  // namespace

KernelFunction routing_kernel(OpKind kind) {
  switch (kind) {
    case OpKind::Embedding:
      return embedding;
    case OpKind::Router:
      return router;
    case OpKind::AuxLoss:
      return aux_loss;
    case OpKind::Dispatch:
      return dispatch;
    case OpKind::DispatchWeights:
      return dispatch_weights;
    case OpKind::Combine:
      return combine;
    case OpKind::WeighRows:
      return weigh_rows;
    default:
      return nullptr;
  }
}

}  // namespace weft::runtime
