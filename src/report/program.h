// `weft show program`: the rank classes of a program, what each plays, and the text of one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"

namespace weft {

// Ranks that play the same code: those that lie in the same meshes.
struct ProgramClass {
  std::vector<MeshId> meshes;  // the world is left out: all are in it
  std::vector<std::int64_t> ranks;
  std::vector<std::int64_t> stages;  // that it plays, in the order of its chunks
};
std::vector<ProgramClass> program_classes(const Plan& plan, const CompiledStrategy& compiled);

// Classes, instructions of every body, traffic and memory: a page.
std::string describe_program(const Plan& plan, const CompiledStrategy& compiled);
// docs/schema/show-program.schema.json
nlohmann::json program_json(const Plan& plan, const CompiledStrategy& compiled);

// What one rank plays, body by body, one instruction a line with the shapes it has there. An error names the ranks
// there are.
Result<std::string> rank_text(const Plan& plan, const CompiledStrategy& compiled, std::int64_t rank);
// The same of the first rank of a pipeline stage.
Result<std::string> stage_text(const Plan& plan, const CompiledStrategy& compiled, std::int64_t stage);

}  // namespace weft
