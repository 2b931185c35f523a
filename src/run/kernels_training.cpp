// Accumulation of gradients and losses, norms, and the optimizers' steps. What is kept from step to step is updated in
// place.
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "base/check.h"
#include "run/kernel.h"
#include "run/torch_version.h"
#if TORCH_VERSION_MAJOR >= 2
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#endif

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

// What an optimizer's step reads and updates.
struct Update {
  explicit Update(const Kernel& kernel)
      : k(kernel),
        p(k.in("p")),
        master(k.in("master")),
        m(k.in("m")),
        v(k.in("v")),
        scale(k.in("scale")),
        weight(master.defined() ? master : p),
        lr(number("lr", 0)),
        step(number("step", 1)),
        decay(k.number("weight_decay", 0.0)),
        decoupled(k.integer("decoupled", 0) != 0 || k.signature.kind == OpKind::LambUpdate),
        beta1(k.number("beta1", 0.9)),
        beta2(k.number("beta2", 0.999)),
        eps(k.number("eps", 1e-8)) {}

  const Kernel& k;
  const Tensor p, master, m, v, scale, weight;
  const double lr, step, decay;
  const bool decoupled;  // from the gradient, as AdamW's
  const double beta1, beta2, eps;

 private:
  double number(std::string_view name, double fallback) const {
    const Tensor given = k.in(name);
    return given.defined() ? given.item().toDouble() : fallback;
  }
};

// Moments and weights in one pass over memory. A scale of 0 skips the step.
bool fused_adam([[maybe_unused]] const Update& u) {
#if TORCH_VERSION_MAJOR >= 2
  if (!u.weight.is_cuda()) return false;
  Tensor grad = u.k.in("g").to(u.weight.scalar_type());
  std::optional<Tensor> skipped;
  if (u.scale.defined()) {
    grad = grad * u.scale;
    skipped = u.scale.eq(0).to(at::kFloat);
  }
  const Tensor step = at::full({}, u.step, u.weight.options().dtype(at::kFloat));
  (u.decoupled ? at::_fused_adamw_ : at::_fused_adam_)({u.weight}, {grad}, {u.m}, {u.v}, {}, {step}, u.lr, u.beta1,
                                                       u.beta2, u.decay, u.eps, false, false, std::nullopt, skipped);
  if (u.master.defined()) u.p.copy_(u.master);
  return true;
#else
  return false;
#endif
}

// SGD, momentum, Adam, AdamW and LAMB's direction. A scale of 0 skips the step: everything stays as it is.
void optimizer(Kernel& k) {
  const OpKind kind = k.signature.kind;
  const Update u(k);
  const auto kept = [&] {
    k.give("new_p", u.p);
    k.give("new_master", u.master);
    k.give("new_m", u.m);
    k.give("new_v", u.v);
  };
  if (kind == OpKind::Adam && fused_adam(u)) return kept();
  const double factor = u.scale.defined() ? u.scale.item().toDouble() : 1;
  if (u.scale.defined() && factor == 0) {
    if (kind == OpKind::LambUpdate) k.give("new_u", at::zeros(u.weight.sizes(), u.weight.options()));
    return kept();
  }
  Tensor grad = k.in("g").to(u.weight.scalar_type());
  if (factor != 1) grad = grad * factor;
  if (!u.decoupled && u.decay != 0) grad = grad + u.weight * u.decay;
  if (kind == OpKind::Sgd) {
    u.weight.sub_(grad, u.lr);
  } else if (kind == OpKind::Momentum) {
    u.weight.sub_(u.m.mul_(k.number("momentum", 0.9)).add_(grad), u.lr);
  } else {
    u.m.lerp_(grad, 1 - u.beta1);
    u.v.mul_(u.beta2).addcmul_(grad, grad, 1 - u.beta2);
    const double first = 1 - std::pow(u.beta1, u.step), second = 1 - std::pow(u.beta2, u.step);
    const Tensor root = u.v.sqrt().mul_(1 / std::sqrt(second)).add_(u.eps);
    if (kind == OpKind::LambUpdate) {
      const Tensor direction = (u.m / first).div_(root);
      k.give("new_u", u.decay != 0 ? direction.add_(u.weight, u.decay) : direction);
      return kept();
    }
    if (u.decoupled && u.decay != 0) u.weight.mul_(1 - u.lr * u.decay);
    u.weight.addcdiv_(u.m, root, -u.lr / first);
  }
  if (u.master.defined()) u.p.copy_(u.master);
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
  const Tensor norm = at::linalg_vector_norm(k.in("g"), 2);
  k.give("y", norm * norm);
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
  const Tensor given = k.in("loss_scale"), squares = k.in("squares"), bad = k.in("non_finite");
  const double loss_scale = given.defined() ? given.item().toDouble() : 1.0;
  Tensor scale = squares.defined()
                     ? (squares.sqrt().reciprocal() * (k.number("max_norm", 1.0) * loss_scale)).clamp_max(1.0)
                     : at::ones({}, k.in(0).options().dtype(at::kDouble));
  scale = scale / loss_scale;
  if (bad.defined()) scale = scale.masked_fill(bad.gt(0), 0.0);
  k.give("scale", scale);
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
