#include "cli/answer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

// Not fmt::print, which throws where stderr takes nothing; there is nobody left to tell.
void tell(std::string_view message) { std::fputs(fmt::format("weft: {}\n", message).c_str(), stderr); }

}  // namespace

int report(const Error& error) {
  tell(error.message);
  return kBadInput;
}

int say(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return kDone;
  tell(fmt::format("stdout: cannot be written: {}", std::strerror(errno)));
  return kFailed;
}

int finish(const Result<Answer>& answer) {
  if (!answer.ok()) return report(answer.error());
  const int said = say(answer->text);
  if (answer->unwritten) tell(answer->unwritten->message);
  return said == kDone && answer->feasible && !answer->unwritten ? kDone : kFailed;
}

int finish(const Result<std::string>& text) { return text.ok() ? say(*text) : report(text.error()); }

std::string to_text(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void hold_standard_streams() {
  for (const int stream : {0, 1, 2})
    // The lowest number that is free is given to what is opened: this one.
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", stream == 2 ? O_WRONLY : O_RDONLY) < 0)
      return;
}

}  // namespace weft
