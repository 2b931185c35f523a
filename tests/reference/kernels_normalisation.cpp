// Normalisations, pooling, reductions and losses.
#include <cmath>
#include <limits>

#include "reference/kernel_context.h"

namespace weft::reference {
namespace {

constexpr double kMinus = -std::numeric_limits<double>::infinity();

// The axes of the shard's rows: all but those in `inner`.
std::vector<std::size_t> rows(const Kernel& k, std::initializer_list<std::string_view> inner) {
  std::vector<std::size_t> list;
  for (std::size_t a = 0; a < k.signature.axes.size(); ++a) {
    bool outside = true;
    for (std::string_view name : inner) outside = outside && k.signature.axes[a].name != name;
    if (outside) list.push_back(a);
  }
  return list;
}

// Layer norm and RMS norm over d; mean is absent for the latter.
void norm(const Kernel& k) {
  const double eps = k.signature.attrs.number("eps", 1e-5), n = static_cast<double>(k.size("d"));
  const bool layer = k.signature.kind == OpKind::LayerNorm;
  const Ref x = k.in("x"), gamma = k.in("gamma");
  const std::vector<std::size_t> inner = k.axes({"d"});
  At at = k.start();
  if (k.signature.gradient.empty()) {
    const Ref beta = k.in("beta"), y = k.out("y"), mean = k.out("mean"), rstd = k.out("rstd");
    k.for_each(rows(k, {"d"}), at, [&] {
      double average = 0, square = 0;
      if (layer) k.for_each(inner, at, [&] { average += x(at) / n; });
      k.for_each(inner, at, [&] { square += (x(at) - average) * (x(at) - average) / n; });
      const double scale = 1 / std::sqrt(square + eps);
      k.for_each(inner, at, [&] { y(at) = (x(at) - average) * scale * gamma(at) + beta.get(at); });
      if (layer) mean(at) = average;
      rstd(at) = scale;
    });
    return;
  }
  const Ref dy = k.in("dy"), mean = k.in("mean"), rstd = k.in("rstd"), dx = k.out("dx"), dgamma = k.out("dgamma"),
            dbeta = k.out("dbeta");
  k.for_each(rows(k, {"d"}), at, [&] {
    const double average = mean.get(at), scale = rstd(at);
    double sum = 0, dot = 0;
    k.for_each(inner, at, [&] {
      const double unit = (x(at) - average) * scale, g = dy(at) * gamma(at);
      if (layer) sum += g / n;
      dot += g * unit / n;
      dgamma(at) += dy(at) * unit;
      if (dbeta.present()) dbeta(at) += dy(at);
    });
    k.for_each(inner, at, [&] {
      const double unit = (x(at) - average) * scale;
      dx(at) += scale * (dy(at) * gamma(at) - sum - unit * dot);
    });
  });
}

// Batch norm over the samples and positions of this shard: statistics are the shard's own.
void batch_norm(const Kernel& k) {
  const double eps = k.signature.attrs.number("eps", 1e-5);
  const std::vector<std::size_t> inner = rows(k, {"c"});
  double n = 1;
  for (std::size_t a : inner) n *= static_cast<double>(k.slices[a].size());
  const Ref x = k.in("x"), gamma = k.in("gamma");
  At at = k.start();
  if (k.signature.gradient.empty()) {
    const Ref beta = k.in("beta"), y = k.out("y"), mean = k.out("mean"), rstd = k.out("rstd");
    k.for_each(k.axes({"c"}), at, [&] {
      double average = 0, square = 0;
      k.for_each(inner, at, [&] { average += x(at) / n; });
      k.for_each(inner, at, [&] { square += (x(at) - average) * (x(at) - average) / n; });
      const double scale = 1 / std::sqrt(square + eps);
      k.for_each(inner, at, [&] { y(at) = (x(at) - average) * scale * gamma(at) + beta(at); });
      mean(at) = average;
      rstd(at) = scale;
    });
    return;
  }
  const Ref dy = k.in("dy"), mean = k.in("mean"), rstd = k.in("rstd"), dx = k.out("dx"), dgamma = k.out("dgamma"),
            dbeta = k.out("dbeta");
  k.for_each(k.axes({"c"}), at, [&] {
    const double average = mean(at), scale = rstd(at);
    double sum = 0, dot = 0;
    k.for_each(inner, at, [&] {
      const double unit = (x(at) - average) * scale;
      sum += dy(at);
      dot += dy(at) * unit;
    });
    dgamma(at) += dot;
    dbeta(at) += sum;
    k.for_each(inner, at, [&] {
      const double unit = (x(at) - average) * scale;
      dx(at) = scale * gamma(at) * (dy(at) - sum / n - unit * dot / n);
    });
  });
}

void softmax(const Kernel& k) {
  const std::vector<std::size_t> inner = k.axes({"t"});
  const std::vector<std::size_t> outer = rows(k, {"t"});
  const double scale = k.signature.attrs.number("scale", 1.0);
  const bool causal = k.signature.attrs.integer("causal", 0) != 0;
  const std::int64_t window = k.signature.attrs.integer("window", 0);
  const std::size_t row_axis = outer.empty() ? 0 : outer.back();
  At at = k.start();
  if (k.signature.gradient.empty()) {
    const Ref x = k.in("x"), y = k.out("y");
    const auto score = [&] {
      const std::int64_t behind = at[row_axis] - at[k.axis("t")];
      if ((causal && behind < 0) || (window > 0 && behind >= window)) return kMinus;
      return x(at) * scale;
    };
    k.for_each(outer, at, [&] {
      double largest = kMinus, total = 0;
      k.for_each(inner, at, [&] { largest = std::max(largest, score()); });
      k.for_each(inner, at, [&] { total += y(at) = std::exp(score() - largest); });
      k.for_each(inner, at, [&] { y(at) /= total; });
    });
    return;
  }
  const Ref dy = k.in("dy"), y = k.in("y"), dx = k.out("dx");
  k.for_each(outer, at, [&] {
    double dot = 0;
    k.for_each(inner, at, [&] { dot += dy(at) * y(at); });
    k.for_each(inner, at, [&] { dx(at) = scale * y(at) * (dy(at) - dot); });
  });
}

void pool(const Kernel& k) {
  const bool average = k.signature.attrs.text("fn", "max") == "avg";
  const bool include_pad = k.signature.attrs.integer("include_pad", 1) != 0;
  const bool backward = !k.signature.gradient.empty();
  const Ref x = backward ? k.out("dx") : k.in("x");  // the windowed operand
  const Ref y = backward ? k.in("dy") : k.out("y");
  const Ref value = backward && !average ? k.in("x") : x;  // where the maximum is looked for
  const std::vector<std::size_t> window = k.axes({"kh", "kw"});
  At at = k.start();
  k.for_each(k.axes({"b", "c", "h", "w"}), at, [&] {
    double count = 0, largest = kMinus;
    At best = at;
    k.for_each(window, at, [&] {
      if (x.inside(at)) {
        count += 1;
        if (!average && value(at) > largest) {
          largest = value(at);
          best = at;
        }
      } else if (include_pad) {
        count += 1;
      }
    });
    if (!average) {
      if (backward)
        x(best) += y(at);
      else
        y(at) = largest;
      return;
    }
    k.for_each(window, at, [&] {
      if (!x.inside(at)) return;
      if (backward)
        x(at) += y(at) / count;
      else
        y(at) += x(at) / count;
    });
  });
}

void reduce(const Kernel& k) {
  const std::string_view fn = k.signature.attrs.text("fn", "sum");
  const bool backward = !k.signature.gradient.empty();
  const Ref x = backward ? k.out("dx") : k.in("x"), y = backward ? k.in("dy") : k.out("y");
  double count = 1;  // of the whole tensor: shards of a mean add
  const AxisSet kept = y.operand().axes();
  for (std::size_t a = 0; a < k.signature.axes.size(); ++a)
    if (!kept.contains(static_cast<int>(a))) count *= static_cast<double>(k.signature.axes[a].size);
  At at = k.start();
  if (fn == "max" && !backward) std::fill(y.block().values().begin(), y.block().values().end(), kMinus);
  k.for_each(k.all_axes(), at, [&] {
    if (fn == "max") {
      if (backward)
        x(at) = k.in("x")(at) == k.in("y")(at) ? y(at) : 0.0;
      else
        y(at) = std::max(y(at), x(at));
      return;
    }
    const double factor = fn == "mean" ? 1 / count : 1;
    if (backward)
      x(at) = y(at) * factor;
    else
      y(at) += x(at) * factor;
  });
}

void cross_entropy(const Kernel& k) {
  const Ref x = k.in("x"), target = k.in("target");
  const std::vector<std::size_t> outer = rows(k, {"v"}), inner = k.axes({"v"});
  At at = k.start();
  if (k.signature.gradient.empty()) {
    const Ref lse = k.out("lse"), picked = k.out("picked");
    k.for_each(outer, at, [&] {
      double largest = kMinus, total = 0;
      k.for_each(inner, at, [&] { largest = std::max(largest, x(at)); });
      k.for_each(inner, at, [&] {
        total += std::exp(x(at) - largest);
        if (static_cast<double>(at[k.axis("v")]) == target(at)) picked(at) = x(at);
      });
      lse(at) = largest + std::log(total);
    });
    return;
  }
  const Ref dlse = k.in("dlse"), dpicked = k.in("dpicked"), lse = k.in("lse"), dx = k.out("dx");
  k.for_each(outer, at, [&] {
    k.for_each(inner, at, [&] {
      dx(at) = std::exp(x(at) - lse(at)) * dlse.get(at);
      if (static_cast<double>(at[k.axis("v")]) == target(at)) dx(at) += dpicked.get(at);
    });
  });
}

double elements_of_all_axes(const Kernel& k) {
  double count = 1;
  for (const Axis& axis : k.signature.axes) count *= static_cast<double>(axis.size);
  return count;
}

void losses(const Kernel& k) {
  const double count = elements_of_all_axes(k);
  const bool backward = !k.signature.gradient.empty();
  const bool nll = k.signature.kind == OpKind::NllLoss;
  At at = k.start();
  k.for_each(k.all_axes(), at, [&] {
    if (nll && backward) {
      k.out("dlse")(at) = k.in("dloss")(at) / count;
      k.out("dpicked")(at) = -k.in("dloss")(at) / count;
    } else if (nll) {
      k.out("loss")(at) += (k.in("lse")(at)-k.in("picked")(at)) / count;
    } else {
      const double x = k.in("x")(at), target = k.in("target")(at);
      if (backward)
        k.out("dx")(at) = k.in("dloss")(at) * (1 / (1 + std::exp(-x)) - target) / count;
      else
        k.out("loss")(at) += (std::max(x, 0.0) - x * target + std::log1p(std::exp(-std::fabs(x)))) / count;
    }
  });
}

}  // namespace

bool run_normalisation(const Kernel& k) {
  switch (k.signature.kind) {
    case OpKind::LayerNorm:
    case OpKind::RmsNorm:
      norm(k);
      return true;
    case OpKind::BatchNorm:
      batch_norm(k);
      return true;
    case OpKind::Softmax:
      softmax(k);
      return true;
    case OpKind::Pool2d:
      pool(k);
      return true;
    case OpKind::Reduce:
      reduce(k);
      return true;
    case OpKind::CrossEntropy:
      cross_entropy(k);
      return true;
    case OpKind::NllLoss:
    case OpKind::BceLoss:
      losses(k);
      return true;
    default:
      return false;
  }
}

}  // namespace weft::reference
