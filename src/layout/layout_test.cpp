// The algebra of cuts: parts tile the dimension that is cut, and a layout has one canonical form.
#include "layout/layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace weft {
namespace {

Mesh mesh_of(std::vector<MeshAxis> axes) {
  std::size_t size = 1;
  for (const MeshAxis& axis : axes) size *= static_cast<std::size_t>(axis.size);
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < size; ++i) devices.emplace_back(i);
  return Mesh::make(std::move(axes), std::move(devices)).value();
}
const Mesh& small_mesh() {
  static const Mesh mesh = mesh_of({{"a", 2}, {"b", 3}, {"c", 2}});
  return mesh;
}
std::vector<Range> held(const char* text, int position) {
  std::string_view rest = text;
  const Layout layout = parse_layout(rest, MeshId(0), small_mesh()).value();
  return held_ranges(layout.dims[0], small_mesh(), position);
}
int at(int a, int b, int c) { return (a * 3 + b) * 2 + c; }

TEST(Layout, ACutGivesSharesOfWhatTheCutsBeforeItLeft) {
  // 24 into 3:1 is 18 and 6; each into 1:0:2 is 6, 0, 12 and 2, 0, 4; each half of those.
  EXPECT_EQ(held("[24:a(3+1),b(1+0+2),c]", at(0, 0, 1)), (std::vector<Range>{{3, 6}}));
  EXPECT_EQ(held("[24:a(3+1),b(1+0+2),c]", at(0, 2, 0)), (std::vector<Range>{{6, 12}}));
  EXPECT_EQ(held("[24:a(3+1),b(1+0+2),c]", at(1, 2, 1)), (std::vector<Range>{{22, 24}}));
  EXPECT_EQ(held("[24:a(3+1),b(1+0+2),c]", at(1, 1, 0)), (std::vector<Range>{}));
  // Two blocks of 12, each in the ratio 3:1.
  EXPECT_EQ(held("[2 12:a(3+1)]", at(1, 0, 0)), (std::vector<Range>{{9, 12}, {21, 24}}));
}

TEST(Layout, SharesAreTheNearestWholeOnesAndHaveNoCommonDivisor) {
  EXPECT_EQ(reduced({18, 12, 6}), (Shares{3, 2, 1}));
  EXPECT_EQ(reduced({4, 4}), Shares{});
  EXPECT_EQ(nearest_shares(64, 1, {3, 2, 1}), (Shares{32, 21, 11}));  // 32, 21⅓, 10⅔
  EXPECT_EQ(nearest_shares(7, 1, {1, 1, 1}), (Shares{3, 2, 2}));
  EXPECT_EQ(nearest_shares(26, 4, {1, 1}), (Shares{12, 14}));  // six granules of 4; two elements are none
  EXPECT_EQ(units_of({3, 2, 1}, 3), 6);
  EXPECT_EQ(units_of({}, 3), 3);
}

// A dimension of one to three factors, each cut by some of the mesh axes that are left, in any shares.
DimLayout random_dim(Rng& rng, const Mesh& mesh) {
  std::vector<int> left = {0, 1, 2};
  DimLayout dim(1 + rng.below(3));
  for (Factor& factor : dim) {
    factor.size = 1 + static_cast<std::int64_t>(rng.below(3));
    while (!left.empty() && rng.below(2) == 0) {
      const std::size_t which = rng.below(left.size());
      Cut cut{left[which], {}};
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(which));
      const int parts = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)].size;
      if (rng.below(2) == 0) {
        for (int part = 0; part < parts; ++part) cut.shares.push_back(1 + static_cast<std::int64_t>(rng.below(3)));
        if (parts > 2 && rng.below(3) == 0) cut.shares[rng.below(3)] = 0;
      }
      factor.size *= units_of(reduced(cut.shares), parts);
      factor.cuts.push_back(std::move(cut));
    }
  }
  return dim;
}
std::int64_t extent_of(const DimLayout& dim) {
  std::int64_t extent = 1;
  for (const Factor& factor : dim) extent *= factor.size;
  return extent;
}
std::string all_held(const DimLayout& dim, const Mesh& mesh) {
  std::string text = fmt::format("{}:", extent_of(dim));
  for (int position = 0; position < mesh.size(); ++position) {
    for (const Range& range : held_ranges(dim, mesh, position)) text += fmt::format(" {}-{}", range.begin, range.end);
    text += ";";
  }
  return text;
}

TEST(LayoutLaws, PartsTileTheDimensionAndALayoutHasOneForm) {
  const Mesh& mesh = small_mesh();
  Rng rng(7);
  std::map<std::string, DimLayout> form_of;  // what all positions hold → canonical form
  std::map<std::string, std::string> held_by;
  int uneven = 0, uneven_twice = 0;
  for (int i = 0; i < 60'000; ++i) {
    Layout layout{MeshId(0), {random_dim(rng, mesh)}, PartialAxes(3), 0};
    for (Factor& factor : layout.dims[0])
      for (Cut& cut : factor.cuts) cut.shares = reduced(cut.shares);
    const DimLayout drawn = layout.dims[0];
    const std::string before = all_held(drawn, mesh);
    canonicalize(layout, mesh);
    const DimLayout& dim = layout.dims[0];
    const std::string text = print(layout, mesh);
    ASSERT_EQ(all_held(dim, mesh), before) << text;
    Layout again = layout;
    canonicalize(again, mesh);
    ASSERT_EQ(again, layout) << text;
    std::string_view rest = text;
    ASSERT_EQ(parse_layout(rest, MeshId(0), mesh).value(), layout) << text;

    // Every element is held by the same number of positions: by all that differ along axes that do not cut.
    const MeshAxes cutting = split_axes(layout);
    std::vector<int> holders(static_cast<std::size_t>(extent_of(dim)), 0);
    std::int64_t largest = 0;
    for (int position = 0; position < mesh.size(); ++position) {
      std::int64_t own = 0;
      for (const Range& range : held_ranges(dim, mesh, position)) {
        own += range.end - range.begin;
        for (std::int64_t element = range.begin; element < range.end; ++element)
          ++holders[static_cast<std::size_t>(element)];
      }
      ASSERT_EQ(local_shape(layout, mesh, position)[0], own) << text;
      largest = std::max(largest, own);
    }
    for (int count : holders) ASSERT_EQ(count * mesh.group_size(cutting), mesh.size()) << text;
    ASSERT_EQ(largest_local_elements(layout, mesh), largest) << text;

    // Equal if and only if the same is held everywhere.
    const auto [known, fresh] = form_of.try_emplace(before, dim);
    ASSERT_EQ(known->second, dim) << text << " and " << before;
    ASSERT_EQ(held_by.try_emplace(text, before).first->second, before) << text;
    for (const Factor& factor : dim) {
      const auto shared =
          std::count_if(factor.cuts.begin(), factor.cuts.end(), [](const Cut& cut) { return !cut.shares.empty(); });
      uneven += shared > 0;
      uneven_twice += shared > 0 && factor.cuts.size() > 1;
    }
  }
  EXPECT_GT(uneven, 10'000);
  EXPECT_GT(uneven_twice, 5'000);
  fmt::print("60000 dimensions, {} forms; {} factors cut unevenly, {} of them more than once\n", form_of.size(), uneven,
             uneven_twice);
}

}  // namespace
}  // namespace weft
