// WEFT_CHECK: an invariant of Weft's own. A failure is a bug in Weft, never the user's doing:
// user errors travel as Result<T> (result.h), infeasible plans as scores.
#pragma once

#include <fmt/core.h>

#include <string>

namespace weft {

// Prints file, line, condition and message to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace weft

// WEFT_CHECK(condition, "format {}", value...): always on, also in release builds.
#define WEFT_CHECK(condition, ...)                                                         \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::weft::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
