// The extension module weft._core: the library's functions and values as Python's.
#include <pybind11/pybind11.h>

#include <nlohmann/json.hpp>

#include "ask/build.h"
#include "core/bind.h"
#include "core/call.h"
#include "core/convert.h"

PYBIND11_MODULE(_core, module) {
  using namespace weft::python;
  module.doc() = "Weft finds how to train a model on a cluster and predicts every device's time and memory.";
  auto error = pybind11::register_exception<Failure>(module, "Error", PyExc_ValueError);
  error.doc() = "Something that was asked for does not work, and what to do about it.";
  error.attr("__module__") = "weft";
  module.attr("__version__") = weft::build_facts().version;
  module.def(
      "build_info", [] { return to_python(weft::to_json(weft::build_facts())); },
      "What `weft doctor --json` says of the build.");
  pybind11::module_::import("atexit").attr("register")(pybind11::cpp_function(&wait_for_interrupted));
  bind_words(module);
  bind_simulation(module);
  bind_launch(module);
  bind_search(module);
  bind_validation(module);
}
