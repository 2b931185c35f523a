// What Python passes and gets: names and paths to the library's words, JSON to plain objects.
#pragma once

#include <pybind11/pybind11.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace weft::python {

namespace py = pybind11;

// dict, list, str, int, float, bool, None. Invalid UTF-8 is replaced.
py::object to_python(const nlohmann::json& json);
py::str to_text(std::string_view text);

// A str, or a path. `what` names the argument in the TypeError.
std::string text_of(const py::handle& object, std::string_view what);
// One of them, or a sequence of them.
std::vector<std::string> texts_of(const py::handle& object, std::string_view what);

}  // namespace weft::python
