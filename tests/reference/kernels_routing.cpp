// Embeddings and expert routing.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reference/kernel_context.h"

namespace weft::reference {
namespace {

void embedding(const Kernel& k) {
  const Ref ids = k.in("ids");
  const bool backward = !k.signature.gradient.empty();
  const Ref table = backward ? k.out("dtable") : k.in("table"), y = backward ? k.in("dy") : k.out("y");
  const std::size_t v = k.axis("v");
  const AxisSlice& rows = k.slices[v];
  std::vector<std::size_t> loop;
  for (std::size_t a = 0; a < k.signature.axes.size(); ++a)
    if (a != v) loop.push_back(a);
  std::vector<char> held(static_cast<std::size_t>(k.size("v")), 0);
  for (std::int64_t i = 0; i < rows.size(); ++i)
    held[static_cast<std::size_t>(global_position(rows, k.size("v"), i))] = 1;
  At at = k.start();
  k.for_each(loop, at, [&] {
    at[v] = static_cast<std::int64_t>(ids(at));
    if (!held.at(static_cast<std::size_t>(at[v]))) return;  // another shard's row
    if (backward)
      table(at) += y(at);
    else
      y(at) += table(at);
  });
}

// Softmax or sigmoid scores of one token, the chosen experts' weights, and for backward d(weights)/d(scores).
void router(const Kernel& k) {
  const Ref x = k.in("x");
  const std::int64_t experts = k.size("e"), chosen = k.size("j");
  const bool soft = k.signature.attrs.text("score", "softmax") == "softmax",
             normalize = k.signature.attrs.integer("normalize", 0) != 0;
  const double scale = k.signature.attrs.number("scale", 1.0);
  const std::size_t e = k.axis("e"), j = k.axis("j");
  std::vector<std::size_t> rows;
  for (std::size_t a = 0; a < k.signature.axes.size(); ++a)
    if (a != e && a != j) rows.push_back(a);
  At at = k.start();
  k.for_each(rows, at, [&] {
    std::vector<double> score(static_cast<std::size_t>(experts));
    double total = 0;
    for (std::int64_t i = 0; i < experts; ++i) {
      at[e] = i;
      const double value = soft ? std::exp(x(at)) : 1 / (1 + std::exp(-x(at)));
      score[static_cast<std::size_t>(i)] = value;
      total += value;
    }
    if (soft)
      for (double& value : score) value /= total;
    std::vector<std::size_t> order(score.size());
    if (k.signature.gradient.empty()) {
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    } else {
      for (std::int64_t i = 0; i < chosen; ++i) {
        at[j] = i;
        order[static_cast<std::size_t>(i)] = static_cast<std::size_t>(k.in("index")(at));
      }
    }
    double sum = 0;
    for (std::int64_t i = 0; i < chosen; ++i) sum += score[order[static_cast<std::size_t>(i)]];
    if (k.signature.gradient.empty()) {
      for (std::int64_t i = 0; i < chosen; ++i) {
        at[j] = i;
        const double value = score[order[static_cast<std::size_t>(i)]];
        k.out("weights")(at) = scale * (normalize ? value / sum : value);
        k.out("index")(at) = static_cast<double>(order[static_cast<std::size_t>(i)]);
      }
      return;
    }
    std::vector<double> dscore(score.size(), 0.0);
    double dot = 0;
    for (std::int64_t i = 0; i < chosen; ++i) {
      at[j] = i;
      dot += k.in("dweights")(at)*score[order[static_cast<std::size_t>(i)]];
    }
    for (std::int64_t i = 0; i < chosen; ++i) {
      at[j] = i;
      const double up = k.in("dweights")(at);
      dscore[order[static_cast<std::size_t>(i)]] += scale * (normalize ? up / sum - dot / (sum * sum) : up);
    }
    double mix = 0;
    for (std::size_t i = 0; i < score.size(); ++i) mix += dscore[i] * score[i];
    for (std::int64_t i = 0; i < experts; ++i) {
      at[e] = i;
      const std::size_t s = static_cast<std::size_t>(i);
      k.out("dx")(at) = soft ? score[s] * (dscore[s] - mix) : dscore[s] * score[s] * (1 - score[s]);
    }
  });
}

// The axes that count groups of tokens: samples b, then n0, n1, ….
std::vector<std::size_t> groups_of(const Kernel& k) {
  std::vector<std::size_t> axes = {k.axis("b")};
  for (std::size_t i = 0; i < k.signature.attrs.integers("groups", {1}).size(); ++i)
    axes.push_back(k.axis("n" + std::to_string(i)));
  return axes;
}

// Load balance of each group: experts · Σ_e (share of picks of e) · (mean probability of e), averaged over groups.
void aux_loss(const Kernel& k) {
  const Ref x = k.in("x"), index = k.in("index");
  const std::int64_t experts = k.size("e"), tokens = k.size("t"), chosen = k.size("j");
  const std::vector<std::size_t> group_axes = groups_of(k);
  double groups = 1;
  for (std::size_t axis : group_axes) groups *= static_cast<double>(k.signature.axes[axis].size);
  const double coefficient = k.signature.attrs.number("coefficient", 1.0);
  const bool backward = !k.signature.gradient.empty();
  At at = k.start();
  k.for_each(groups_of(k), at, [&] {
    std::vector<double> share(static_cast<std::size_t>(experts), 0.0), mean(share);
    std::vector<std::vector<double>> probability(static_cast<std::size_t>(tokens), share);
    for (std::int64_t t = 0; t < tokens; ++t) {
      at[k.axis("t")] = t;
      double total = 0;
      for (std::int64_t e = 0; e < experts; ++e) {
        at[k.axis("e")] = e;
        total += probability[static_cast<std::size_t>(t)][static_cast<std::size_t>(e)] = std::exp(x(at));
      }
      for (std::int64_t e = 0; e < experts; ++e) {
        double& p = probability[static_cast<std::size_t>(t)][static_cast<std::size_t>(e)];
        p /= total;
        mean[static_cast<std::size_t>(e)] += p / static_cast<double>(tokens);
      }
      for (std::int64_t j = 0; j < chosen; ++j) {
        at[k.axis("j")] = j;
        share[static_cast<std::size_t>(index(at))] += 1.0 / static_cast<double>(tokens * chosen);
      }
    }
    const double factor = coefficient * static_cast<double>(experts) / groups;
    if (!backward) {
      for (std::size_t e = 0; e < share.size(); ++e) k.out("loss")(at) += factor * share[e] * mean[e];
      return;
    }
    const double up = k.in("dloss")(at);
    for (std::int64_t t = 0; t < tokens; ++t) {
      at[k.axis("t")] = t;
      const auto& p = probability[static_cast<std::size_t>(t)];
      double mix = 0;
      for (std::size_t e = 0; e < share.size(); ++e) mix += share[e] * p[e];
      for (std::int64_t e = 0; e < experts; ++e) {
        at[k.axis("e")] = e;
        k.out("dx")(at) = up * factor / static_cast<double>(tokens) * p[static_cast<std::size_t>(e)] *
                          (share[static_cast<std::size_t>(e)] - mix);
      }
    }
  });
}

// Walks the picks of every group the shard has: f() with e, c, t, j set, for picks that found room with an expert it
// has.
template <class F>
void for_each_routed(const Kernel& k, const Ref& index, At& at, F&& f) {
  const std::int64_t tokens = k.size("t"), chosen = k.size("j"), capacity = k.size("c");
  std::vector<char> held(static_cast<std::size_t>(k.size("e")), 0);
  const AxisSlice& experts = k.slices[k.axis("e")];
  for (std::int64_t i = 0; i < experts.size(); ++i)
    held[static_cast<std::size_t>(global_position(experts, k.size("e"), i))] = 1;
  k.for_each(groups_of(k), at, [&] {
    std::map<std::int64_t, std::int64_t> used;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < chosen; ++j) {
        at[k.axis("t")] = t;
        at[k.axis("j")] = j;
        const auto expert = static_cast<std::int64_t>(index(at));
        const std::int64_t slot = used[expert]++;
        if (slot >= capacity || !held[static_cast<std::size_t>(expert)]) continue;
        at[k.axis("e")] = expert;
        at[k.axis("c")] = slot;
        f();
      }
  });
}

void route(const Kernel& k) {
  const Ref index = k.in("index");
  const bool weights_alone = k.signature.kind == OpKind::DispatchWeights;
  const std::vector<std::size_t> row = weights_alone ? std::vector<std::size_t>{} : k.axes({"k"});
  At at = k.start();
  for_each_routed(k, index, at, [&] {
    const std::string& gradient = k.signature.gradient;
    if (weights_alone) {
      if (gradient.empty())
        k.out("y")(at) = k.in("weights")(at);
      else
        k.out("dweights")(at) += k.in("dy")(at);
    } else if (k.signature.attrs.integer("weighed", 0)) {
      k.for_each(row, at, [&] {
        if (gradient.empty())
          k.out("z")(at) += k.in("y")(at);
        else
          k.out("dy")(at) = k.in("dz")(at);
      });
    } else if (k.signature.kind == OpKind::Dispatch) {
      k.for_each(row, at, [&] {
        if (gradient.empty())
          k.out("y")(at) = k.in("x")(at);
        else
          k.out("dx")(at) += k.in("dy")(at);
      });
    } else if (gradient.empty()) {
      k.for_each(row, at, [&] { k.out("z")(at) += k.in("weights")(at)*k.in("y")(at); });
    } else if (gradient == "grad_y") {
      k.for_each(row, at, [&] { k.out("dy")(at) = k.in("weights")(at)*k.in("dz")(at); });
    } else {
      k.for_each(row, at, [&] { k.out("dweights")(at) += k.in("dz")(at)*k.in("y")(at); });
    }
  });
}

void weigh_rows(const Kernel& k) {
  const std::string& gradient = k.signature.gradient;
  At at = k.start();
  k.for_each(k.all_axes(), at, [&] {
    if (gradient.empty())
      k.out("y")(at) = k.in("x")(at)*k.in("weights")(at);
    else if (gradient == "grad_x")
      k.out("dx")(at) = k.in("dy")(at)*k.in("weights")(at);
    else
      k.out("dweights")(at) += k.in("dy")(at)*k.in("x")(at);
  });
}

}  // namespace

bool run_routing(const Kernel& k) {
  switch (k.signature.kind) {
    case OpKind::Embedding:
      embedding(k);
      return true;
    case OpKind::Router:
      router(k);
      return true;
    case OpKind::AuxLoss:
      aux_loss(k);
      return true;
    case OpKind::Dispatch:
    case OpKind::DispatchWeights:
    case OpKind::Combine:
      route(k);
      return true;
    case OpKind::WeighRows:
      weigh_rows(k);
      return true;
    default:
      return false;
  }
}

}  // namespace weft::reference
