// When memory can be given back: a free after the last use of every buffer that does not outlive the step.
#pragma once

#include "program/program.h"

namespace weft {

// Given a program without frees; every buffer that is written gets exactly one. What the forward body makes and
// backward reads is freed in the backward body; what is read by weight gradients is freed among them, so that a split
// backward frees it as well. A view holds the memory it looks at. Cost: linear in the instructions.
void add_frees(Program& program);

}  // namespace weft
