// Attention by its formula, on any part of heads, queries and keys: results over some of the keys come with the
// logarithm of their weights' sum, by which parts are merged. Where a GPU has it as one kernel, that is used.
#include <ATen/ops/exp2.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "graph/token_order.h"
#include "run/fused_attention.h"
#include "run/kernel.h"

namespace weft::runtime {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

class Attention {
 public:
  explicit Attention(const Kernel& kernel)
      : k(kernel),
        b(k.size("b")),
        g(k.size("g")),
        r(k.size("r")),
        q(k.size("q")),
        t(k.size("t")),
        e(k.size("e")),
        d(k.size("d")),
        scale(k.number("scale", 1.0 / std::sqrt(static_cast<double>(k.whole_size("e"))))),
        softcap(k.number("softcap", 0.0)) {}

  // [b, q, g.r.x] → [b·g, r·q, x], and back.
  Tensor rows(const Tensor& tensor, std::int64_t width) const {
    return tensor.reshape({b, q, g, r, width}).permute({0, 2, 3, 1, 4}).reshape({b * g, r * q, width});
  }
  Tensor from_rows(const Tensor& tensor, std::int64_t width) const {
    return tensor.reshape({b, g, r, q, width}).permute({0, 3, 1, 2, 4}).reshape({b, q, g * r * width});
  }
  // [b, t, g.x] → [b·g, t, x], and back.
  Tensor keys(const Tensor& tensor, std::int64_t width) const {
    return tensor.reshape({b, t, g, width}).transpose(1, 2).reshape({b * g, t, width});
  }
  Tensor from_keys(const Tensor& tensor, std::int64_t width) const {
    return tensor.reshape({b, g, t, width}).transpose(1, 2).reshape({b, t, g * width});
  }
  // [b, g.r, q] → [b·g, r·q, 1]
  Tensor weights(const Tensor& lse) const { return lse.reshape({b * g, r * q, 1}); }

  // Scores [b·g, r·q, t], −∞ where masked; `slope`: the derivative of the cap, undefined where there is none.
  Tensor scores(Tensor* slope = nullptr) const {
    Tensor s = rows(k.in("q"), e).bmm(keys(k.in("k"), e).transpose(1, 2)).mul_(scale);
    if (softcap > 0) {
      const Tensor bent = (s / softcap).tanh();
      s = bent * softcap;
      if (slope) *slope = 1 - bent * bent;
    }
    const bool causal = k.integer("causal", 0) != 0, alibi = k.integer("alibi", 0) != 0;
    const std::int64_t window = k.integer("window", 0);
    if (!causal && !alibi && window <= 0) return s;
    const Tensor behind = tokens("q").unsqueeze(1) - tokens("t").unsqueeze(0);  // [q, t]
    s = s.reshape({b, g, r, q, t});
    if (alibi) {
      const double heads = static_cast<double>(k.whole_size("g") * k.whole_size("r"));
      const Tensor head =
          k.positions_of(k.axis("g")).unsqueeze(1) * k.whole_size("r") + k.positions_of(k.axis("r")).unsqueeze(0) + 1;
      const Tensor steepness = at::exp2(head.to(s.scalar_type()) * (-8.0 / heads)).reshape({1, g, r, 1, 1});
      s.sub_(steepness * behind.to(s.scalar_type()));
    }
    if (causal) s.masked_fill_(behind.lt(0), kMinusInfinity);
    if (window > 0) s.masked_fill_(behind.ge(window), kMinusInfinity);
    return s.reshape({b * g, r * q, t});
  }

  const Kernel& k;
  const std::int64_t b, g, r, q, t, e, d;
  const double scale, softcap;

 private:
  // The positions of the tokens at the device's places along an axis (graph/token_order.h).
  Tensor tokens(std::string_view axis) const {
    const Tensor places = k.positions_of(k.axis(axis));
    const std::int64_t parts = k.integer("zigzag", 1);
    if (parts <= 1) return places;
    const std::int64_t chunk = k.whole_size(axis) / (2 * parts);
    const Tensor chunk_at = places.div(chunk, "floor"), part = chunk_at.div(2, "floor");
    const Tensor order = at::where(chunk_at.remainder(2).eq(0), part, 2 * parts - 1 - part);
    return order * chunk + places.remainder(chunk);
  }
};

// −∞ (of queries that the mask lets see no key) as 0, so that their weights come out as 0.
Tensor finite(const Tensor& logarithm) { return logarithm.masked_fill(logarithm.eq(kMinusInfinity), 0.0); }

void attention(Kernel& k) {
  if (has_fused_attention(k.signature, k.slices, k.in("q"))) return fused_attention(k);
  const Attention of(k);
  const Tensor v = of.keys(k.in("v"), of.d);
  Tensor slope;
  Tensor p = of.scores(&slope);  // turned into weights in its place: it is the largest tensor here
  if (!k.backward()) {
    const Tensor largest = finite(p.amax(-1, true));
    p.sub_(largest).exp_();
    const Tensor total = p.sum(-1, true);
    k.give("y", of.from_rows(p.bmm(v).div_(total.masked_fill(total.eq(0), 1.0)), of.d));
    k.give("lse", total.log().add_(largest));
    return;
  }
  p.sub_(finite(of.weights(k.in("lse")).to(p.scalar_type()))).exp_();
  const Tensor dy = of.rows(k.in("dy"), of.d), y = of.rows(k.in("y"), of.d);
  k.give("dv", of.from_keys(p.transpose(1, 2).bmm(dy), of.d));
  const Tensor ds = dy.bmm(v.transpose(1, 2)).sub_((dy * y).sum(-1, true)).mul_(p).mul_(of.scale);
  if (slope.defined()) ds.mul_(slope);
  k.give("dq", of.from_rows(ds.bmm(of.keys(k.in("k"), of.e)), of.e));
  k.give("dk", of.from_keys(ds.transpose(1, 2).bmm(of.rows(k.in("q"), of.e)), of.e));
}

}  // namespace

KernelFunction attention_kernel(OpKind kind) { return kind == OpKind::Attention ? attention : nullptr; }

}  // namespace weft::runtime
