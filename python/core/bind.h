// The parts of the module.
#pragma once

#include <pybind11/pybind11.h>

namespace weft::python {

void bind_words(pybind11::module_& module);
void bind_simulation(pybind11::module_& module);
void bind_search(pybind11::module_& module);
void bind_launch(pybind11::module_& module);
void bind_validation(pybind11::module_& module);

}  // namespace weft::python
