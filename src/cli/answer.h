// What a command answers, and how it is printed: results on stdout, everything else on stderr, the exit code.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// kFailed: nothing fits, or the result could not be written.
inline constexpr int kDone = 0, kFailed = 1, kBadInput = 2;

struct Answer {
  std::string text = {};
  bool feasible = true;
  std::optional<Error> unwritten = {};  // a requested file could not be written; the text is printed nevertheless
};

// Each returns the exit code. An error is printed as "weft: message" on stderr.
int report(const Error& error);
int finish(const Result<Answer>& answer);
int finish(const Result<std::string>& text);
// Prints to stdout. If that cannot be written (a full disk) or is closed, it is a failure, reported on stderr.
int print_text(std::string_view text);

// As --json prints it. Invalid UTF-8 in names is replaced.
std::string to_text(const nlohmann::json& json);

// If the caller has closed a standard stream, the next opened file would get its descriptor, and output would go to
// that file. Reopens closed streams so that stdin is empty and writing to stdout fails.
void hold_standard_streams();

}  // namespace weft
