#include "base/short_vec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <vector>

namespace weft {
namespace {

using Short = ShortVec<std::uint32_t>;

std::vector<std::uint32_t> items(const Short& list) { return {list.begin(), list.end()}; }

// After the same operations a ShortVec, in its own storage or on the heap, holds what a std::vector holds.
RC_GTEST_PROP(ShortVec, IsAVector, (const std::vector<std::uint8_t>& todo)) {
  std::vector<std::uint32_t> expected;
  Short list;
  for (std::size_t i = 0; i < todo.size(); ++i) {
    const auto item = static_cast<std::uint32_t>(i);
    switch (todo[i] % 8) {
      case 0:
        expected.clear();
        list.clear();
        break;
      case 1:
        if (!expected.empty()) {
          expected.pop_back();
          list.pop_back();
        }
        break;
      case 2: {
        const Short copy = list;
        list = Short{item};
        RC_ASSERT(items(copy) == expected);
        list = copy;
        break;
      }
      case 3: {
        Short moved = std::move(list);
        list = {item, item};
        list = std::move(moved);
        break;
      }
      case 4:
        std::erase_if(expected, [](std::uint32_t each) { return each % 2 == 0; });
        erase_if(list, [](std::uint32_t each) { return each % 2 == 0; });
        break;
      case 5: {
        const std::uint32_t more[] = {item, item + 1, item + 2};
        expected.insert(expected.end(), more, more + 3);
        list.append(more, more + 3);
        break;
      }
      default:
        expected.push_back(item);
        list.push_back(item);
    }
    RC_ASSERT(items(list) == expected);
    RC_ASSERT(list == Short(expected.begin(), expected.end()));
  }
}
TEST(ShortVec, IsAsLargeAsAVector) { EXPECT_EQ(sizeof(Short), sizeof(std::vector<std::uint32_t>)); }

}  // namespace
}  // namespace weft
