#include "cli/answer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

// Not fmt::print, which throws if stderr cannot be written; there is nowhere left to report that.
void print_error(std::string_view message) { std::fputs(fmt::format("weft: {}\n", message).c_str(), stderr); }

}  // namespace

int report(const Error& error) {
  print_error(error.message);
  return kBadInput;
}

int print_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return kDone;
  print_error(fmt::format("stdout: cannot be written: {}", std::strerror(errno)));
  return kFailed;
}

int finish(const Result<Answer>& answer) {
  if (!answer.ok()) return report(answer.error());
  const int written = print_text(answer->text);
  if (answer->unwritten) print_error(answer->unwritten->message);
  return written == kDone && answer->feasible && !answer->unwritten ? kDone : kFailed;
}

int finish(const Result<std::string>& text) { return text.ok() ? print_text(*text) : report(text.error()); }

std::string to_text(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void hold_standard_streams() {
  for (const int stream : {0, 1, 2})
    // open() takes the lowest free descriptor: this one.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", stream == 2 ? O_WRONLY : O_RDONLY) < 0)
      return;
}

}  // namespace weft
