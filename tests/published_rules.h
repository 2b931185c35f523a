// The rules of published tables (tools/published_runs.yaml), for tests of rows as publications print them.
#pragma once

#include <cstdlib>

#include "validate/mapping.h"

namespace weft {

inline MappingRules published_rules() {
  const char* const root = std::getenv("WEFT_SOURCE_DIR");  // set by ctest
  return read_mapping_rules(std::string(root != nullptr ? root : ".") + "/tools/published_runs.yaml").value();
}

}  // namespace weft
