// Sums of products: linear, matrix products of any notation, the interaction of features and the LSTM cell, forward and
// backward.
#include <ATen/ops/stack.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "run/kernel.h"

namespace weft::runtime {
namespace {

using Axes = std::vector<int>;

bool has(const Axes& axes, int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); }

// out[…] = Σ a[…]·b[…] as one batched matrix product: axes that all three have count batches, those of one factor and
// the output are its rows or columns, those of both factors and not the output are summed.
void contract(Kernel& k) {
  std::size_t left = 0, right = 1;
  const Axes wanted = Kernel::axes_of(k.signature.outputs[0]);
  // The factor that has the output's last axis goes to the right, so that the product comes out in the output's order.
  if (!wanted.empty() && has(Kernel::axes_of(k.signature.inputs[0]), wanted.back()) &&
      !has(Kernel::axes_of(k.signature.inputs[1]), wanted.back()))
    std::swap(left, right);
  const Axes a = Kernel::axes_of(k.signature.inputs[left]), b = Kernel::axes_of(k.signature.inputs[right]);
  Axes batch, rows, columns, summed;
  for (int axis : wanted) (has(a, axis) && has(b, axis) ? batch : has(a, axis) ? rows : columns).push_back(axis);
  for (int axis : a)
    if (!has(wanted, axis) && has(b, axis)) summed.push_back(axis);
  const auto count = [&](const Axes& axes) {
    std::int64_t product = 1;
    for (int axis : axes) product *= k.slices[static_cast<std::size_t>(axis)].size();
    return product;
  };
  const auto factor = [&](std::size_t input, const Axes& second, const Axes& third) {
    const Axes own = Kernel::axes_of(k.signature.inputs[input]);
    Tensor tensor = k.by_axes(k.signature.inputs[input], k.in(input));
    std::vector<std::int64_t> permutation, alone;
    for (const Axes* axes : {static_cast<const Axes*>(&batch), &second, &third})
      for (int axis : *axes) permutation.push_back(std::find(own.begin(), own.end(), axis) - own.begin());
    // An axis that only this factor has is summed by itself.
    for (std::size_t d = 0; d < own.size(); ++d)
      if (std::find(permutation.begin(), permutation.end(), static_cast<std::int64_t>(d)) == permutation.end())
        alone.push_back(static_cast<std::int64_t>(d));
    if (!alone.empty()) {
      tensor = tensor.sum(alone, true);
      permutation.insert(permutation.end(), alone.begin(), alone.end());
    }
    tensor = tensor.permute(permutation);
    return batch.empty() ? tensor.reshape({count(second), count(third)})
                         : tensor.reshape({count(batch), count(second), count(third)});
  };
  const Tensor product = factor(left, rows, summed).matmul(factor(right, summed, columns));
  Axes order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), columns.begin(), columns.end());
  std::vector<std::int64_t> sizes;
  for (int axis : order) sizes.push_back(k.slices[static_cast<std::size_t>(axis)].size());
  k.give_by_axes(0, product.reshape(sizes), order);
}

// y[b, p]: the products of every two features, i > j, row by row.
void dot_interaction(Kernel& k) {
  const Tensor x = k.in("x");
  const std::int64_t features = x.size(1);
  const Tensor pairs = at::tril_indices(features, features, -1, x.options().dtype(at::kLong));
  const Tensor places = pairs[0] * features + pairs[1];
  if (!k.backward()) {
    k.give("y", x.bmm(x.transpose(1, 2)).reshape({x.size(0), -1}).index_select(1, places));
    return;
  }
  const Tensor dy = k.in("dy");
  const Tensor products = at::zeros({x.size(0), features * features}, dy.options())
                              .index_copy(1, places, dy)
                              .reshape({x.size(0), features, features});
  k.give("dx", (products + products.transpose(1, 2)).bmm(x));
}

// Gates are packed [input, forget, cell, output] along a.
void lstm_cell(Kernel& k) {
  const std::int64_t batch = k.size("b"), units = k.size("n");
  const auto gate = [&](const Tensor& gates, std::int64_t which) {
    return gates.reshape({batch, 4, units}).select(1, which);
  };
  const Tensor x = k.in("x"), h = k.in("h"), c = k.in("c"), wi = k.in("wi"), wh = k.in("wh");
  if (!k.backward()) {
    const Tensor sums = x.matmul(wi) + h.matmul(wh) + k.in("bias");
    const Tensor i = gate(sums, 0).sigmoid(), f = gate(sums, 1).sigmoid(), g = gate(sums, 2).tanh(),
                 o = gate(sums, 3).sigmoid();
    const Tensor cell = f * c + i * g;
    k.give("cn", cell);
    k.give("hn", o * cell.tanh());
    k.give("gates", at::stack({i, f, g, o}, 1));
    return;
  }
  const Tensor gates = k.in("gates"), up = k.in("dhn"), dcn = k.in("dcn"), t = k.in("cn").tanh();
  const Tensor i = gate(gates, 0), f = gate(gates, 1), g = gate(gates, 2), o = gate(gates, 3);
  Tensor dcell = dcn.defined() ? dcn : at::zeros(t.sizes(), t.options());
  if (up.defined()) dcell = dcell + up * o * (1 - t * t);
  const Tensor into_output = up.defined() ? up * t : at::zeros(t.sizes(), t.options());
  const Tensor d =
      at::stack({dcell * g * i * (1 - i), dcell * c * f * (1 - f), dcell * i * (1 - g * g), into_output * o * (1 - o)},
                1)
          .reshape({batch, 4 * units});
  k.give("dc", dcell * f);
  k.give("dx", d.matmul(wi.t()));
  k.give("dh", d.matmul(wh.t()));
  k.give("dwi", x.t().matmul(d));
  k.give("dwh", h.t().matmul(d));
  k.give("dbias", d.sum(0));
}

}  // namespace

KernelFunction contraction_kernel(OpKind kind) {
  switch (kind) {
    case OpKind::Linear:
    case OpKind::ExpertLinear:
    case OpKind::Matmul:
      return contract;
    case OpKind::DotInteraction:
      return dot_interaction;
    case OpKind::LstmCell:
      return lstm_cell;
    default:
      return nullptr;
  }
}

}  // namespace weft::runtime
