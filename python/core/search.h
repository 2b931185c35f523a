// weft.plan and weft.Search.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>

#include "ask/search.h"
#include "export/export.h"

namespace weft::python {

namespace py = pybind11;

// A search, and what is asked of it later.
using SearchObject = std::shared_ptr<Searched>;
// Searches where Ctrl-C is heard. `trainer`: only what it can be told.
SearchObject run_search(SearchRequest request, const py::object& progress, std::optional<Target> trainer = {});
// A number or a text, as on the command line; empty for None.
std::string words_of(const py::object& value, const char* what);

}  // namespace weft::python
