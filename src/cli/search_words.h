// The options of a search, shared by weft plan and its sweeps.
#pragma once

#include "ask/search.h"

namespace CLI {
class App;
}

namespace weft {

// Adds what describes the problem, the constraints and the search.
void add_search_words(CLI::App& command, SearchRequest& request);

}  // namespace weft
