// Convolutions and pooling: windows over a part of the positions.
//
// The device holds the positions that its windows touch, as far as they are in the tensor. What they reach into beyond
// it is padding: nothing at the inner borders of a split, the operator's own at the outer ones. Where no window reaches,
// it is cropped. So the tensor is padded here, by amounts that may be negative, and ATen is told of none.
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "base/check.h"
#include "run/kernel.h"

namespace weft::runtime {
namespace {

struct Windows {
  std::vector<std::int64_t> kernel, stride, dilation;
  std::vector<std::int64_t> pads;  // of the last dimension low and high, then of the one before
  bool padded = false;

  Windows(const Kernel& k, const Operand& windowed) {
    for (std::size_t d = 0; d < windowed.dims.size(); ++d) {
      const DimIndex& dim = windowed.dims[d];
      if (!dim.windowed()) continue;
      const AxisSlice& slice = k.slices[static_cast<std::size_t>(dim.factors[0])];
      const Window& window = dim.window;
      kernel.push_back(k.signature.axes[static_cast<std::size_t>(window.kernel)].size);
      stride.push_back(window.stride);
      dilation.push_back(window.dilation);
      const std::int64_t first = window.stride * slice.begin - window.pad_low;
      const std::int64_t last =
          window.stride * (slice.end - 1) + window.dilation * (kernel.back() - 1) - window.pad_low + 1;
      const std::vector<std::int64_t> held = positions(k.signature, windowed, d, k.slices);
      const std::int64_t low = held.empty() ? 0 : held.front() - first,
                         high = held.empty() ? 0 : last - (held.back() + 1);
      pads.insert(pads.begin(), {low, high});
      padded = padded || low != 0 || high != 0;
    }
  }
  Tensor pad(const Tensor& x, double value) const {
    return padded ? at::constant_pad_nd(x, pads, value) : x.contiguous();
  }
  Tensor unpad(const Tensor& x) const {
    if (!padded) return x;
    std::vector<std::int64_t> back;
    for (std::int64_t pad : pads) back.push_back(-pad);
    return at::constant_pad_nd(x, back, 0);
  }
  std::vector<std::int64_t> padded_shape(const Shape& shape) const {
    std::vector<std::int64_t> sizes = shape;
    for (std::size_t i = 0; i < pads.size() / 2; ++i) sizes[sizes.size() - 1 - i] += pads[2 * i] + pads[2 * i + 1];
    return sizes;
  }
};

void convolution(Kernel& k) {
  const std::string& gradient = k.signature.gradient;
  const Operand& windowed = gradient == "grad_input"    ? k.output("dx")
                            : gradient == "grad_weight" ? k.signature.inputs[1]
                                                        : k.signature.inputs[0];
  const Windows windows(k, windowed);
  const std::int64_t groups = k.size("g");
  const std::vector<std::int64_t> none(windows.kernel.size(), 0);
  if (gradient.empty()) {
    k.give("y", at::convolution(windows.pad(k.in("x"), 0), k.in("w"), {}, windows.stride, none, windows.dilation, false,
                                none, groups));
    return;
  }
  const Tensor dy = k.in("dy").contiguous();
  if (gradient == "grad_input") {
    const Tensor w = k.in("w");
    const Tensor like = at::zeros({1}, dy.options()).expand(windows.padded_shape(k.shape_of(windowed)));
    k.give("dx", windows.unpad(std::get<0>(at::convolution_backward(dy, like, w, at::OptionalIntArrayRef(),
                                                                    windows.stride, none, windows.dilation, false, none,
                                                                    groups, {true, false, false}))));
    return;
  }
  const Tensor x = windows.pad(k.in("x"), 0);
  const Tensor like = at::zeros({1}, dy.options()).expand(k.shape_of(k.output("dw")));
  k.give("dw", std::get<1>(at::convolution_backward(dy, x, like, at::OptionalIntArrayRef(), windows.stride, none,
                                                    windows.dilation, false, none, groups, {false, true, false})));
}

// How many elements each window averages, where those outside of the tensor do not count.
Tensor counts(const Windows& windows, const Shape& shape, const at::TensorOptions& options) {
  const Tensor inside = windows.pad(at::ones({1, 1, shape[2], shape[3]}, options), 0);
  return at::avg_pool2d(inside, windows.kernel, windows.stride) *
         static_cast<double>(windows.kernel[0] * windows.kernel[1]);
}

void pool(Kernel& k) {
  const bool average = k.signature.attrs.text("fn", "max") == "avg", include_pad = k.integer("include_pad", 1) != 0;
  const Operand& windowed = k.backward() ? k.output("dx") : k.signature.inputs[0];
  const Windows windows(k, windowed);
  const Shape shape = k.shape_of(windowed);
  const std::vector<std::int64_t> none(2, 0);
  const double elements = static_cast<double>(windows.kernel[0] * windows.kernel[1]);
  if (average) {
    if (!k.backward()) {
      Tensor y = at::avg_pool2d(windows.pad(k.in("x"), 0), windows.kernel, windows.stride);
      if (!include_pad) y = y * elements / counts(windows, shape, y.options());
      k.give("y", y);
      return;
    }
    Tensor dy = k.in("dy");
    if (!include_pad) dy = dy * elements / counts(windows, shape, dy.options());
    const Tensor like = at::zeros({1}, dy.options()).expand(windows.padded_shape(shape));
    k.give("dx", windows.unpad(at::avg_pool2d_backward(dy.contiguous(), like, windows.kernel, windows.stride, none,
                                                       false, true, {})));
    return;
  }
  const Tensor x = windows.pad(k.in("x"), -std::numeric_limits<double>::infinity());
  const auto [y, places] = at::max_pool2d_with_indices(x, windows.kernel, windows.stride, none, windows.dilation);
  if (!k.backward()) {
    k.give("y", y);
    return;
  }
  k.give("dx", windows.unpad(at::max_pool2d_with_indices_backward(
                   k.in("dy").contiguous(), x, windows.kernel, windows.stride, none, windows.dilation, false, places)));
}

}  // namespace

KernelFunction window_kernel(OpKind kind) {
  switch (kind) {
    case OpKind::Conv1d:
    case OpKind::Conv2d:
      return convolution;
    case OpKind::Pool2d:
      return pool;
    default:
      return nullptr;
  }
}

}  // namespace weft::runtime
