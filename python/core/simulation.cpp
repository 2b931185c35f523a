#include "core/simulation.h"

#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "base/whole_file.h"
#include "core/call.h"
#include "core/convert.h"
#include "core/options.h"
#include "core/words.h"
#include "report/gantt.h"
#include "report/plan_search.h"
#include "report/simulation.h"
#include "report/trace.h"
#include "strategy/yaml.h"

namespace weft::python {
namespace {

py::object json_of(SimulationObject& self) {
  if (!self.json) self.json = to_python(to_json(self.of));
  return *self.json;
}

// A part of what `weft simulate --json` prints; None where it has none.
template <class Class>
void from_json(Class& bound, const char* name, const char* documentation) {
  bound.def_property_readonly(
      name, [name](SimulationObject& self) { return json_of(self).attr("get")(name); }, documentation);
}

SimulationObject simulate_words(const py::object& model, const py::object& cluster, const py::object& strategy,
                                std::optional<std::int64_t> devices, std::optional<std::int64_t> global_batch,
                                std::optional<std::int64_t> micro_batch, std::optional<std::int64_t> seq,
                                std::optional<std::string> dtype, std::optional<std::string> stack,
                                std::optional<std::string> freeze, std::string cost, const py::object& db,
                                const py::object& calibration, std::string network, bool fold,
                                std::optional<double> headroom) {
  SimulationRequest request{
      .plan = JobOptions{devices, global_batch, seq, std::move(dtype), std::move(stack), std::move(freeze)}.request(),
      .cost = cost_of(std::move(cost), db, calibration),
      .network = std::move(network),
      .headroom = headroom,
      .fold = fold};
  request.plan.micro_batch = micro_batch;
  name_model(model, request.plan);
  name_cluster(cluster, request.plan);
  name_strategy(strategy, request.plan);
  return play(std::move(request));
}

SimulationObject simulate_file(const py::object& path, std::string cost, const py::object& db,
                               const py::object& calibration, std::string network, bool fold,
                               std::optional<double> headroom) {
  SimulationRequest request{.plan_file = text_of(path, "path"),
                            .cost = cost_of(std::move(cost), db, calibration),
                            .network = std::move(network),
                            .headroom = headroom,
                            .fold = fold};
  return play(std::move(request));
}

std::string describe_simulation(const Simulation& of) { return describe(of.plan, of.played, of.forecast); }

void write_trace_file(const Simulation& of, const std::string& path, const std::vector<std::int64_t>& ranks,
                      std::int64_t most_tasks) {
  WholeFile file = value_of(WholeFile::create(path));
  value_of(write_trace(file, of.plan, of.played, {.ranks = ranks, .most_tasks = most_tasks}));
  must(file.finish());
}

// Arrays share the columns' memory, which lives as long as any of them, and are read-only.
template <class T>
py::array array_of(const py::object& owner, const std::vector<T>& column) {
  py::array made(py::dtype::of<T>(), {column.size()}, {sizeof(T)}, column.data(), owner);
  made.attr("setflags")(py::arg("write") = false);
  return made;
}

template <class Class, class Column>
void bind_column(Class& bound, const char* name, Column TimelineColumns::*column, const char* documentation) {
  bound.def_property_readonly(
      name, [column](const py::object& self) { return array_of(self, self.cast<TimelineColumns&>().*column); },
      documentation);
}

void bind_timeline(py::module_& module) {
  py::class_<TimelineColumns> bound(
      module, "Timeline",
      "A simulated step, a row for every task that ran: numpy arrays, times in picoseconds from the step's begin.");
  bound.def("__len__", &TimelineColumns::rows)
      .def("__repr__",
           [](const TimelineColumns& self) { return fmt::format("<weft.Timeline of {} tasks>", self.rows()); })
      .def_readonly("operations", &TimelineColumns::operations, "What the numbers of `operation` mean.")
      .def_readonly("activities", &TimelineColumns::activities)
      .def_readonly("streams", &TimelineColumns::streams)
      .def_readonly("bodies", &TimelineColumns::bodies)
      .def(
          "frame", [](const py::object& self) { return py::module_::import("weft.frames").attr("of_timeline")(self); },
          "A pandas.DataFrame, times in seconds.");
  bind_column(bound, "rank", &TimelineColumns::rank, "");
  bind_column(bound, "pipeline_rank", &TimelineColumns::pipeline_rank, "");
  bind_column(bound, "micro_batch", &TimelineColumns::micro_batch, "-1: of the optimizer step.");
  bind_column(bound, "operation", &TimelineColumns::operation, "Index into `operations`.");
  bind_column(bound, "activity", &TimelineColumns::activity, "Index into `activities`.");
  bind_column(bound, "stream", &TimelineColumns::stream, "Index into `streams`.");
  bind_column(bound, "body", &TimelineColumns::body, "Index into `bodies`.");
  bind_column(bound, "issued_ps", &TimelineColumns::issued, "The host has issued it.");
  bind_column(bound, "start_ps", &TimelineColumns::start, "It occupies its stream.");
  bind_column(bound, "work_ps", &TimelineColumns::work, "Its work begins: all parties are there.");
  bind_column(bound, "end_ps", &TimelineColumns::end, "");
}

}  // namespace

SimulationObject play(SimulationRequest request) {
  const auto played = watched(std::make_shared<Watch>(), {}, [request = std::move(request)] {
    return std::make_shared<Simulation>(value_of(simulate(value_of(settle_simulation(request)))));
  });
  return SimulationObject{std::move(*played)};
}

void bind_simulation(py::module_& module) {
  bind_timeline(module);
  py::class_<SimulationObject> bound(module, "Simulation", "A training step in simulated time.");
  const auto figure = [&](const char* name, auto of, const char* documentation) {
    bound.def_property_readonly(
        name, [of](const SimulationObject& self) { return of(self.of); }, documentation);
  };
  figure(
      "step_time_s", [](const Simulation& of) { return of.forecast.step_s; }, "");
  figure(
      "step_time_ps", [](const Simulation& of) { return of.forecast.step; }, "");
  figure(
      "samples_per_s", [](const Simulation& of) { return of.forecast.samples_per_s; }, "");
  figure(
      "tokens_per_s", [](const Simulation& of) { return of.forecast.tokens_per_s; }, "0: samples have no tokens.");
  figure(
      "mfu", [](const Simulation& of) { return of.forecast.mfu; }, "Model FLOPs over the devices' dense peak.");
  figure(
      "mfu_causal", [](const Simulation& of) { return of.forecast.mfu_causal; }, "");
  figure(
      "hfu", [](const Simulation& of) { return of.forecast.hfu; }, "With recomputation.");
  figure(
      "feasible", [](const Simulation& of) { return of.forecast.feasible; }, "Every device's memory suffices.");
  figure(
      "memory_verdict", [](const Simulation& of) { return std::string(name_of(of.forecast.fit())); }, "");
  figure(
      "interval_s",
      [](const Simulation& of) { return std::pair(of.forecast.interval.low_s, of.forecast.interval.high_s); },
      "Where measured step times of such plans have been.");
  figure(
      "model", [](const Simulation& of) { return of.plan.job->words.model; }, "");
  figure(
      "cluster", [](const Simulation& of) { return of.plan.job->words.cluster; }, "");
  figure(
      "strategy",
      [](const Simulation& of) {
        return NamedStrategy{of.plan.name, of.plan.parallelism ? "" : to_yaml(of.plan.strategy)};
      },
      "With its defaults filled in.");
  figure(
      "devices", [](const Simulation& of) { return of.plan.ranks().size(); }, "");
  figure(
      "global_batch", [](const Simulation& of) { return of.plan.batch.global_batch; }, "Samples per step.");
  figure(
      "assumptions", [](const Simulation& of) { return of.forecast.assumptions; }, "What was not said.");
  from_json(bound, "breakdown_s", "Seconds of the last-ending rank, by what it does; they sum to the step.");
  from_json(bound, "memory", "By class of ranks: bytes at the peak by kind, and what there is.");
  from_json(bound, "links", "The busiest links.");
  from_json(bound, "critical_path", "What the critical path consists of.");
  bound
      .def(
          "timeline",
          [](const SimulationObject& self, std::vector<std::int64_t> ranks) {
            return without_gil(
                [&] { return value_of(timeline_columns(self.of.plan, self.of.played, std::move(ranks))); });
          },
          py::arg("ranks") = py::list(), "Every task, of these ranks; by default of one rank of each class.")
      .def(
          "trace",
          [](const SimulationObject& self, const py::object& path, const std::vector<std::int64_t>& ranks,
             std::int64_t most_tasks) {
            if (most_tasks < 0) throw Failure(fmt::format("most_tasks {}: 0 (all) or more", most_tasks));
            const std::string file = text_of(path, "path");
            without_gil([&] { write_trace_file(self.of, file, ranks, most_tasks); });
          },
          py::arg("path"), py::kw_only(), py::arg("ranks") = py::list(), py::arg("most_tasks") = 100'000,
          "Write a Chrome trace, for ui.perfetto.dev.")
      .def(
          "gantt",
          [](const SimulationObject& self, std::size_t width) {
            return to_text(draw_gantt(self.of.plan, self.of.played, width));
          },
          py::arg("width") = 100, "The timeline as text, a line per stage.")
      .def(
          "losses",
          [](const SimulationObject& self, const SimulationObject& to) {
            py::dict made;
            for (const Loss& loss : losses(self.of.forecast, to.of.forecast)) made[to_text(loss.what)] = loss.seconds;
            return made;
          },
          py::arg("to"), "Where this plan loses seconds to another, the largest loss first; below 0: it gains.")
      .def("to_dict", &json_of, "What `weft simulate --json` prints.")
      .def("__str__", [](const SimulationObject& self) { return to_text(describe_simulation(self.of)); })
      .def("__repr__",
           [](const SimulationObject& self) {
             return to_text(fmt::format("<weft.Simulation {} on {}, {}: {:.6g} s>", self.of.plan.job->words.model,
                                        self.of.plan.job->words.cluster, self.of.plan.name, self.of.forecast.step_s));
           })
      .def("_repr_html_",
           [](const py::object& self) { return py::module_::import("weft.html").attr("of_simulation")(self); });

  module.def("simulate", &simulate_words, py::arg("model"), py::arg("cluster"), py::arg("strategy"), py::kw_only(),
             py::arg("devices") = py::none(), py::arg("global_batch") = py::none(), py::arg("micro_batch") = py::none(),
             py::arg("seq") = py::none(), py::arg("dtype") = py::none(), py::arg("stack") = py::none(),
             py::arg("freeze") = py::none(), py::arg("cost") = "analytic", py::arg("db") = py::none(),
             py::arg("calibration") = py::none(), py::arg("network") = "fair", py::arg("fold") = true,
             py::arg("headroom") = py::none(),
             "Play one training step in simulated time. Arguments are the options of `weft simulate`.");
  module.def("simulate_file", &simulate_file, py::arg("path"), py::kw_only(), py::arg("cost") = "analytic",
             py::arg("db") = py::none(), py::arg("calibration") = py::none(), py::arg("network") = "fair",
             py::arg("fold") = true, py::arg("headroom") = py::none(),
             "The same of a plan.json, as Search.save and `weft plan --out` write it.");
}

}  // namespace weft::python
