// Builds the layers that models are composed of: an operator together with its parameters.
//
// A layer named `fc1` adds the operator `fc1` to the current module and its parameters `fc1.weight`,
// `fc1.bias`; a bias that is an operator of its own is called `fc1_bias`. After an error calls do nothing, as those of
// GraphBuilder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace weft {

class LayerBuilder {
 public:
  LayerBuilder(GraphBuilder& builder, DType dtype) : b_(builder), dtype_(dtype) {}

  GraphBuilder& builder() { return b_; }
  DType dtype() const { return dtype_; }
  const Shape& shape(TensorId x) const { return b_.shape(x); }

  TensorId parameter(std::string_view layer, std::string name, Shape shape);

  // x[…,k] → y[…,out].
  TensorId linear(const std::string& name, TensorId x, std::int64_t out, bool bias);
  // The same with a given weight: a table tied to another layer ([out, k], transposed).
  TensorId tied_linear(const std::string& name, TensorId x, TensorId table);
  TensorId add_bias(const std::string& name, TensorId x);
  // A table of `rows` vectors; gives the table as well, for a tied head.
  struct Lookup {
    TensorId y, table;
  };
  Lookup embedding(const std::string& name, TensorId ids, std::int64_t rows, std::int64_t width);

  TensorId layer_norm(const std::string& name, TensorId x, bool bias);
  // heads > 1: each head is normalised on its own, with one weight for all.
  TensorId rms_norm(const std::string& name, TensorId x, std::int64_t heads = 1);
  TensorId batch_norm(const std::string& name, TensorId x, double eps);

  struct Window {
    std::int64_t height = 1, width = 1, stride = 1, pad_height = 0, pad_width = 0;
  };
  static Window square(std::int64_t kernel, std::int64_t stride = 1, std::int64_t pad = 0) {
    return {kernel, kernel, stride, pad, pad};
  }
  TensorId conv2d(const std::string& name, TensorId x, std::int64_t out, Window window, bool bias);
  TensorId pool2d(const std::string& name, TensorId x, std::string_view fn, Window window, bool ceil = false);
  // Mean over each channel's positions, then [batch, channels].
  TensorId global_mean(const std::string& name, TensorId x);
  TensorId flatten(const std::string& name, TensorId x);

  TensorId unary(const std::string& name, TensorId x, std::string_view fn, double value = 0);
  TensorId add(const std::string& name, TensorId a, TensorId b);
  TensorId dropout(const std::string& name, TensorId x, double p);  // x itself when p = 0
  TensorId concat(const std::string& name, const std::vector<TensorId>& parts, std::int64_t dim,
                  std::int64_t outer = 1);
  std::vector<TensorId> split(const std::string& name, TensorId x, std::int64_t dim, std::vector<std::int64_t> sizes,
                              std::int64_t outer = 1);
  TensorId reshape(const std::string& name, TensorId x, Shape shape);
  TensorId transpose(const std::string& name, TensorId x, std::vector<std::int64_t> perm);
  // One position of dimension 1, dropped: x[b,s,d] → y[b,d].
  TensorId position(const std::string& name, TensorId x, std::int64_t at);

  // Mean cross-entropy of logits[…,classes] against labels[…], a scalar.
  TensorId cross_entropy(const std::string& name, TensorId logits, TensorId labels);

 private:
  GraphBuilder& b_;
  DType dtype_;
};

}  // namespace weft
