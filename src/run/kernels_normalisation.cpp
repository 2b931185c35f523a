// Normalisations, reductions and losses.
#include <ATen/ops/amax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "run/kernel.h"

namespace weft::runtime {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

void layer_norm(Kernel& k) {
  const double eps = k.number("eps", 1e-5);
  const Tensor x = k.in("x").contiguous(), gamma = k.in("gamma"), beta = k.in("beta");
  const std::vector<std::int64_t> normalised = {k.size("d")};
  if (!k.backward()) {
    const auto [y, mean, rstd] = at::native_layer_norm(x, normalised, gamma, beta, eps);
    k.give("y", y);
    k.give("mean", mean);
    k.give("rstd", rstd);
    return;
  }
  std::vector<std::int64_t> rows(x.sizes().begin(), x.sizes().end());
  rows.back() = 1;
  // Statistics of 16-bit numbers are kept in fp32.
  const auto statistic = [&](std::string_view name) {
    return (x.element_size() < 4 ? k.in(name) : k.in(name).to(x.scalar_type())).reshape(rows);
  };
  const auto [dx, dgamma, dbeta] =
      at::native_layer_norm_backward(k.in("dy").contiguous(), x, normalised, statistic("mean"), statistic("rstd"),
                                     gamma, gamma, {true, true, k.gives("dbeta")});
  k.give("dx", dx);
  k.give("dgamma", dgamma);
  if (k.gives("dbeta")) k.give("dbeta", dbeta);
}

void rms_norm(Kernel& k) {
  const double eps = k.number("eps", 1e-5);
  const std::int64_t size = k.size("d");
  const Tensor x = k.in("x").reshape({-1, size}), gamma = k.in("gamma");
  if (!k.backward()) {
    const Tensor rstd = ((x * x).mean(1, true) + eps).rsqrt();
    k.give("y", x * rstd * gamma);
    k.give("rstd", rstd);
    return;
  }
  const Tensor rstd = k.in("rstd").to(x.scalar_type()).reshape({-1, 1}), dy = k.in("dy").reshape({-1, size});
  const Tensor unit = x * rstd, g = dy * gamma;
  k.give("dx", rstd * (g - unit * (g * unit).mean(1, true)));
  k.give("dgamma", (dy * unit).sum(0));
}

// Statistics are those of the device's own samples and positions.
void batch_norm(Kernel& k) {
  const double eps = k.number("eps", 1e-5);
  const Tensor x = k.in("x").contiguous(), gamma = k.in("gamma");
  if (!k.backward()) {
    const auto [y, mean, rstd] = at::native_batch_norm(x, gamma, k.in("beta"), {}, {}, true, 0.1, eps);
    k.give("y", y);
    k.give("mean", mean);
    k.give("rstd", rstd);
    return;
  }
  const auto statistic = [&](std::string_view name) {
    return x.element_size() < 4 ? k.in(name) : k.in(name).to(x.scalar_type());
  };
  const auto [dx, dgamma, dbeta] = at::native_batch_norm_backward(
      k.in("dy").contiguous(), x, gamma, {}, {}, statistic("mean"), statistic("rstd"), true, eps, {true, true, true});
  k.give("dgamma", dgamma);
  k.give("dbeta", dbeta);
  k.give("dx", dx);
}

void softmax(Kernel& k) {
  const double scale = k.number("scale", 1.0);
  if (k.backward()) {
    const Tensor dy = k.in("dy"), y = k.in("y");
    k.give("dx", y * (dy - (dy * y).sum(-1, true)) * scale);
    return;
  }
  Tensor scores = k.in("x") * scale;
  const bool causal = k.integer("causal", 0) != 0;
  const std::int64_t window = k.integer("window", 0);
  if (causal || window > 0) {  // rows are the positions of the last dimension but one
    const std::vector<int> axes = Kernel::axes_of(k.signature.inputs[0]);
    const Tensor behind = k.positions_of(axes[axes.size() - 2]).unsqueeze(1) - k.positions_of(axes.back()).unsqueeze(0);
    if (causal) scores = scores.masked_fill(behind.lt(0), kMinusInfinity);
    if (window > 0) scores = scores.masked_fill(behind.ge(window), kMinusInfinity);
  }
  k.give("y", scores.softmax(-1));
}

void reduce(Kernel& k) {
  const std::string_view fn = k.signature.attrs.text("fn", "sum");
  const Operand& whole = k.backward() ? k.output("dx") : k.signature.inputs[0];
  const Operand& reduced = k.backward() ? k.signature.inputs[0] : k.output("y");
  const std::vector<int> order = Kernel::axes_of(whole), kept = Kernel::axes_of(reduced);
  std::vector<std::int64_t> dims;
  double count = 1;  // of the whole tensor: means of parts add up
  for (std::size_t d = 0; d < order.size(); ++d)
    if (std::find(kept.begin(), kept.end(), order[d]) == kept.end()) {
      dims.push_back(static_cast<std::int64_t>(d));
      count *= static_cast<double>(k.signature.axes[static_cast<std::size_t>(order[d])].size);
    }
  const double factor = fn == "mean" ? 1 / count : 1;
  if (!k.backward()) {
    const Tensor x = k.by_axes(whole, k.in("x"));
    if (fn == "max")
      k.give("y", dims.empty()    ? x
                  : x.numel() > 0 ? at::amax(x, dims)
                                  : at::full(k.shape_of(reduced), kMinusInfinity, x.options()));
    else
      k.give("y", (dims.empty() ? x.clone() : x.sum(dims)) * factor);
    return;
  }
  const Tensor dy = k.aligned(reduced, k.in("dy"), order);
  if (fn == "max") {
    const Tensor chosen = k.by_axes(whole, k.in("x")).eq(k.aligned(k.signature.inputs[2], k.in("y"), order));
    k.give("dx", dy * chosen.to(dy.scalar_type()));
    return;
  }
  k.give("dx", (dy * factor).expand(k.by_axes(whole, at::full(k.shape_of(whole), 0, dy.options())).sizes()));
}

// Over the device's part of the classes: the logarithm of their sum of exponentials, and the target's logit where it is
// among them.
void cross_entropy(Kernel& k) {
  const Tensor x = k.in("x"), target = k.in("target").to(at::kLong);
  const auto [place, held] = k.find(k.axis("v"), target);
  if (!k.backward()) {
    const Tensor picked = x.gather(-1, place.unsqueeze(-1)).squeeze(-1);
    const Tensor largest = x.amax(-1, true);
    k.give("lse", (x - largest).exp_().sum(-1).log_().add_(largest.squeeze(-1)));
    k.give("picked", picked * held.to(x.scalar_type()));
    return;
  }
  const Tensor dlse = k.in("dlse"), dpicked = k.in("dpicked"), lse = k.in("lse").to(x.scalar_type());
  const Tensor dx =
      dlse.defined() ? (x - lse.unsqueeze(-1)).exp_().mul_(dlse.to(x.scalar_type()).unsqueeze(-1)) : at::zeros_like(x);
  if (dpicked.defined()) dx.scatter_add_(-1, place.unsqueeze(-1), (dpicked * held).to(x.scalar_type()).unsqueeze(-1));
  k.give("dx", dx);
}

// Means over the global batch, so that the losses of parts add up.
void losses(Kernel& k) {
  double count = 1;
  for (const Axis& axis : k.signature.axes) count *= static_cast<double>(axis.size);
  if (k.signature.kind == OpKind::NllLoss) {
    if (!k.backward()) {
      k.give("loss", (k.in("lse") - k.in("picked")).sum() / count);
      return;
    }
    const Tensor each = k.in("dloss") / count;
    for (const auto& [name, value] : {std::pair{"dlse", each}, {"dpicked", -each}})
      if (k.gives(name)) k.give(name, value.reshape({}).expand(k.shape_of(k.output(name))).contiguous());
    return;
  }
  const Tensor x = k.in("x"), target = k.in("target").to(x.scalar_type());
  if (!k.backward())
    k.give("loss", (x.clamp_min(0) - x * target + (-x.abs()).exp().log1p()).sum() / count);
  else
    k.give("dx", (x.sigmoid() - target) * (k.in("dloss").to(x.scalar_type()) / count));
}

}  // namespace

KernelFunction normalisation_kernel(OpKind kind) {
  switch (kind) {
    case OpKind::LayerNorm:
      return layer_norm;
    case OpKind::RmsNorm:
      return rms_norm;
    case OpKind::BatchNorm:
      return batch_norm;
    case OpKind::Softmax:
      return softmax;
    case OpKind::Reduce:
      return reduce;
    case OpKind::CrossEntropy:
      return cross_entropy;
    case OpKind::NllLoss:
    case OpKind::BceLoss:
      return losses;
    default:
      return nullptr;
  }
}

}  // namespace weft::runtime
