// Result<T>: a value, or an error that tells the user what to mend.
//
// An Error's message names the value at fault and the remedy; `at()` puts the place in front of it:
//   cluster.yaml:14: bandwidth '400': unit missing; write 400Gbps or 50GB/s
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace weft {

struct Error {
  std::string message;

  // The same error with a place in front: "file:line: message".
  Error at(std::string_view file, int line) const { return {fmt::format("{}:{}: {}", file, line, message)}; }
  Error at(std::string_view where) const { return {fmt::format("{}: {}", where, message)}; }

  bool operator==(const Error&) const = default;
};

template <class... Args>
Error error(fmt::format_string<Args...> format, Args&&... args) {
  return {fmt::format(format, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  const T& value() const& {
    WEFT_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T& value() & {
    WEFT_CHECK(ok(), "value() of an error: {}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  T&& value() && { return std::move(value()); }

  const Error& error() const {
    WEFT_CHECK(!ok(), "error() of a value");
    return std::get<1>(state_);
  }

  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  std::variant<T, Error> state_;
};

// The result of a check that yields nothing on success.
struct Ok {};
using Status = Result<Ok>;

}  // namespace weft

#define WEFT_CONCAT_(a, b) a##b
#define WEFT_CONCAT(a, b) WEFT_CONCAT_(a, b)

// WEFT_TRY(auto x, expression): x = the value, or return the error from the enclosing function.
#define WEFT_TRY(declaration, ...) WEFT_TRY_(WEFT_CONCAT(weft_result_, __LINE__), declaration, __VA_ARGS__)
#define WEFT_TRY_(result, declaration, ...) \
  auto result = (__VA_ARGS__);              \
  if (!result.ok()) return result.error();  \
  declaration = std::move(result).value()

// WEFT_TRY_OK(expression): return the error, if it is one.
#define WEFT_TRY_OK(...)                               \
  do {                                                 \
    auto weft_status = (__VA_ARGS__);                  \
    if (!weft_status.ok()) return weft_status.error(); \
  } while (false)
