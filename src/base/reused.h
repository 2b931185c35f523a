// A list whose items keep their memory when it is cleared, for the next ones to use.
#pragma once

#include <cstddef>
#include <vector>

namespace weft {

template <class Item>
class Reused {
 public:
  // As `Item::clear` leaves it.
  Item& add() {
    if (used_ == items_.size()) items_.emplace_back();
    return items_[used_++];
  }
  // Items stay where they are until there are more.
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
