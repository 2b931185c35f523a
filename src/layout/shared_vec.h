// A copy-on-write vector. For values that many places hold and few change: a copy costs a reference count, and
// comparing two copies that share their memory costs nothing.
//
// Const access never copies; non-const access takes an own copy first if the memory is shared. A non-const reference is
// valid until the vector is copied. Copies may be held by several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

namespace weft {

template <class T>
class SharedVec {
 public:
  using value_type = T;

  SharedVec() = default;
  explicit SharedVec(std::size_t size) : SharedVec(std::vector<T>(size)) {}
  SharedVec(std::vector<T> items) : held_(items.empty() ? nullptr : new Held{{1}, std::move(items)}) {}
  SharedVec(std::initializer_list<T> items) : SharedVec(std::vector<T>(items)) {}
  SharedVec(const SharedVec& other) noexcept : held_(other.held_) {
    if (held_) held_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  SharedVec(SharedVec&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  SharedVec& operator=(const SharedVec& other) noexcept {
    SharedVec copy(other);
    std::swap(held_, copy.held_);
    return *this;
  }
  SharedVec& operator=(SharedVec&& other) noexcept {
    SharedVec taken(std::move(other));
    std::swap(held_, taken.held_);
    return *this;
  }
  ~SharedVec() {
    if (held_ && held_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held_;
  }

  std::size_t size() const { return held_ ? held_->items.size() : 0; }
  bool empty() const { return held_ == nullptr || held_->items.empty(); }
  const T& operator[](std::size_t i) const { return held_->items[i]; }
  const T& front() const { return held_->items.front(); }
  const T& back() const { return held_->items.back(); }
  const T* begin() const { return held_ ? held_->items.data() : nullptr; }
  const T* end() const { return begin() + size(); }

  T& operator[](std::size_t i) { return own()[i]; }
  T& front() { return own().front(); }
  T& back() { return own().back(); }
  T* begin() { return held_ ? own().data() : nullptr; }
  T* end() { return begin() + size(); }
  void push_back(T item) { own().push_back(std::move(item)); }
  void resize(std::size_t size, const T& value = T()) { own().resize(size, value); }
  void assign(std::size_t size, const T& value) { *this = SharedVec(std::vector<T>(size, value)); }

  bool operator==(const SharedVec& other) const {
    if (held_ == other.held_) return true;
    return held_ && other.held_ ? held_->items == other.held_->items : size() == other.size();
  }

 private:
  struct Held {
    std::atomic<std::uint32_t> holders;
    std::vector<T> items;
  };
  std::vector<T>& own() {
    if (!held_)
      held_ = new Held{{1}, {}};
    else if (held_->holders.load(std::memory_order_acquire) != 1)
      *this = SharedVec(std::vector<T>(held_->items));
    return held_->items;
  }

  Held* held_ = nullptr;
};

}  // namespace weft
