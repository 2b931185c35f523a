// A list whose items keep their allocations when it is cleared, so that later items reuse them.
#pragma once

#include <cstddef>
#include <vector>

namespace weft {

template <class Item>
class Reused {
 public:
  // The new item is in the state that `Item::clear` leaves.
  Item& add() {
    if (used_ == items_.size()) items_.emplace_back();
    return items_[used_++];
  }
  // References to items stay valid while there are at most `size`.
  void reserve(std::size_t size) { items_.reserve(size); }
  void drop_last() { items_[--used_].clear(); }
  void clear() {
    while (used_ > 0) drop_last();
  }
  std::size_t size() const { return used_; }
  Item& back() { return items_[used_ - 1]; }
  Item& operator[](std::size_t i) { return items_[i]; }
  const Item& operator[](std::size_t i) const { return items_[i]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.begin() + static_cast<std::ptrdiff_t>(used_); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.begin() + static_cast<std::ptrdiff_t>(used_); }

 private:
  std::vector<Item> items_;
  std::size_t used_ = 0;
};

}  // namespace weft
