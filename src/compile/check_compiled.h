// The verifier after the compiler: a program that does not pass aborts the process with the verifier's message. In
// builds with WEFT_VERIFY_COMPILED (CMake sets it for the build type Debug); in others it costs nothing. A program is
// checked where its schedule is known, which is compile_strategy; `compile` alone has none, and recompilations
// (compilation.h) are compared with full ones by tests.
#pragma once

#include "program/program.h"
#include "program/schedule.h"

namespace weft {

void check_compiled(const Program& program, const Graph& graph, const Schedule& schedule);

}  // namespace weft
