// The proof of the axis algebra: every operator, forward and backward, executed shard by shard under every split it
// allows, recombined by its layout rules, must give what the whole operator gives.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "graph/placement.h"
#include "graph/training.h"
#include "reference/kernels.h"
#include "reference/operator_cases.h"
#include "reference/run_graph.h"

namespace weft {
namespace {

using reference::Block;

constexpr double kTolerance = 1e-9;
constexpr int kInstances = 4;  // random shapes and values per case

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities included
    ASSERT_NEAR(actual[i], expected[i], kTolerance * std::max(1.0, std::fabs(expected[i])))
        << what << ", element " << i;
  }
}

// The ways an axis is cut: in two, in three, unevenly, into single elements, and strided.
std::vector<std::vector<AxisSlice>> cuts(const Signature& signature, int axis_index) {
  const Axis& axis = signature.axes[static_cast<std::size_t>(axis_index)];
  std::vector<std::vector<AxisSlice>> result = {split_evenly(axis, 2)};
  if (axis.size >= 3) {
    result.push_back(split_evenly(axis, 3));
    result.push_back(split_by_sizes(axis, {1, axis.size - 1}));
    result.push_back(split_evenly(axis, static_cast<int>(axis.size)));
  }
  if (axis.size >= 6) result.push_back(split_by_sizes(axis, {axis.size - 3, 2, 1}));
  bool windowed = false;
  for (int i = 0; i < signature.operand_count(); ++i)
    for (const DimIndex& dim : signature.operand(i).dims)
      windowed = windowed || (dim.windowed() && dim.factors[0] == axis_index);
  if (!windowed && axis.size % 2 == 0 && axis.size >= 4) result.push_back(split_evenly(axis, 2, 2));
  return result;
}

// The positions along `dim` that a placement gives to a part of a contiguous cut.
std::vector<std::int64_t> placed_positions(const Placement& placement, std::int64_t extent, const Axis& axis,
                                           const AxisSlice& slice) {
  const std::int64_t block = extent / placement.outer, inner = block / axis.size;
  std::vector<std::int64_t> list;
  for (std::int64_t at = 0; at < extent; ++at)
    if (at % block / inner >= slice.begin && at % block / inner < slice.end) list.push_back(at);
  return list;
}

// A shard holds what its placement describes: one dimension cut, the others whole.
void expect_placed(const Placement& placement, const Operand& operand, const Block& block, const Axis& axis,
                   const AxisSlice& slice, const std::string& what) {
  for (std::size_t d = 0; d < operand.dims.size(); ++d) {
    const bool cut = placement.kind == Placement::Kind::Split && placement.dim == static_cast<int>(d);
    const DimIndex& dim = operand.dims[d];
    if (!cut) {
      EXPECT_EQ(static_cast<std::int64_t>(block.held()[d].size()), dim.size)
          << what << ": " << operand.name << " dimension " << d;
    } else if (dim.windowed()) {
      // It owns stride · its share and reaches at most its halo beyond.
      const bool last = slice.end == axis.size;
      const std::int64_t first = dim.window.stride * slice.begin - placement.halo_low;
      const std::int64_t end = last ? dim.size : dim.window.stride * slice.end + placement.halo_high;
      for (std::int64_t at : block.held()[d]) {
        EXPECT_GE(at, first) << what << ": " << operand.name;
        EXPECT_LT(at, end) << what << ": " << operand.name;
      }
    } else if (slice.outer == 1) {
      EXPECT_EQ(block.held()[d], placed_positions(placement, dim.size, axis, slice)) << what << ": " << operand.name;
    }
  }
}

// Combines the shards' blocks of one output according to its placement.
std::vector<double> recombine(const Signature& signature, std::size_t output, const Placement& placement,
                              const std::vector<std::vector<Block>>& shards, const Shape& shape) {
  Block whole(shape);
  if (placement.kind == Placement::Kind::Split) {  // disjoint, or summed where halos overlap
    for (const std::vector<Block>& shard : shards)
      shard[output].for_each(
          [&](const std::vector<std::int64_t>& at, std::size_t i) { whole.at(at) += shard[output].values()[i]; });
    return whole.values();
  }
  std::size_t lse = 0;
  for (std::size_t i = 0; i < signature.outputs.size(); ++i)
    if (signature.outputs[i].reducer == Reducer::LogSumExp) lse = i;
  std::vector<double>& total = whole.values();
  switch (placement.reducer) {
    case Reducer::Sum:
      for (const auto& shard : shards)
        for (std::size_t i = 0; i < total.size(); ++i) total[i] += shard[output].values()[i];
      break;
    case Reducer::Max:
      for (std::size_t i = 0; i < total.size(); ++i) {
        total[i] = shards[0][output].values()[i];
        for (const auto& shard : shards) total[i] = std::max(total[i], shard[output].values()[i]);
      }
      break;
    case Reducer::LogSumExp:
      for (std::size_t i = 0; i < total.size(); ++i) {
        double sum = 0;
        for (const auto& shard : shards) sum += std::exp(shard[output].values()[i]);
        total[i] = std::log(sum);
      }
      break;
    case Reducer::SoftmaxMerge: {
      // y[b,q,h,d] weighed by exp(lse[b,h,q]) of the same shard.
      const int heads = static_cast<int>(signature.axes[static_cast<std::size_t>(signature.axis_named("g"))].size *
                                         signature.axes[static_cast<std::size_t>(signature.axis_named("r"))].size);
      const std::int64_t size = shape[2] / heads;
      whole.for_each([&](const std::vector<std::int64_t>& at, std::size_t i) {
        double weights = 0, value = 0;
        for (const auto& shard : shards) {
          const double weight = std::exp(shard[lse].at({at[0], at[2] / size, at[1]}));
          weights += weight;
          value += weight * shard[output].values()[i];
        }
        total[i] = value / weights;
      });
      break;
    }
  }
  return total;
}

std::vector<Block> run_shard(const Signature& signature, const AxisSlices& slices,
                             std::span<const Block> whole_inputs) {
  std::vector<Block> inputs, outputs;
  for (std::size_t i = 0; i < signature.inputs.size(); ++i) {
    inputs.emplace_back(signature, signature.inputs[i], slices);
    inputs.back().copy_from(whole_inputs[i]);
  }
  for (const Operand& output : signature.outputs) outputs.emplace_back(signature, output, slices);
  reference::run_kernel(signature, slices, inputs, outputs);
  return outputs;
}

bool has_local(const LayoutRule& rule) {
  const auto local = [](const Placement& placement) { return placement.kind == Placement::Kind::Local; };
  return std::any_of(rule.inputs.begin(), rule.inputs.end(), local) ||
         std::any_of(rule.outputs.begin(), rule.outputs.end(), local);
}

struct Counts {
  int splits = 0, pass_throughs = 0;
};

// Splits every splittable axis every way and compares with the whole operator's outputs.
void check_splits(const Signature& signature, std::span<const Block> inputs, std::span<const Block> expected,
                  const std::string& what, Counts& counts) {
  for (int axis = 0; axis < static_cast<int>(signature.axes.size()); ++axis) {
    if (!splittable(signature, axis)) continue;
    const LayoutRule rule = split_rule(signature, axis);
    if (has_local(rule)) continue;  // statistics of the shard itself: SplitBatchNorm below
    const Axis& described = signature.axes[static_cast<std::size_t>(axis)];
    for (const std::vector<AxisSlice>& parts : cuts(signature, axis)) {
      const std::string where = fmt::format("{} {} {} split on {} in {}", what, name_of(signature.kind),
                                            signature.gradient, described.name, parts.size());
      ++counts.splits;
      std::vector<std::vector<Block>> shards;
      for (const AxisSlice& part : parts) {
        AxisSlices slices = whole_axes(signature);
        slices[static_cast<std::size_t>(axis)] = part;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          expect_placed(rule.inputs[i], signature.inputs[i], Block(signature, signature.inputs[i], slices), described,
                        part, where);
        shards.push_back(run_shard(signature, slices, inputs));
        for (std::size_t i = 0; i < expected.size(); ++i)
          expect_placed(rule.outputs[i], signature.outputs[i], shards.back()[i], described, part, where);
      }
      for (std::size_t i = 0; i < expected.size(); ++i)
        expect_close(recombine(signature, i, rule.outputs[i], shards, signature.outputs[i].shape()),
                     expected[i].values(), where + ", output " + signature.outputs[i].name);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Two axes at once: placements of two mesh axes are independent, so sums and concatenations commute.
void check_pairs(const Signature& signature, std::span<const Block> inputs, std::span<const Block> expected,
                 const std::string& what, Counts& counts) {
  const int axes = static_cast<int>(signature.axes.size());
  for (const Operand& output : signature.outputs)
    if (output.reducer != Reducer::Sum) return;
  for (int a = 0; a < axes; ++a)
    for (int b = a + 1; b < axes; ++b) {
      if (!splittable(signature, a) || !splittable(signature, b)) continue;
      if (has_local(split_rule(signature, a)) || has_local(split_rule(signature, b))) continue;
      ++counts.splits;
      std::vector<Block> totals;
      for (const Operand& output : signature.outputs) totals.emplace_back(output.shape());
      for (const AxisSlice& first : split_evenly(signature.axes[static_cast<std::size_t>(a)], 2))
        for (const AxisSlice& second : split_evenly(signature.axes[static_cast<std::size_t>(b)], 2)) {
          AxisSlices slices = whole_axes(signature);
          slices[static_cast<std::size_t>(a)] = first;
          slices[static_cast<std::size_t>(b)] = second;
          const std::vector<Block> shard = run_shard(signature, slices, inputs);
          for (std::size_t i = 0; i < shard.size(); ++i)
            shard[i].for_each([&](const std::vector<std::int64_t>& at, std::size_t offset) {
              totals[i].at(at) += shard[i].values()[offset];
            });
        }
      for (std::size_t i = 0; i < totals.size(); ++i)
        expect_close(totals[i].values(), expected[i].values(),
                     fmt::format("{} {} {} split on {} and {}", what, name_of(signature.kind), signature.gradient,
                                 signature.axes[static_cast<std::size_t>(a)].name,
                                 signature.axes[static_cast<std::size_t>(b)].name));
      if (testing::Test::HasFatalFailure()) return;
    }
}

// Inputs declared linear may be partial sums: the outputs then are partial sums.
void check_pass_through(const Signature& signature, std::span<const Block> inputs, std::span<const Block> expected,
                        const std::string& what, Rng& rng, Counts& counts) {
  for (const LayoutRule& rule : layout_rules(signature)) {
    const bool passes =
        rule.axis < 0 && std::any_of(rule.inputs.begin(), rule.inputs.end(), [](const Placement& placement) {
          return placement.kind == Placement::Kind::Partial;
        });
    if (!passes) continue;
    ++counts.pass_throughs;
    std::vector<Block> first(inputs.begin(), inputs.end()), second(first);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (rule.inputs[i].kind != Placement::Kind::Partial) continue;
      for (std::size_t e = 0; e < first[i].values().size(); ++e) {
        first[i].values()[e] = 2 * rng.uniform() - 1;
        second[i].values()[e] -= first[i].values()[e];
      }
    }
    const std::vector<Block> one = reference::run_whole(signature, first),
                             two = reference::run_whole(signature, second);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::vector<double> sum = one[i].values();
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += two[i].values()[e];
      expect_close(sum, expected[i].values(),
                   fmt::format("{} {} {} with partial inputs", what, name_of(signature.kind), signature.gradient));
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

// The graph of a case: with its backward where it has one.
Result<Graph> whole_graph(const reference::OperatorCase& operator_case) {
  WEFT_TRY(Graph forward, reference::case_forward_graph(operator_case));
  if (forward.results().empty()) return forward;
  WEFT_TRY(TrainingGraph training,
           make_training_graph(std::move(forward), {.optimizer = OptimizerKind::Sgd, .clip_norm = std::nullopt}));
  return std::move(training.graph);
}

TEST(LayoutRules, EveryShardOfEveryOperatorRecombinesToTheWhole) {
  std::set<std::string> covered;
  Counts counts;
  std::uint64_t stream = 0;
  for (const reference::CaseGenerator& generator : reference::operator_cases())
    for (int instance = 0; instance < kInstances; ++instance) {
      Rng rng = Rng(2024).split(++stream);
      const reference::OperatorCase operator_case = generator.make(rng);
      const Result<Graph> graph = whole_graph(operator_case);
      ASSERT_TRUE(graph.ok()) << generator.name << ": " << graph.error().message;
      const auto values = reference::run_graph(*graph, [&](TensorId id, Block& block) {
        reference::fill_leaf(operator_case, *graph, id, block.values(), rng);
      });
      for (OpId op : graph->ops().ids()) {
        const Signature& signature = graph->signature(op);
        covered.insert(fmt::format("{} {}", name_of(signature.kind), signature.gradient));
        std::vector<Block> inputs, outputs;
        for (TensorId input : graph->inputs(op)) inputs.push_back(values[input]);
        for (TensorId output : graph->outputs(op)) outputs.push_back(values[output]);
        check_splits(signature, inputs, outputs, generator.name, counts);
        check_pairs(signature, inputs, outputs, generator.name, counts);
        check_pass_through(signature, inputs, outputs, generator.name, rng, counts);
        if (HasFatalFailure()) return;
      }
    }
  // Nothing is left out: every kind is executed, and every backward product it declares.
  for (int kind = 0; kind < kOpKinds; ++kind) {
    if (static_cast<OpKind>(kind) == OpKind::Opaque) continue;  // unsplittable by definition
    EXPECT_TRUE(covered.contains(fmt::format("{} ", name_of(static_cast<OpKind>(kind)))))
        << name_of(static_cast<OpKind>(kind));
  }
  RecordProperty("splits", counts.splits);
  fmt::print("{} splits and {} pass-throughs of {} operators and products recombined\n", counts.splits,
             counts.pass_throughs, covered.size());
  EXPECT_GT(counts.splits, 3000);
}

TEST(LayoutRules, BackwardProductsAreTheDerivativesOfForward) {
  std::uint64_t stream = 0;
  int checked = 0;
  for (const reference::CaseGenerator& generator : reference::operator_cases()) {
    Rng rng = Rng(7).split(++stream);
    const reference::OperatorCase operator_case = generator.make(rng);
    Result<Graph> forward = reference::case_forward_graph(operator_case);
    ASSERT_TRUE(forward.ok()) << generator.name;
    if (forward->results().empty()) continue;
    const Result<TrainingGraph> training =
        make_training_graph(*forward, {.optimizer = OptimizerKind::Sgd, .clip_norm = std::nullopt});
    ASSERT_TRUE(training.ok()) << generator.name << ": " << training.error().message;
    std::vector<std::vector<double>> leaves(training->graph.tensors().size());
    const auto values = reference::run_graph(training->graph, [&](TensorId id, Block& block) {
      reference::fill_leaf(operator_case, training->graph, id, block.values(), rng);
      leaves[id.index()] = block.values();
    });
    const auto loss = [&] {
      const auto run =
          reference::run_graph(*forward, [&](TensorId id, Block& block) { block.values() = leaves[id.index()]; });
      return run[forward->results()[0]].values()[0];
    };
    for (const auto& [parameter, gradient] : training->accumulated) {
      for (std::size_t i = 0; i < leaves[parameter.index()].size(); ++i) {
        double& value = leaves[parameter.index()][i];
        const double kept = value, step = 1e-5;
        value = kept + step;
        const double up = loss();
        value = kept - step;
        const double down = loss();
        value = kept;
        const double numeric = (up - down) / (2 * step), exact = values[gradient].values()[i];
        ASSERT_NEAR(exact, numeric, 2e-6 * std::max(1.0, std::fabs(numeric)))
            << generator.name << ": " << training->graph.name(parameter) << " element " << i;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 1000);
}

// BatchNorm's meaning under a batch or spatial split: each shard normalises what it has, like a smaller batch of its
// own.
TEST(LayoutRules, SplitBatchNormIsABatchNormOfEachPart) {
  Rng rng(3);
  const auto make = [](std::int64_t samples) {
    return make_signature(
               OpKind::BatchNorm, {},
               std::vector<TensorType>{{DType::F64, {samples, 3, 2, 2}}, {DType::F64, {3}}, {DType::F64, {3}}})
        .value();
  };
  const Signature whole = make(6);
  const Gradient gradient = gradients_of(whole).front();
  std::vector<Block> inputs;
  for (const Operand& input : whole.inputs) {
    inputs.emplace_back(input.shape());
    for (double& value : inputs.back().values()) value = rng.uniform();
  }
  Block dy({6, 3, 2, 2});
  for (double& value : dy.values()) value = rng.uniform();
  const LayoutRule rule = split_rule(whole, whole.axis_named("b"));
  EXPECT_EQ(print(rule.inputs[0]), "S(0)");
  EXPECT_EQ(print(rule.outputs[1]), "L");

  std::int64_t at = 0;
  for (std::int64_t part : {3, 2, 1}) {
    AxisSlices slices = whole_axes(whole);
    slices[static_cast<std::size_t>(whole.axis_named("b"))] = {1, at, at + part};
    const std::vector<Block> shard = run_shard(whole, slices, inputs);

    // The same samples as a batch of their own.
    const Signature alone = make(part);
    const auto rows = [&](const Block& from) {
      Block block({part, 3, 2, 2});
      block.for_each([&](const std::vector<std::int64_t>& global, std::size_t i) {
        block.values()[i] = from.at({global[0] + at, global[1], global[2], global[3]});
      });
      return block;
    };
    const std::vector<Block> own_inputs = {rows(inputs[0]), inputs[1], inputs[2]};
    const std::vector<Block> own = reference::run_whole(alone, own_inputs);
    for (std::size_t i = 0; i < own.size(); ++i)
      expect_close(shard[i].values(), own[i].values(), whole.outputs[i].name);

    // Backward reads the shard's own statistics.
    const Signature backward = gradient_signature(whole, gradient), own_backward = gradient_signature(alone, gradient);
    EXPECT_EQ(print(split_rule(backward, backward.axis_named("b")).inputs[3]), "L");   // mean
    EXPECT_EQ(print(split_rule(backward, backward.axis_named("b")).outputs[1]), "P");  // dgamma
    const std::vector<Block> shard_products =
        run_shard(backward, slices, std::vector<Block>{dy, inputs[0], inputs[1], shard[1], shard[2]});
    const std::vector<Block> own_products =
        reference::run_whole(own_backward, std::vector<Block>{rows(dy), own_inputs[0], inputs[1], own[1], own[2]});
    for (std::size_t i = 0; i < own_products.size(); ++i)
      expect_close(shard_products[i].values(), own_products[i].values(), backward.outputs[i].name);
    at += part;
  }
}

}  // namespace
}  // namespace weft
