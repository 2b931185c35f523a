// A vector of ids with small-buffer storage: up to four lie in the object itself, which is as large as a std::vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace weft {

template <class T>
class ShortVec {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) == 4);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  ShortVec() {}
  explicit ShortVec(std::size_t size) { resize(size); }
  ShortVec(std::initializer_list<T> items) { append(items.begin(), items.end()); }
  template <class Iterator>
  ShortVec(Iterator first, Iterator last) {
    reserve(static_cast<std::size_t>(last - first));
    for (; first != last; ++first) push_back(*first);
  }
  ShortVec(const ShortVec& other) { append(other.begin(), other.end()); }
  ShortVec(ShortVec&& other) noexcept { take(other); }
  ShortVec& operator=(const ShortVec& other) {
    if (this == &other) return *this;
    size_ = 0;
    append(other.begin(), other.end());
    return *this;
  }
  ShortVec& operator=(ShortVec&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~ShortVec() { release(); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return capacity_ == kInside ? inside_ : outside_; }
  const T* data() const { return capacity_ == kInside ? inside_ : outside_; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& front() { return *begin(); }
  const T& front() const { return *begin(); }
  T& back() { return end()[-1]; }
  const T& back() const { return end()[-1]; }

  void push_back(T item) {
    reserve(size_ + 1);
    data()[size_++] = item;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void resize(std::size_t size) {
    reserve(size);
    for (; size_ < size; ++size_) data()[size_] = T();
    size_ = static_cast<std::uint32_t>(size);
  }
  void append(const T* first, const T* last) {
    const auto count = static_cast<std::size_t>(last - first);
    reserve(size_ + count);
    std::copy(first, last, end());
    size_ += static_cast<std::uint32_t>(count);
  }
  T* erase(T* first, T* last) {
    size_ = static_cast<std::uint32_t>(std::copy(last, end(), first) - begin());
    return first;
  }

  bool operator==(const ShortVec& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  static constexpr std::uint32_t kInside = 4;

  void reserve(std::size_t size) {
    if (size <= capacity_) return;
    const std::size_t capacity = std::max<std::size_t>(size, 2 * std::size_t{capacity_});
    T* const moved = new T[capacity];
    std::copy(begin(), end(), moved);
    release();
    outside_ = moved;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }
  void release() {
    if (capacity_ != kInside) delete[] outside_;
    capacity_ = kInside;
  }
  void take(ShortVec& other) {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, kInside);
    if (capacity_ == kInside)
      std::copy(other.inside_, other.inside_ + size_, inside_);
    else
      outside_ = other.outside_;
  }

  std::uint32_t size_ = 0, capacity_ = kInside;
  union {
    T inside_[kInside];
    T* outside_ = nullptr;
  };
};

template <class T, class Predicate>
std::size_t erase_if(ShortVec<T>& list, Predicate predicate) {
  T* const kept = std::remove_if(list.begin(), list.end(), predicate);
  const auto erased = static_cast<std::size_t>(list.end() - kept);
  list.erase(kept, list.end());
  return erased;
}

}  // namespace weft
