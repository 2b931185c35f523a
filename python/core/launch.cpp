#include "core/launch.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include "core/bind.h"
#include "core/call.h"
#include "core/convert.h"
#include "core/search.h"
#include "core/simulation.h"
#include "core/words.h"

namespace weft::python {
namespace {

LaunchObject read(const py::object& path, std::optional<std::string> trainer) {
  std::string file = text_of(path, "path");
  return without_gil([&] {
    const std::string text = value_of(read_configuration(file));
    const Target target = trainer ? value_of(target_named(*trainer)) : trainer_of_configuration(text);
    return LaunchObject{target, file, value_of(import_run(target, text, file))};
  });
}

// The run on a cluster, with what its file does not have.
PlanRequest request_of(const LaunchObject& launch, const py::object& cluster, const py::object& model,
                       std::optional<std::int64_t> seq, std::optional<std::int64_t> devices) {
  PlanRequest given;
  given.device_count = devices;
  given.seq = seq;
  if (!model.is_none()) name_model(model, given);
  name_cluster(cluster, given);
  return value_of(on_cluster(launch.run, given, launch.file)).request;
}

SimulationObject simulate(const LaunchObject& self, const py::object& cluster, const py::object& model,
                          std::optional<std::int64_t> seq, std::optional<std::int64_t> devices) {
  return play({.plan = request_of(self, cluster, model, seq, devices)});
}

SearchObject plan(const LaunchObject& self, const py::object& cluster, const py::object& model,
                  std::optional<std::int64_t> seq, std::optional<std::int64_t> devices, const py::object& budget,
                  std::int64_t top, const py::object& progress) {
  SearchRequest request{
      .plan = request_of(self, cluster, model, seq, devices), .budget = words_of(budget, "budget"), .top = top};
  // As many samples a step as the run has, and whatever else it is not told.
  request.plan.global_batch = without_gil([&] { return value_of(make_plan(request.plan)).batch.global_batch; });
  return run_search(std::move(request), progress, self.target);
}

}  // namespace

void bind_launch(py::module_& module) {
  py::class_<LaunchObject> bound(module, "Launch",
                                 "A present run, as its trainer's launch configuration describes it.");
  const auto word = [&](const char* name, auto of, const char* documentation) {
    bound.def_property_readonly(
        name, [of](const LaunchObject& self) { return of(self); }, documentation);
  };
  word(
      "trainer", [](const LaunchObject& of) { return std::string(name_of(of.target)); }, "");
  word(
      "model", [](const LaunchObject& of) { return of.run.request.model; }, "Empty: the file does not say it.");
  word(
      "strategy",
      [](const LaunchObject& of) {
        return NamedStrategy{of.run.request.strategy, ""};
      },
      "");
  word(
      "global_batch", [](const LaunchObject& of) { return of.run.request.global_batch; }, "");
  word(
      "seq", [](const LaunchObject& of) { return of.run.request.seq; }, "");
  word(
      "dtype", [](const LaunchObject& of) { return of.run.request.dtype; }, "");
  word(
      "stack", [](const LaunchObject& of) { return of.run.request.stack; }, "");
  word(
      "devices", [](const LaunchObject& of) { return of.run.request.device_count; }, "Where the launcher says it.");
  word(
      "notes", [](const LaunchObject& of) { return of.run.notes; }, "What predictions do not know of.");
  word(
      "kept", [](const LaunchObject& of) { return of.run.kept; }, "Arguments that are no part of a plan.");
  bound
      .def("simulate", &simulate, py::arg("cluster"), py::kw_only(), py::arg("model") = py::none(),
           py::arg("seq") = py::none(), py::arg("devices") = py::none(), "What the run takes there.")
      .def("plan", &plan, py::arg("cluster"), py::kw_only(), py::arg("model") = py::none(), py::arg("seq") = py::none(),
           py::arg("devices") = py::none(), py::arg("budget") = py::none(), py::arg("top") = 5,
           py::arg("progress") = py::none(), "The best plans for the same step that the trainer can be told.")
      .def("__repr__", [](const LaunchObject& self) {
        return to_text(fmt::format("<weft.Launch of {}: {}>", self.run.request.model, self.run.request.strategy));
      });
  module.def(
      "read_launch", &read, py::arg("path"), py::arg("trainer") = py::none(),
      "A launch configuration of Megatron-LM, torchtitan or DeepSpeed; which one it is is seen where `trainer` is\n"
      "not given.");
}

}  // namespace weft::python
