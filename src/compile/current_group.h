// The group that is being lowered, and how it was lowered before.
#pragma once

#include "compile/group_code.h"

namespace weft {

struct CurrentGroup {
  GroupCode* code = nullptr;  // grows while the group is lowered
  // The group's code before a change to some operators, what the change writes over, and what it touches; all null
  // where the group is lowered for the first time.
  GroupCode* before = nullptr;
  Overwritten* journal = nullptr;
  Touched* touched = nullptr;
  bool keeps = false;         // passages of `before` that do not depend on the change stay
  bool of_parameter = false;  // a parameter's group
  bool once = false;          // no group will be lowered again, so nothing is recorded for that
};

}  // namespace weft
