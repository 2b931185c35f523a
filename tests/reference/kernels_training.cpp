// Gradient accumulation, norms and optimizer steps.
#include <cmath>

#include "reference/kernel_context.h"

namespace weft::reference {
namespace {

// Sgd, momentum, Adam, AdamW and LAMB's update. A scale of 0 skips the step: everything stays as it is.
void optimizer(const Kernel& k) {
  const Attrs& attrs = k.signature.attrs;
  const double decay = attrs.number("weight_decay", 0.0);
  const double beta1 = attrs.number("beta1", 0.9), beta2 = attrs.number("beta2", 0.999),
               eps = attrs.number("eps", 1e-8);
  const Ref p = k.in("p"), g = k.in("g"), master = k.in("master"), m = k.in("m"), v = k.in("v"), scale = k.in("scale");
  At at = k.start();
  const double lr = k.in("lr").get(at), step = k.in("step").get(at);
  const bool skipped = scale.present() && scale(at) == 0;
  k.for_each(k.all_axes(), at, [&] {
    const double weight = master.present() ? master(at) : p(at);
    if (skipped) {
      if (k.signature.kind == OpKind::LambUpdate)
        k.out("new_u")(at) = 0;
      else
        k.out("new_p")(at) = weight;
      if (master.present()) k.out("new_master")(at) = weight;
      if (m.present()) k.out("new_m")(at) = m(at);
      if (v.present()) k.out("new_v")(at) = v(at);
      return;
    }
    double grad = g(at) * (scale.present() ? scale(at) : 1.0);
    const bool decoupled = attrs.integer("decoupled", 0) != 0 || k.signature.kind == OpKind::LambUpdate;
    if (!decoupled) grad += decay * weight;
    double update = grad;
    if (k.signature.kind == OpKind::Momentum) {
      update = k.out("new_m")(at) = attrs.number("momentum", 0.9) * m(at) + grad;
    } else if (v.present()) {
      const double mean = k.out("new_m")(at) = beta1 * m(at) + (1 - beta1) * grad;
      const double square = k.out("new_v")(at) = beta2 * v(at) + (1 - beta2) * grad * grad;
      update = mean / (1 - std::pow(beta1, step)) / (std::sqrt(square / (1 - std::pow(beta2, step))) + eps);
      if (decoupled) update += decay * weight;
    }
    if (k.signature.kind == OpKind::LambUpdate) {
      k.out("new_u")(at) = update;
      return;
    }
    k.out("new_p")(at) = weight - lr * update;
    if (master.present()) k.out("new_master")(at) = weight - lr * update;
  });
}

void lamb_apply(const Kernel& k) {
  At at = k.start();
  const double lr = k.in("lr").get(at);
  k.for_each(k.all_axes(), at, [&] {
    const double norm = std::sqrt(k.in("p2")(at)), update = std::sqrt(k.in("u2")(at));
    const double trust = norm > 0 && update > 0 ? norm / update : 1.0;
    const Ref master = k.in("master");
    const double weight = (master.present() ? master(at) : k.in("p")(at)) - lr * trust * k.in("u")(at);
    k.out("new_p")(at) = weight;
    if (master.present()) k.out("new_master")(at) = weight;
  });
}

}  // namespace

bool run_training(const Kernel& k) {
  At at = k.start();
  switch (k.signature.kind) {
    case OpKind::Accumulate:
      k.for_each(k.all_axes(), at, [&] { k.out("out")(at) = k.in("acc")(at) + k.in("g")(at); });
      return true;
    case OpKind::SumSquares:
      k.for_each(k.all_axes(), at, [&] { k.out("y")(at) += k.in("g")(at)*k.in("g")(at); });
      return true;
    case OpKind::NonFinite:
      k.for_each(k.all_axes(), at, [&] { k.out("y")(at) += std::isfinite(k.in("g")(at)) ? 0 : 1; });
      return true;
    case OpKind::AccumulateLoss:
      k.out("out")(at) = k.in("acc")(at) + k.in("weight")(at)*k.in("loss")(at);
      return true;
    case OpKind::ScaleLoss:
      k.out("dloss")(at) = k.in("weight")(at)*k.in("loss_scale")(at);
      return true;
    case OpKind::AddScalars: {
      std::size_t next = 0;
      const std::vector<std::int64_t> counts = k.signature.attrs.integers("counts", {});
      for (std::size_t sum = 0; sum < counts.size(); ++sum)
        for (std::int64_t i = 0; i < counts[sum]; ++i) k.out(sum)(at) += k.in(next++)(at);
      return true;
    }
    case OpKind::ClipCoefficient: {
      const double loss_scale = k.in("loss_scale").present() ? k.in("loss_scale")(at) : 1.0;
      double scale = 1 / loss_scale;
      if (k.in("squares").present()) {
        const double norm = std::sqrt(k.in("squares")(at)) / loss_scale;
        scale *= std::min(1.0, k.signature.attrs.number("max_norm", 1.0) / norm);
      }
      if (k.in("non_finite").present() && k.in("non_finite")(at) > 0) scale = 0;
      k.out("scale")(at) = scale;
      return true;
    }
    case OpKind::Sgd:
    case OpKind::Momentum:
    case OpKind::Adam:
    case OpKind::LambUpdate:
      optimizer(k);
      return true;
    case OpKind::LambApply:
      lamb_apply(k);
      return true;
    default:
      return false;
  }
}

}  // namespace weft::reference
