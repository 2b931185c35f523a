// Typed ids and the columns they index: `IdVec<TaskId, Time> finish; finish[device]` does not compile.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weft {

// A 32-bit index into the columns of one kind of object. A default-constructed id is invalid.
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::size_t index) : value_(static_cast<std::uint32_t>(index)) {}

  constexpr std::uint32_t index() const { return value_; }
  constexpr bool valid() const { return value_ != kNone; }
  constexpr auto operator<=>(const Id&) const = default;
  constexpr Id& operator++() {
    ++value_;
    return *this;
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t value_ = kNone;
};

// The ids 0 … size−1, for range-based loops.
template <class I>
class IdRange {
 public:
  explicit IdRange(std::size_t size) : first_(0), last_(size) {}
  IdRange(I first, I last) : first_(first), last_(last) {}

  class iterator {
   public:
    explicit iterator(I id) : id_(id) {}
    I operator*() const { return id_; }
    iterator& operator++() {
      ++id_;
      return *this;
    }
    bool operator==(const iterator&) const = default;

   private:
    I id_;
  };
  iterator begin() const { return iterator(first_); }
  iterator end() const { return iterator(last_); }

 private:
  I first_, last_;
};

// A column: a vector indexed by one kind of id only.
template <class I, class T>
class IdVec {
 public:
  IdVec() = default;
  explicit IdVec(std::size_t size, const T& value = T{}) : items_(size, value) {}

  I push_back(const T& item) {
    items_.push_back(item);
    return I(items_.size() - 1);
  }
  I push_back(T&& item) {
    items_.push_back(std::move(item));
    return I(items_.size() - 1);
  }
  decltype(auto) operator[](I id) { return items_[id.index()]; }
  decltype(auto) operator[](I id) const { return items_[id.index()]; }

  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  bool contains(I id) const { return id.index() < items_.size(); }
  void resize(std::size_t size) { items_.resize(size); }
  void resize(std::size_t size, const T& value) { items_.resize(size, value); }
  void reserve(std::size_t size) { items_.reserve(size); }
  IdRange<I> ids() const { return IdRange<I>(items_.size()); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const std::vector<T>& items() const { return items_; }

  bool operator==(const IdVec&) const = default;

 private:
  std::vector<T> items_;
};

}  // namespace weft

// std::hash is declared by <vector>; <functional> would bring ten thousand lines more to every file.
template <class Tag>
struct std::hash<weft::Id<Tag>> {
  std::size_t operator()(weft::Id<Tag> id) const noexcept { return id.index(); }
};
