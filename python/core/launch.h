// weft.read_launch and weft.Launch: a present run, read from its trainer's configuration.
#pragma once

#include <string>

#include "ask/present_run.h"

namespace weft::python {

struct LaunchObject {
  Target target{};
  std::string file;
  ImportedRun run;
};

}  // namespace weft::python
