// `weft show program`: the rank classes of a program, the instructions of each, and the text of one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compile/from_strategy.h"
#include "plan/plan.h"

namespace weft {

// Ranks that execute the same instructions: those in the same meshes.
struct ProgramClass {
  std::vector<MeshId> meshes;  // without the world mesh, which contains all
  std::vector<std::int64_t> ranks;
  std::vector<std::int64_t> stages;  // of the class, in the order of its chunks
};
std::vector<ProgramClass> program_classes(const Plan& plan, const CompiledStrategy& compiled);

// Classes, instructions of every body, traffic and memory: a page.
std::string describe_program(const Plan& plan, const CompiledStrategy& compiled);
// docs/schema/show-program.schema.json
nlohmann::json program_json(const Plan& plan, const CompiledStrategy& compiled);

// The instructions of one rank, body by body, one per line with their local shapes. The error names the valid ranks.
Result<std::string> rank_text(const Plan& plan, const CompiledStrategy& compiled, std::int64_t rank);
// The same for the first rank of a pipeline stage.
Result<std::string> stage_text(const Plan& plan, const CompiledStrategy& compiled, std::int64_t stage);

}  // namespace weft
