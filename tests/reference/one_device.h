// Whether a program trains as one device does.
#pragma once

#include <string>

#include "graph/training.h"
#include "program/program.h"

namespace weft::reference {

// One step on one device and by the program, with the same seeded values: empty, or the first parameter whose gradient
// or update differs by more than 1e-9, or what the verifier or the interpreter found. BatchNorm on one device groups
// samples as the program's shards do.
std::string differs_from_one_device(const TrainingGraph& training, const Program& program, const Schedule& schedule);

}  // namespace weft::reference
