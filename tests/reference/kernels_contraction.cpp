// Contractions: sums of products straight from the index notation; attention and the LSTM cell by their formulas.
#include <array>
#include <cmath>
#include <limits>

#include "graph/token_order.h"
#include "reference/kernel_context.h"

namespace weft::reference {
namespace {

// An operand along one axis with the others fixed: only dimensions that depend on that axis are recomputed.
class Line {
 public:
  Line(const Ref& ref, std::size_t axis) : ref_(ref) {
    std::size_t stride = 1;
    for (std::size_t d = ref.operand().dims.size(); d-- > 0;) {
      (ref.moves(d, axis) ? moving_ : standing_).push_back({d, stride});
      stride *= ref.block().held()[d].size();
    }
  }
  // False: outside of the tensor at every position of the axis.
  bool begin(const At& at) {
    fixed_ = 0;
    return add(standing_, at, fixed_);
  }
  // Null: outside of the tensor.
  double* find(const At& at) const {
    std::size_t offset = fixed_;
    return add(moving_, at, offset) ? ref_.block().values().data() + offset : nullptr;
  }

 private:
  struct Dim {
    std::size_t index, stride;
  };
  bool add(const std::vector<Dim>& dims, const At& at, std::size_t& offset) const {
    for (const Dim& dim : dims) {
      const std::int64_t position = ref_.index(dim.index, at);
      if (position < 0 || position >= ref_.operand().dims[dim.index].size) return false;
      offset += ref_.block().step(0, dim.index, position) * dim.stride;
    }
    return true;
  }

  const Ref ref_;
  std::vector<Dim> moving_, standing_;
  std::size_t fixed_ = 0;
};

// out[…] += a[…]·b[…] over all axes: linear, matmul and convolution, forward and both backward products alike.
void einsum(const Kernel& k) {
  const Ref a = k.in(0), b = k.in(1), y = k.out(0);
  At at = k.start();
  std::vector<std::size_t> outer = k.all_axes();
  if (outer.empty()) return;
  const std::size_t inner = outer.back();
  outer.pop_back();
  std::array<Line, 3> lines = {Line(a, inner), Line(b, inner), Line(y, inner)};
  k.for_each(outer, at, [&] {
    for (Line& line : lines)
      if (!line.begin(at)) return;
    for (std::int64_t i = 0; i < k.slices[inner].size(); ++i) {
      at[inner] = global_position(k.slices[inner], k.signature.axes[inner].size, i);
      double *const left = lines[0].find(at), *const right = left ? lines[1].find(at) : nullptr;
      if (double* const sum = right ? lines[2].find(at) : nullptr) *sum += *left * *right;
    }
  });
}

void dot_interaction(const Kernel& k) {
  const bool backward = !k.signature.gradient.empty();
  const Ref x = k.in("x"), y = backward ? k.in("dy") : k.out("y"), dx = k.out("dx");
  const std::int64_t features = k.size("f");
  At at = k.start();
  k.for_each(k.axes({"b", "d"}), at, [&] {
    std::int64_t pair = 0;
    for (std::int64_t i = 1; i < features; ++i)
      for (std::int64_t j = 0; j < i; ++j, ++pair) {
        At left = at, right = at;
        left[k.axis("f")] = i;
        right[k.axis("f")] = j;
        at[k.axis("p")] = pair;
        if (backward) {
          dx(left) += y(at) * x(right);
          dx(right) += y(at) * x(left);
        } else {
          y(at) += x(left) * x(right);
        }
      }
  });
}

}  // namespace

bool run_contraction(const Kernel& k) {
  switch (k.signature.kind) {
    case OpKind::Linear:
    case OpKind::ExpertLinear:
    case OpKind::Matmul:
    case OpKind::Conv1d:
    case OpKind::Conv2d:
      einsum(k);
      return true;
    case OpKind::DotInteraction:
      dot_interaction(k);
      return true;
    default:
      return false;
  }
}

namespace {

// Scores of one query row against the shard's keys, masked, with softcap and ALiBi; and d(score)/d(q·k·scale).
struct Scores {
  explicit Scores(const Kernel& kernel) : k(kernel) {
    const Attrs& attrs = k.signature.attrs;
    scale = attrs.number("scale", 1.0 / std::sqrt(static_cast<double>(k.size("e"))));
    softcap = attrs.number("softcap", 0.0);
    causal = attrs.integer("causal", 0) != 0;
    window = attrs.integer("window", 0);
    alibi = attrs.integer("alibi", 0) != 0;
    zigzag = attrs.integer("zigzag", 1);
  }
  double operator()(const Ref& q, const Ref& key, At at, double* slope = nullptr) const {
    const std::int64_t row = token_position(at[k.axis("q")], k.size("q"), zigzag);
    const std::int64_t column = token_position(at[k.axis("t")], k.size("t"), zigzag);
    if ((causal && column > row) || (window > 0 && row - column >= window))
      return -std::numeric_limits<double>::infinity();
    double dot = 0;
    for (std::int64_t e = 0; e < k.size("e"); ++e) {
      at[k.axis("e")] = e;
      dot += q(at) * key(at);
    }
    double score = dot * scale;
    if (slope) *slope = 1;
    if (softcap > 0) {
      const double t = std::tanh(score / softcap);
      score = softcap * t;
      if (slope) *slope = 1 - t * t;
    }
    if (alibi) {
      const double heads = static_cast<double>(k.size("g") * k.size("r"));
      const double head = static_cast<double>(at[k.axis("g")] * k.size("r") + at[k.axis("r")] + 1);
      score += std::pow(2.0, -8.0 * head / heads) * static_cast<double>(column - row);
    }
    return score;
  }
  const Kernel& k;
  double scale, softcap;
  bool causal, alibi;
  std::int64_t window, zigzag;
};

void attention_forward(const Kernel& k) {
  const Ref q = k.in("q"), key = k.in("k"), v = k.in("v"), y = k.out("y"), lse = k.out("lse");
  const Scores scores(k);
  At at = k.start();
  k.for_each(k.axes({"b", "g", "r", "q"}), at, [&] {
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    k.for_each(k.axes({"t"}), at, [&] { largest = std::max(largest, scores(q, key, at)); });
    if (std::isinf(largest)) {  // every key of this shard is masked
      lse(at) = largest;
      return;
    }
    k.for_each(k.axes({"t"}), at, [&] {
      const double weight = std::exp(scores(q, key, at) - largest);
      total += weight;
      k.for_each(k.axes({"d"}), at, [&] { y(at) += weight * v(at); });
    });
    k.for_each(k.axes({"d"}), at, [&] { y(at) /= total; });
    lse(at) = largest + std::log(total);
  });
}

void attention_backward(const Kernel& k) {
  const Ref q = k.in("q"), key = k.in("k"), v = k.in("v"), y = k.in("y"), lse = k.in("lse"), dy = k.in("dy");
  const Ref dq = k.out("dq"), dk = k.out("dk"), dv = k.out("dv");
  const Scores scores(k);
  At at = k.start();
  k.for_each(k.axes({"b", "g", "r", "q"}), at, [&] {
    double delta = 0;
    k.for_each(k.axes({"d"}), at, [&] { delta += dy(at) * y(at); });
    k.for_each(k.axes({"t"}), at, [&] {
      double slope = 0;
      const double score = scores(q, key, at, &slope);
      if (std::isinf(score)) return;
      const double p = std::exp(score - lse(at));
      double dp = 0;
      k.for_each(k.axes({"d"}), at, [&] {
        dp += dy(at) * v(at);
        dv(at) += p * dy(at);
      });
      const double ds = p * (dp - delta) * slope * scores.scale;
      k.for_each(k.axes({"e"}), at, [&] {
        dq(at) += ds * key(at);
        dk(at) += ds * q(at);
      });
    });
  });
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void lstm_forward(const Kernel& k) {
  const Ref x = k.in("x"), h = k.in("h"), c = k.in("c"), wi = k.in("wi"), wh = k.in("wh"), bias = k.in("bias");
  const Ref hn = k.out("hn"), cn = k.out("cn"), gates = k.out("gates");
  At at = k.start();
  k.for_each(k.axes({"b", "n"}), at, [&] {
    double value[4];
    for (int gate = 0; gate < 4; ++gate) {
      at[k.axis("a")] = gate;
      double sum = bias(at);
      k.for_each(k.axes({"i"}), at, [&] { sum += x(at) * wi(at); });
      k.for_each(k.axes({"m"}), at, [&] { sum += h(at) * wh(at); });
      value[gate] = gate == 2 ? std::tanh(sum) : sigmoid(sum);
      gates(at) = value[gate];
    }
    cn(at) = value[1] * c(at) + value[0] * value[2];
    hn(at) = value[3] * std::tanh(cn(at));
  });
}

void lstm_backward(const Kernel& k) {
  const Ref x = k.in("x"), h = k.in("h"), c = k.in("c"), wi = k.in("wi"), wh = k.in("wh"), gates = k.in("gates"),
            cn = k.in("cn");
  const Ref dhn = k.in("dhn"), dcn = k.in("dcn");
  const Ref dx = k.out("dx"), dh = k.out("dh"), dc = k.out("dc"), dwi = k.out("dwi"), dwh = k.out("dwh"),
            dbias = k.out("dbias");
  At at = k.start();
  k.for_each(k.axes({"b", "n"}), at, [&] {
    double value[4], slope[4];
    for (int gate = 0; gate < 4; ++gate) {
      at[k.axis("a")] = gate;
      value[gate] = gates(at);
      slope[gate] = gate == 2 ? 1 - value[gate] * value[gate] : value[gate] * (1 - value[gate]);
    }
    const double t = std::tanh(cn(at)), up = dhn.get(at);
    const double dcell = dcn.get(at) + up * value[3] * (1 - t * t);
    dc(at) += dcell * value[1];
    const double into[4] = {dcell * value[2], dcell * c(at), dcell * value[0], up * t};
    for (int gate = 0; gate < 4; ++gate) {
      at[k.axis("a")] = gate;
      const double d = into[gate] * slope[gate];
      dbias(at) += d;
      k.for_each(k.axes({"i"}), at, [&] {
        dx(at) += d * wi(at);
        dwi(at) += d * x(at);
      });
      k.for_each(k.axes({"m"}), at, [&] {
        dh(at) += d * wh(at);
        dwh(at) += d * h(at);
      });
    }
  });
}

}  // namespace

bool run_attention(const Kernel& k) {
  if (k.signature.kind != OpKind::Attention) return false;
  k.signature.gradient.empty() ? attention_forward(k) : attention_backward(k);
  return true;
}

bool run_recurrent(const Kernel& k) {
  if (k.signature.kind != OpKind::LstmCell) return false;
  k.signature.gradient.empty() ? lstm_forward(k) : lstm_backward(k);
  return true;
}

}  // namespace weft::reference
