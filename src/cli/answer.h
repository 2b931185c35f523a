// What a command answers, and how it is printed: results on stdout, everything else on stderr, the exit code.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weft {

// kFailed: nothing fits, or what was found could not be written.
inline constexpr int kDone = 0, kFailed = 1, kBadInput = 2;

struct Answer {
  std::string text = {};
  bool feasible = true;
  std::optional<Error> unwritten = {};  // a file that was asked for; the text is printed all the same
};

// Each returns the exit code. An error is the user's: "weft: message" on stderr.
int report(const Error& error);
int finish(const Result<Answer>& answer);
int finish(const Result<std::string>& text);
// A stdout that takes no more (a full disk) or is closed is a failure, told on stderr.
int say(std::string_view text);

// As --json prints it. Bytes of a name that are no UTF-8 are replaced.
std::string to_text(const nlohmann::json& json);

// A standard stream that the caller has closed would lend its number to the next file that is opened, and its text
// would end in that. Opens what is closed so that nothing can be read from stdin and writing to stdout fails.
void hold_standard_streams();

}  // namespace weft
