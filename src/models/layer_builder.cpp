#include "models/layer_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

// A signature has one bit per input, and so has that of its gradient; a concat or split of more parts is made in two
// levels.
constexpr std::size_t kMostParts = 32;

// Parts per group such that there are at most kMostParts groups.
std::size_t group_size(std::size_t parts) { return std::max(kMostParts, (parts + kMostParts - 1) / kMostParts); }

}  // namespace

TensorId LayerBuilder::parameter(std::string_view layer, std::string name, Shape shape) {
  const auto scope = b_.scope(layer);
  return b_.parameter(std::move(name), dtype_, std::move(shape));
}

TensorId LayerBuilder::linear(const std::string& name, TensorId x, std::int64_t out, bool bias) {
  const TensorId weight = parameter(name, "weight", {shape(x).back(), out});
  const TensorId y = b_.op1(OpKind::Linear, name, {x, weight});
  return bias ? add_bias(name, y) : y;
}

TensorId LayerBuilder::tied_linear(const std::string& name, TensorId x, TensorId table) {
  return b_.op1(OpKind::Linear, name, {x, table}, {{"transposed", std::int64_t{1}}});
}

TensorId LayerBuilder::add_bias(const std::string& name, TensorId x) {
  return b_.op1(OpKind::Bias, name + "_bias", {x, parameter(name, "bias", {shape(x).back()})});
}

LayerBuilder::Lookup LayerBuilder::embedding(const std::string& name, TensorId ids, std::int64_t rows,
                                             std::int64_t width) {
  const TensorId table = parameter(name, "weight", {rows, width});
  return {b_.op1(OpKind::Embedding, name, {ids, table}), table};
}

TensorId LayerBuilder::layer_norm(const std::string& name, TensorId x, bool bias) {
  const std::int64_t width = shape(x).back();
  const TensorId gamma = parameter(name, "weight", {width});
  if (!bias) return b_.op1(OpKind::LayerNorm, name, {x, gamma}, {{"bias", std::int64_t{0}}});
  return b_.op1(OpKind::LayerNorm, name, {x, gamma, parameter(name, "bias", {width})});
}

TensorId LayerBuilder::rms_norm(const std::string& name, TensorId x, std::int64_t heads) {
  Attrs attrs;
  if (heads > 1) attrs.set("heads", heads);
  return b_.op1(OpKind::RmsNorm, name, {x, parameter(name, "weight", {shape(x).back() / heads})}, attrs);
}

TensorId LayerBuilder::batch_norm(const std::string& name, TensorId x, double eps) {
  const std::int64_t channels = shape(x).size() > 1 ? shape(x)[1] : 1;
  const TensorId gamma = parameter(name, "weight", {channels}), beta = parameter(name, "bias", {channels});
  return b_.op1(OpKind::BatchNorm, name, {x, gamma, beta}, {{"eps", eps}});
}

namespace {

Attrs window_attrs(const LayerBuilder::Window& window) {
  Attrs attrs;
  if (window.stride != 1) attrs.set("stride", std::vector<std::int64_t>{window.stride, window.stride});
  if (window.pad_height != 0 || window.pad_width != 0)
    attrs.set("pad", std::vector<std::int64_t>{window.pad_height, window.pad_width});
  return attrs;
}

}  // namespace

TensorId LayerBuilder::conv2d(const std::string& name, TensorId x, std::int64_t out, Window window, bool bias) {
  const std::int64_t channels = shape(x).size() > 1 ? shape(x)[1] : 1;
  const TensorId weight = parameter(name, "weight", {out, channels, window.height, window.width});
  const TensorId y = b_.op1(OpKind::Conv2d, name, {x, weight}, window_attrs(window));
  if (!bias) return y;
  return b_.op1(OpKind::Bias, name + "_bias", {y, parameter(name, "bias", {out})}, {{"dim", std::int64_t{1}}});
}

TensorId LayerBuilder::pool2d(const std::string& name, TensorId x, std::string_view fn, Window window, bool ceil) {
  Attrs attrs = window_attrs(window);
  attrs.set("fn", std::string(fn));
  attrs.set("kernel", std::vector<std::int64_t>{window.height, window.width});
  attrs.set("stride", std::vector<std::int64_t>{window.stride, window.stride});  // the default would be the kernel
  if (ceil) attrs.set("ceil", std::int64_t{1});
  return b_.op1(OpKind::Pool2d, name, {x}, attrs);
}

TensorId LayerBuilder::global_mean(const std::string& name, TensorId x) {
  return b_.op1(OpKind::Reduce, name, {x}, {{"fn", std::string("mean")}, {"dims", std::vector<std::int64_t>{2, 3}}});
}

TensorId LayerBuilder::flatten(const std::string& name, TensorId x) {
  std::int64_t width = 1;
  for (std::size_t d = 1; d < shape(x).size(); ++d) width *= shape(x)[d];
  return reshape(name, x, {shape(x).front(), width});
}

TensorId LayerBuilder::unary(const std::string& name, TensorId x, std::string_view fn, double value) {
  Attrs attrs{{"fn", std::string(fn)}};
  if (value != 0) attrs.set("value", value);
  return b_.op1(OpKind::Unary, name, {x}, attrs);
}

TensorId LayerBuilder::add(const std::string& name, TensorId a, TensorId b) {
  return b_.op1(OpKind::Binary, name, {a, b}, {{"fn", std::string("add")}});
}

TensorId LayerBuilder::dropout(const std::string& name, TensorId x, double p) {
  return p > 0 ? b_.op1(OpKind::Dropout, name, {x}, {{"p", p}}) : x;
}

TensorId LayerBuilder::concat(const std::string& name, const std::vector<TensorId>& parts, std::int64_t dim,
                              std::int64_t outer) {
  if (parts.size() > kMostParts) {
    std::vector<TensorId> joined;
    const std::size_t size = group_size(parts.size());
    for (std::size_t at = 0; at < parts.size(); at += size) {
      const std::size_t end = std::min(parts.size(), at + size);
      const std::vector<TensorId> some(parts.begin() + static_cast<std::ptrdiff_t>(at),
                                       parts.begin() + static_cast<std::ptrdiff_t>(end));
      joined.push_back(concat(fmt::format("{}_{}", name, joined.size()), some, dim, outer));
    }
    return concat(name, joined, dim, outer);
  }
  Attrs attrs{{"dim", dim}};
  if (outer > 1) attrs.set("outer", outer);
  return b_.op(OpKind::Concat, name, parts, attrs).front();
}

std::vector<TensorId> LayerBuilder::split(const std::string& name, TensorId x, std::int64_t dim,
                                          std::vector<std::int64_t> sizes, std::int64_t outer) {
  if (sizes.size() > kMostParts) {
    std::vector<std::vector<std::int64_t>> groups;
    std::vector<std::int64_t> totals;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (i % group_size(sizes.size()) == 0) {
        groups.emplace_back();
        totals.push_back(0);
      }
      groups.back().push_back(sizes[i]);
      totals.back() += sizes[i];
    }
    const std::vector<TensorId> pieces = split(name, x, dim, totals, outer);
    std::vector<TensorId> parts;
    for (std::size_t i = 0; i < groups.size() && b_.ok(); ++i) {
      const std::size_t wanted = groups[i].size();
      std::vector<TensorId> some = split(fmt::format("{}_{}", name, i), pieces[i], dim, std::move(groups[i]), outer);
      parts.insert(parts.end(), some.begin(),
                   some.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, some.size())));
    }
    return parts;
  }
  Attrs attrs{{"dim", dim}, {"sizes", std::move(sizes)}};
  if (outer > 1) attrs.set("outer", outer);
  return b_.op(OpKind::Split, name, {x}, attrs);
}

TensorId LayerBuilder::reshape(const std::string& name, TensorId x, Shape shape) {
  return b_.op1(OpKind::Reshape, name, {x}, {{"shape", std::move(shape)}});
}

TensorId LayerBuilder::transpose(const std::string& name, TensorId x, std::vector<std::int64_t> perm) {
  return b_.op1(OpKind::Transpose, name, {x}, {{"perm", std::move(perm)}});
}

TensorId LayerBuilder::position(const std::string& name, TensorId x, std::int64_t at) {
  const TensorId one =
      b_.op1(OpKind::Slice, name + "_slice", {x}, {{"dim", std::int64_t{1}}, {"begin", at}, {"end", at + 1}});
  return reshape(name, one, {shape(x).front(), shape(x).back()});
}

TensorId LayerBuilder::cross_entropy(const std::string& name, TensorId logits, TensorId labels) {
  const std::vector<TensorId> rows = b_.op(OpKind::CrossEntropy, name + "_rows", {logits, labels});
  return b_.op1(OpKind::NllLoss, name, {rows[0], rows[1]});
}

}  // namespace weft
