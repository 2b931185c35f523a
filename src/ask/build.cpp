#include "ask/build.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "weft_commit.h"

namespace weft {

BuildFacts build_facts() {
  return {.version = WEFT_VERSION,
          .commit = WEFT_COMMIT,
          .compiler = WEFT_COMPILER,
          .type = WEFT_BUILD_TYPE,
          .run = WEFT_HAS_RUN,
          .python = WEFT_HAS_PYTHON};
}

std::string describe(const BuildFacts& facts) {
  return fmt::format("weft {}\ncommit {} · {} · {} · weft-rank: {} · Python module: {}\n", facts.version,
                     facts.commit.empty() ? "unknown" : facts.commit, facts.compiler,
                     facts.type.empty() ? "no build type" : facts.type, facts.run ? "yes" : "no",
                     facts.python ? "yes" : "no");
}

nlohmann::json to_json(const BuildFacts& facts) {
  return {
      {"version", facts.version},   {"commit", facts.commit.empty() ? nlohmann::json() : nlohmann::json(facts.commit)},
      {"compiler", facts.compiler}, {"build_type", facts.type},
      {"run", facts.run},           {"python", facts.python}};
}

}  // namespace weft
