// Text files compiled into the binary (cmake/embed.cmake writes the tables), so that `weft` runs from anywhere.
#pragma once

#include <span>
#include <string_view>

namespace weft {

struct EmbeddedFile {
  std::string_view path;  // relative to the repository root
  std::string_view text;
};

}  // namespace weft
