// The options that choose the cost model.
#pragma once

#include "ask/cost.h"

namespace CLI {
class App;
}

namespace weft {

void add_cost_arguments(CLI::App& command, CostArguments& arguments);

}  // namespace weft
