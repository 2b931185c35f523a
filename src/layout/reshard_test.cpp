// Resharding: the steps send the fewest bytes, over one mesh axis or several at once, and every device ends up with the
// part that its layout assigns to it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "program/verify.h"
#include "reference/interpreter.h"

namespace weft {
namespace {

Mesh mesh_of(std::vector<MeshAxis> axes) {
  std::vector<DeviceId> devices;
  int size = 1;
  for (const MeshAxis& axis : axes) size *= axis.size;
  for (int i = 0; i < size; ++i) devices.emplace_back(static_cast<std::size_t>(i));
  return Mesh::make(std::move(axes), std::move(devices)).value();
}

Layout layout_of(std::string_view text, const Mesh& mesh) {
  Layout layout = parse_layout(text, MeshId(0), mesh).value();
  canonicalize(layout, mesh);
  return layout;
}

// "reduce-scatter over dp,cp → [8:dp,cp]", line by line.
std::string steps_of(std::string_view from, std::string_view to, const Mesh& mesh) {
  const auto steps = reshard(layout_of(from, mesh), layout_of(to, mesh), mesh);
  if (!steps.ok()) return steps.error().message;
  std::string text;
  for (const ReshardStep& step : *steps)
    text += fmt::format("{}{} over {} -> {}", text.empty() ? "" : "; ", name_of(step.collective),
                        mesh.names_of(step.axes), print(step.to, mesh));
  return text;
}

double sent(const Layout& from, const std::vector<ReshardStep>& steps, const Mesh& mesh) {
  double elements = 0;
  const Layout* now = &from;
  for (const ReshardStep& step : steps) {
    elements += elements_sent(step, *now, mesh);
    now = &step.to;
  }
  return elements;
}

TEST(Reshard, SumsOverSeveralAxesAreReducedInOneGroup) {
  const Mesh mesh = mesh_of({{"dp", 2}, {"ep", 3}, {"cp", 4}});
  EXPECT_EQ(steps_of("[24] P(dp) P(ep) P(cp)", "[24]", mesh), "all-reduce over dp,ep,cp -> [24]");
  const Layout from = layout_of("[24] P(dp) P(ep) P(cp)", mesh), to = layout_of("[24]", mesh);
  // 2·23/24·24; in turn it would be 2·(1/2 + 2/3 + 3/4)·24 = 92.
  EXPECT_DOUBLE_EQ(sent(from, reshard(from, to, mesh).value(), mesh), 46);
}

TEST(Reshard, AReduceScatterCutsByAllItsAxes) {
  const Mesh mesh = mesh_of({{"dp", 2}, {"cp", 2}, {"tp", 2}});
  // One after the other in one dimension, on two dimensions, and inside the parts of an earlier cut.
  EXPECT_EQ(steps_of("[8] P(dp) P(cp)", "[8:dp,cp]", mesh), "reduce-scatter over dp,cp -> [8:dp,cp]");
  EXPECT_EQ(steps_of("[8] P(dp) P(cp)", "[8:cp,dp]", mesh), "reduce-scatter over dp,cp -> [8:cp,dp]");
  EXPECT_EQ(steps_of("[8][6] P(dp) P(cp)", "[8:dp][6:cp]", mesh), "reduce-scatter over dp,cp -> [8:dp][6:cp]");
  EXPECT_EQ(steps_of("[8:tp] P(dp) P(cp)", "[8:tp,dp,cp]", mesh), "reduce-scatter over dp,cp -> [8:tp,dp,cp]");
  EXPECT_EQ(steps_of("[2 4:tp] P(dp)", "[2 4:tp,dp]", mesh), "reduce-scatter over dp -> [2 4:tp,dp]");
}

TEST(Reshard, CutsAreGatheredTogether) {
  const Mesh mesh = mesh_of({{"dp", 2}, {"cp", 2}, {"tp", 2}});
  EXPECT_EQ(steps_of("[8:tp,dp,cp]", "[8:tp]", mesh), "all-gather over dp,cp -> [8:tp]");
  EXPECT_EQ(steps_of("[8:dp][6:cp]", "[8][6]", mesh), "all-gather over dp,cp -> [8][6]");
}

TEST(Reshard, SeveralCutsMoveInOneAllToAll) {
  const Mesh mesh = mesh_of({{"ep", 2}, {"ecp", 2}});
  EXPECT_EQ(steps_of("[8:ep,ecp][8]", "[8][8:ep,ecp]", mesh), "all-to-all over ep,ecp -> [8][8:ep,ecp]");
  // Another order of the same cuts, and two that change places.
  EXPECT_EQ(steps_of("[8:ep,ecp]", "[8:ecp,ep]", mesh), "all-to-all over ep,ecp -> [8:ecp,ep]");
  EXPECT_EQ(steps_of("[8:ep][8:ecp]", "[8:ecp][8:ep]", mesh), "all-to-all over ep,ecp -> [8:ecp][8:ep]");
}

// n = fsdp, m = replicate: (n−1)/n·V + 2(m−1)/m·V/n is less than 2(nm−1)/nm·V for every n > 1.
TEST(Reshard, HybridShardingReducesThePartsAcrossTheCopies) {
  for (int fsdp = 2; fsdp <= 8; ++fsdp)
    for (int copies = 2; copies <= 8; ++copies) {
      const Mesh mesh = mesh_of({{"replicate", copies}, {"fsdp", fsdp}});
      const std::string size = std::to_string(fsdp * copies);
      EXPECT_EQ(steps_of("[" + size + "] P(replicate) P(fsdp)", "[" + size + ":fsdp]", mesh),
                fmt::format("reduce-scatter over fsdp -> [{0}:fsdp] P(replicate); all-reduce over replicate -> "
                            "[{0}:fsdp]",
                            size));
    }
}

// A layout of a tensor of some dimensions: every mesh axis cuts one of them, is partial or neither; some cuts uneven.
Layout random_layout(const Shape& shape, const Mesh& mesh, Rng& rng, bool may_be_partial) {
  Layout layout = replicated(MeshId(0), mesh, shape);
  std::vector<int> order;
  for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis)
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(rng.below(order.size() + 1)), axis);
  std::vector<Factor> factors;
  for (std::int64_t extent : shape) factors.push_back({extent, {}});
  for (int axis : order) {
    const std::uint64_t use = rng.below(4);
    if (use == 0) continue;
    if (use == 1 && may_be_partial) {
      layout.partial[static_cast<std::size_t>(axis)] = Reducer::Sum;
      continue;
    }
    Factor& factor = factors[rng.below(factors.size())];
    const int parts = mesh.axes()[static_cast<std::size_t>(axis)].size;
    Cut cut{axis, {}};
    std::int64_t unit = factor.size;
    for (const Cut& before : factor.cuts)
      unit /= units_of(before.shares, mesh.axes()[static_cast<std::size_t>(before.mesh_axis)].size);
    if (rng.below(5) == 0) {
      cut.shares.assign(static_cast<std::size_t>(parts), 1);
      ++cut.shares[rng.below(static_cast<std::uint64_t>(parts))];
    }
    if (unit % units_of(cut.shares, parts) == 0) factor.cuts.push_back(std::move(cut));
  }
  for (std::size_t d = 0; d < shape.size(); ++d) layout.dims[d] = {factors[d]};
  canonicalize(layout, mesh);
  return layout;
}

// Every sequence of steps over any sets of axes, by exhaustion: what the planner's rules leave out is never better.
class Exhaustion {
 public:
  Exhaustion(const Layout& from, const Layout& to, const Mesh& mesh) : to_(to), mesh_(mesh) { visit(from, 0); }
  double least() const {
    for (const auto& [layout, cost] : reached_)
      if (layout == to_) return cost;
    return -1;
  }

 private:
  static std::vector<Cut> cuts_of(const DimLayout& dim) {
    std::vector<Cut> cuts;
    for (const Factor& factor : dim) cuts.insert(cuts.end(), factor.cuts.begin(), factor.cuts.end());
    return cuts;
  }
  // Each dimension is one factor: the tests cut no blocks.
  Layout with(const Layout& layout, const std::vector<std::vector<Cut>>& cuts) const {
    Layout next = layout;
    for (std::size_t d = 0; d < cuts.size(); ++d) {
      std::int64_t extent = 1;
      for (const Factor& factor : layout.dims[d]) extent *= factor.size;
      next.dims[d] = {Factor{extent, cuts[d]}};
    }
    canonicalize(next, mesh_);
    return next;
  }
  void visit(const Layout& now, double cost) {
    for (auto& [layout, known] : reached_)
      if (layout == now) {
        if (cost >= known - 1e-9) return;
        known = cost;
        return expand(now, cost);
      }
    reached_.emplace_back(now, cost);
    expand(now, cost);
  }
  void step(const Layout& now, double cost, Collective collective, MeshAxes axes, Layout next) {
    visit(next, cost + elements_sent({collective, axes, Reducer::Sum, next}, now, mesh_));
  }
  void expand(const Layout& now, double cost) {
    std::vector<std::vector<Cut>> cuts, wanted;
    for (std::size_t d = 0; d < now.dims.size(); ++d) {
      cuts.push_back(cuts_of(now.dims[d]));
      wanted.push_back(cuts_of(to_.dims[d]));
    }
    const auto all = static_cast<MeshAxes>((1u << mesh_.axes().size()) - 1);
    const MeshAxes split = split_axes(now);
    MeshAxes partial = 0;
    for (std::size_t axis = 0; axis < mesh_.axes().size(); ++axis)
      if (now.partial[axis]) partial |= axis_set(static_cast<int>(axis));
    for (MeshAxes axes = 1; axes <= all; ++axes) {
      const auto whole = [&](Layout layout) {
        for (std::size_t axis = 0; axis < mesh_.axes().size(); ++axis)
          if (axes >> axis & 1u) layout.partial[axis].reset();
        return layout;
      };
      if ((axes & partial) == axes) step(now, cost, Collective::AllReduce, axes, whole(now));
      // Cuts by these axes taken off the ends, and those of the target's that come next added.
      std::vector<std::vector<Cut>> fewer = cuts, more = cuts;
      MeshAxes taken = 0, added = 0;
      for (std::vector<Cut>& list : fewer)
        for (; !list.empty() && (axes & axis_set(list.back().mesh_axis)) != 0; list.pop_back())
          taken |= axis_set(list.back().mesh_axis);
      const auto add = [&](std::vector<std::vector<Cut>>& lists) {
        added = 0;
        for (std::size_t d = 0; d < lists.size(); ++d)
          while (lists[d].size() < wanted[d].size() &&
                 std::equal(lists[d].begin(), lists[d].end(), wanted[d].begin()) &&
                 (axes & axis_set(wanted[d][lists[d].size()].mesh_axis)) != 0) {
            added |= axis_set(wanted[d][lists[d].size()].mesh_axis);
            lists[d].push_back(wanted[d][lists[d].size()]);
          }
        return added == axes;
      };
      if (taken == axes) {
        step(now, cost, Collective::AllGather, axes, with(now, fewer));
        if (add(fewer)) step(now, cost, Collective::AllToAll, axes, with(now, fewer));
      }
      if ((axes & split) == 0 && add(more)) {
        if ((axes & partial) == axes) step(now, cost, Collective::ReduceScatter, axes, whole(with(now, more)));
        if ((axes & partial) == 0) step(now, cost, Collective::Slice, axes, with(now, more));
      }
    }
  }

  const Layout to_;
  const Mesh& mesh_;
  std::vector<std::pair<Layout, double>> reached_;
};

// The steps as a program, executed with real numbers: a sum over n devices that all have x is n·x. Parts of different
// sizes are padded or grouped.
std::string problem_when_played(const Shape& shape, const Layout& from, const std::vector<ReshardStep>& steps,
                                const Mesh& mesh, Parts uneven) {
  if (steps.empty()) return "";
  GraphBuilder builder("x");
  const TensorId x = builder.state("x", DType::F32, shape);
  const Graph graph = std::move(builder).freeze().value();
  Program program;
  program.meshes.push_back(mesh);
  program.world = program.meshes.push_back(mesh_of({{"world", mesh.size()}}));
  const auto add_buffer = [&](const Layout& layout) {
    const BufferId id(program.buffers.size());
    return program.buffers.push_back({x, layout, BufferKind::State, id, id});
  };
  program.stages.resize(1);
  BufferId last = add_buffer(from);
  std::int64_t times = 1;
  for (const ReshardStep& step : steps) {
    const Layout* const cut = cut_side(step.collective, program.buffers[last].layout, step.to);
    const Parts parts = cut && has_uneven_parts(*cut, step.axes) ? uneven : Parts::Even;
    const BufferId next = add_buffer(step.to);
    program.stages[0].forward.push_back(
        program.instructions.push_back({.mesh = MeshId(0),
                                        .what = Communicate{.collective = step.collective,
                                                            .axes = step.axes,
                                                            .reducer = step.reducer,
                                                            .inputs = {last},
                                                            .outputs = {next},
                                                            .parts = parts},
                                        .stream = Stream::Compute}));
    if (step.collective == Collective::AllReduce || step.collective == Collective::ReduceScatter)
      times *= mesh.group_size(step.axes);
    last = next;
  }
  const Schedule schedule = make_schedule({"gpipe", 1, 1, 0}).value();
  if (const Status status = verify(program, graph, schedule); !status.ok()) return status.error().message;
  reference::Block value(shape);
  for (std::size_t i = 0; i < value.values().size(); ++i) value.values()[i] = static_cast<double>(i + 1);
  try {
    reference::Interpreter interpreter(program, graph, [&](TensorId, int) { return value; });
    interpreter.run(schedule);
    const reference::Block got = interpreter.whole(last);
    for (std::size_t i = 0; i < value.values().size(); ++i)
      if (got.values()[i] != static_cast<double>(times) * value.values()[i]) return "another value";
  } catch (const std::runtime_error& problem) {
    return problem.what();
  }
  return "";
}

// So much a step, and so much for every element sent.
class LinearPrice final : public StepPrice {
 public:
  LinearPrice(double step, double element) : step_(step), element_(element) {}
  double of(const ReshardStep& step, const Layout& before, const Mesh& mesh, DType) const override {
    return step_ + element_ * elements_sent(step, before, mesh);
  }
  double of_parts(Collective, MeshAxes, Parts, const PartSizes& bytes, const Mesh&) const override {
    return step_ + element_ * static_cast<double>(bytes.largest);
  }
  double of(const Layout& from, const std::vector<ReshardStep>& steps, const Mesh& mesh) const {
    double total = 0;
    const Layout* now = &from;
    for (const ReshardStep& step : steps) {
      if (step.collective != Collective::Slice) total += of(step, *now, mesh, DType::F32);
      now = &step.to;
    }
    return total;
  }

 private:
  double step_, element_;
};

// Scattered and then summed 1/2·64 + 2·3/4·32 = 80 elements are sent in two steps; summed at once 2·7/8·64 = 112 in
// one, of which each keeps its part. At 10 a step the first costs 100 against 122, at 40 a step 160 against 152.
TEST(Reshard, APriceDecidesBetweenFewerBytesAndFewerSteps) {
  const Mesh mesh = mesh_of({{"replicate", 4}, {"fsdp", 2}});
  const Layout from = layout_of("[64] P(replicate) P(fsdp)", mesh), to = layout_of("[64:fsdp]", mesh);
  const auto collectives = [&](const StepPrice* price) {
    std::string text;
    const std::vector<ReshardStep> steps = reshard(from, to, mesh, price).value();
    for (const ReshardStep& step : steps)
      text += fmt::format("{} over {};", name_of(step.collective), mesh.names_of(step.axes));
    return text;
  };
  const LinearPrice cheap(10, 1), dear(40, 1);
  const std::string in_two = "reduce-scatter over fsdp;all-reduce over replicate;";
  EXPECT_EQ(collectives(nullptr), in_two);
  EXPECT_EQ(collectives(&cheap), in_two);
  EXPECT_EQ(collectives(&dear), "all-reduce over replicate,fsdp;slice over fsdp;");
}

// Attention over split keys (along a): four of six heads of three elements on one device of b. Parts of 10 and 8
// elements are no heads, so the averages are merged where they are, with the weights of their heads, and move then.
TEST(Reshard, AveragesAreMergedBeforeTheyMove) {
  const Mesh mesh = mesh_of({{"a", 2}, {"b", 2}});
  const auto cut = [&](Shares shares, bool partial) {
    Layout layout{MeshId(0), {{{18, {{1, std::move(shares)}}}}}, PartialAxes(2), 0};
    if (partial) layout.partial[0] = Reducer::SoftmaxMerge;
    canonicalize(layout, mesh);
    return layout;
  };
  const std::vector<ReshardStep> steps = reshard(cut({2, 1}, true), cut({5, 4}, false), mesh).value();
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front().collective, Collective::AllReduce);
  EXPECT_EQ(steps.front().to, cut({2, 1}, false));
}

TEST(Reshard, WhatAPriceChoosesCostsNoMoreAndAllArrives) {
  int others = 0;
  for (int i = 0; i < 600; ++i) {
    Rng rng = Rng(11).split(static_cast<std::uint64_t>(i));
    const Mesh mesh = mesh_of({{"a", 2}, {"b", static_cast<int>(rng.between(2, 3))}, {"c", 2}});
    const Shape shape(static_cast<std::size_t>(rng.between(1, 2)), 216);
    const Layout from = random_layout(shape, mesh, rng, true), to = random_layout(shape, mesh, rng, false);
    const std::string what = print(from, mesh) + " to " + print(to, mesh);
    const LinearPrice price(static_cast<double>(rng.below(20'000)), 1);
    const auto by_bytes = reshard(from, to, mesh).value(), by_price = reshard(from, to, mesh, &price).value();
    ASSERT_LE(price.of(from, by_price, mesh), price.of(from, by_bytes, mesh) + 1e-6) << what;
    ASSERT_EQ(problem_when_played(shape, from, by_price, mesh, Parts::Grouped), "") << what;
    others += by_price != by_bytes;
  }
  EXPECT_GT(others, 20);
}

TEST(Reshard, NoSequenceSendsLessAndAllArrives) {
  const int cases = 1500;
  int joint = 0, uneven = 0;
  for (int i = 0; i < cases; ++i) {
    Rng rng = Rng(7).split(static_cast<std::uint64_t>(i));
    std::vector<MeshAxis> axes;
    const auto count = rng.between(1, 3);
    for (std::int64_t a = 0; a < count; ++a)
      axes.push_back({std::string(1, "abc"[a]), static_cast<int>(rng.between(2, 3))});
    const Mesh mesh = mesh_of(axes);
    const Shape shape(static_cast<std::size_t>(rng.between(1, 2)), 216);  // 2³·3³: every order of cuts divides
    const Layout from = random_layout(shape, mesh, rng, true), to = random_layout(shape, mesh, rng, false);
    const std::string what = print(from, mesh) + " to " + print(to, mesh);
    const auto steps = reshard(from, to, mesh);
    ASSERT_TRUE(steps.ok()) << what;
    ASSERT_NEAR(sent(from, *steps, mesh), Exhaustion(from, to, mesh).least(), 1e-6) << what;
    ASSERT_EQ(problem_when_played(shape, from, *steps, mesh, i % 2 == 0 ? Parts::Padded : Parts::Grouped), "") << what;
    for (const ReshardStep& step : *steps) joint += std::popcount(step.axes) > 1;
    uneven += what.find('+') != std::string::npos;
  }
  EXPECT_GT(joint, cases / 4);
  EXPECT_GT(uneven, cases / 20);
  fmt::print("{} reshardings played, {} steps over several axes, {} with uneven parts\n", cases, joint, uneven);
}

// What members have, counted device by device: of the group with the largest part. Without shares along the axes all
// are of one size, with them they are not.
TEST(Reshard, PartSizesAreThoseOfTheMembers) {
  int uneven = 0, over_several = 0;
  for (int i = 0; i < 2000; ++i) {
    Rng rng = Rng(29).split(static_cast<std::uint64_t>(i));
    const Mesh mesh = mesh_of({{"a", 2}, {"b", static_cast<int>(rng.between(2, 3))}, {"c", 3}});
    const Shape shape(static_cast<std::size_t>(rng.between(1, 2)), 216);
    const Layout layout = random_layout(shape, mesh, rng, false);
    const auto axes = static_cast<MeshAxes>(rng.between(1, 7)) & split_axes(layout);
    if (axes == 0) continue;
    const auto elements = [&](int position) {
      std::int64_t product = 1;
      for (std::int64_t size : local_shape(layout, mesh, position)) product *= size;
      return product;
    };
    PartSizes counted;
    bool differ = false;
    for (int leader = 0; leader < mesh.size(); ++leader) {
      if (mesh.group_leader(leader, axes) != leader) continue;
      PartSizes group{0, 0, elements(leader)};
      for (int member : mesh.group(leader, axes)) {
        group.all += elements(member);
        group.largest = std::max(group.largest, elements(member));
        group.smallest = std::min(group.smallest, elements(member));
      }
      differ = differ || group.smallest != group.largest;
      if (group.largest > counted.largest) counted = group;
    }
    ASSERT_EQ(part_sizes(layout, axes, mesh), counted) << print(layout, mesh) << " along " << mesh.names_of(axes);
    ASSERT_EQ(has_uneven_parts(layout, axes), differ) << print(layout, mesh) << " along " << mesh.names_of(axes);
    uneven += differ;
    over_several += differ && std::popcount(axes) > 1;
  }
  EXPECT_GT(uneven, 100);
  EXPECT_GT(over_several, 30);
}

}  // namespace
}  // namespace weft
