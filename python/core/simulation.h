// weft.simulate and weft.Simulation.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "ask/simulation.h"
#include "report/timeline_columns.h"

namespace weft::python {

namespace py = pybind11;

struct SimulationObject {
  Simulation of;
  std::optional<py::object> json = {};  // made when it is first asked for
};
// Plays it where Ctrl-C is heard.
SimulationObject play(SimulationRequest request);

void bind_simulation(py::module_& module);

}  // namespace weft::python
