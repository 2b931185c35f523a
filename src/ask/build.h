// What this weft was built from: the facts of a bug report. Nothing of them depends on when or where it was built.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft {

struct BuildFacts {
  std::string version;
  std::string commit;    // "-dirty" behind it: with changes; empty: built outside a checkout
  std::string compiler;  // "GNU 12.2.0"
  std::string type;      // "Release"
  bool run = false;      // weft-rank was built, with libtorch
  bool python = false;   // the Python module was built
};
BuildFacts build_facts();

// "weft 0.1.0", then a line of facts.
std::string describe(const BuildFacts& facts);
nlohmann::json to_json(const BuildFacts& facts);

}  // namespace weft
