// Accumulation of gradients and losses, norms, and the optimizers' steps. What is kept from step to step is updated in
// place.
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "base/check.h"
#include "run/kernel.h"

namespace weft::runtime {
namespace {

void accumulate(Kernel& k) {
  const Tensor sum = k.in("acc");
  k.give("out", sum.add_(k.in("g")));
}

void accumulate_loss(Kernel& k) {
  const Tensor sum = k.in("acc");
  k.give("out", sum.add_(k.in("weight").to(sum.scalar_type()) * k.in("loss").to(sum.scalar_type())));
}

void scale_loss(Kernel& k) { k.give("dloss", k.in("weight") * k.in("loss_scale")); }

// SGD, momentum, Adam, AdamW and LAMB's direction. A scale of 0 skips the step: everything stays as it is.
void optimizer(Kernel& k) {
  const OpKind kind = k.signature.kind;
  const Tensor p = k.in("p"), master = k.in("master"), m = k.in("m"), v = k.in("v"), scale = k.in("scale");
  const Tensor weight = master.defined() ? master : p;
  const auto number = [&](std::string_view name, double fallback) {
    const Tensor given = k.in(name);
    return given.defined() ? given.item().toDouble() : fallback;
  };
  const double lr = number("lr", 0), step = number("step", 1), factor = number("scale", 1);
  const auto kept = [&] {
    k.give("new_p", p);
    k.give("new_master", master);
    k.give("new_m", m);
    k.give("new_v", v);
  };
  if (scale.defined() && factor == 0) {
    if (kind == OpKind::LambUpdate) k.give("new_u", at::zeros(weight.sizes(), weight.options()));
    return kept();
  }
  const double decay = k.number("weight_decay", 0.0);
  const bool decoupled = k.integer("decoupled", 0) != 0 || kind == OpKind::LambUpdate;
  Tensor grad = k.in("g").to(weight.scalar_type());
  if (factor != 1) grad = grad * factor;
  if (!decoupled && decay != 0) grad = grad + weight * decay;
  Tensor update = grad;
  if (kind == OpKind::Momentum) {
    update = m.mul_(k.number("momentum", 0.9)).add_(grad);
  } else if (v.defined()) {
    const double beta1 = k.number("beta1", 0.9), beta2 = k.number("beta2", 0.999), eps = k.number("eps", 1e-8);
    m.mul_(beta1).add_(grad, 1 - beta1);
    v.mul_(beta2).addcmul_(grad, grad, 1 - beta2);
    update = m / (1 - std::pow(beta1, step)) / ((v / (1 - std::pow(beta2, step))).sqrt_().add_(eps));
    if (decoupled && decay != 0) update = update + weight * decay;
  }
  if (kind == OpKind::LambUpdate) {
    k.give("new_u", update);
  } else {
    weight.sub_(update, lr);
    if (master.defined()) p.copy_(master);
  }
  kept();
}

void lamb_apply(Kernel& k) {
  const Tensor p = k.in("p"), master = k.in("master"), weight = master.defined() ? master : p;
  const double norm = std::sqrt(k.in("p2").item().toDouble()), update = std::sqrt(k.in("u2").item().toDouble());
  const double trust = norm > 0 && update > 0 ? norm / update : 1.0;
  weight.sub_(k.in("u"), k.in("lr").item().toDouble() * trust);
  if (master.defined()) p.copy_(master);
  k.give("new_p", p);
  k.give("new_master", master);
}

void sum_squares(Kernel& k) {
  const Tensor g = k.in("g");
  k.give("y", (g * g).sum());
}

void non_finite(Kernel& k) { k.give("y", k.in("g").isfinite().logical_not().sum()); }

void add_scalars(Kernel& k) {
  const std::vector<std::int64_t> counts =
      k.signature.attrs.integers("counts", {static_cast<std::int64_t>(k.input_count())});
  std::size_t next = 0;
  for (std::size_t sum = 0; sum < counts.size(); ++sum) {
    Tensor total = k.in(next++).clone();
    for (std::int64_t i = 1; i < counts[sum]; ++i) total = total + k.in(next++);
    k.give(sum, total);
  }
}

// min(1, max_norm / norm) over the loss's scale; 0 where a gradient is not finite.
void clip_coefficient(Kernel& k) {
  const auto number = [&](std::string_view name, double fallback) {
    const Tensor given = k.in(name);
    return given.defined() ? given.item().toDouble() : fallback;
  };
  const double loss_scale = number("loss_scale", 1.0);
  double scale = 1 / loss_scale;
  if (const Tensor squares = k.in("squares"); squares.defined())
    scale *= std::min(1.0, k.number("max_norm", 1.0) / (std::sqrt(squares.item().toDouble()) / loss_scale));
  if (number("non_finite", 0) > 0) scale = 0;
  k.give("scale", at::zeros({}, k.in(0).options()).fill_(scale));
}

}  // namespace

KernelFunction training_kernel(OpKind kind) {
  switch (kind) {
    case OpKind::Accumulate:
      return accumulate;
    case OpKind::AccumulateLoss:
      return accumulate_loss;
    case OpKind::ScaleLoss:
      return scale_loss;
    case OpKind::Sgd:
    case OpKind::Momentum:
    case OpKind::Adam:
    case OpKind::LambUpdate:
      return optimizer;
    case OpKind::LambApply:
      return lamb_apply;
    case OpKind::SumSquares:
      return sum_squares;
    case OpKind::NonFinite:
      return non_finite;
    case OpKind::AddScalars:
      return add_scalars;
    case OpKind::ClipCoefficient:
      return clip_coefficient;
    default:
      return nullptr;
  }
}

}  // namespace weft::runtime
