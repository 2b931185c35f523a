#include "ask/search.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "core/bind.h"
#include "core/call.h"
#include "core/convert.h"
#include "core/launch.h"
#include "core/options.h"
#include "core/search.h"
#include "core/simulation.h"
#include "core/words.h"
#include "report/plan_search.h"
#include "strategy/yaml.h"

namespace weft::python {
namespace {

// One of its plans. Its figures are the search's; simulate() plays it again, with a timeline.
struct FoundObject {
  SearchObject search;
  std::size_t index = 0;

  const Judged& judged() const { return search->found.outcome.best[index]; }
};

NamedStrategy strategy_of(const Judged& judged) {
  return {judged.strategy, judged.parallelism ? "" : to_yaml(judged.tree)};
}

Target target_of(const std::string& name) { return value_of(target_named(name)); }

std::string export_found(const FoundObject& self, const py::object& to) {
  std::vector<std::string> kept;
  std::string name;
  if (py::isinstance<LaunchObject>(to)) {
    const auto& launch = to.cast<const LaunchObject&>();
    kept = launch.run.kept;
    name = name_of(launch.target);
  } else {
    name = text_of(to, "to");
  }
  return without_gil(
      [&] { return value_of(configuration_of_found(target_of(name), self.search->problem, self.judged(), kept)); });
}

}  // namespace

SearchObject run_search(SearchRequest request, const py::object& progress, std::optional<Target> trainer) {
  if (!progress.is_none() && !PyCallable_Check(progress.ptr()))
    throw py::type_error(
        fmt::format("progress: a function of a weft.Progress, not {}", Py_TYPE(progress.ptr())->tp_name));
  PythonProgress tell;
  if (!progress.is_none())
    tell = [&](const SearchProgress& now) {
      const py::object answer = progress(now);
      return !(py::isinstance<py::bool_>(answer) && !answer.cast<bool>());
    };
  if (trainer && request.search == "auto") request.search = "enumerate";
  if (trainer && request.search != "enumerate")
    throw Failure(fmt::format("search='{}': trainers take degrees; leave it out", request.search));
  const auto watch = std::make_shared<Watch>();
  return watched(watch, tell, [watch, trainer, request = std::move(request)] {
    SearchHooks hooks = {.cancelled = watch->cancelled(),
                         .progress = [&](const SearchProgress& now) { watch->report(now); }};
    if (trainer)
      hooks.admit = [&](const PlanProblem& problem, SpaceOptions& space) {
        return admit_only(*trainer, *problem.job, space);
      };
    return std::make_shared<Searched>(value_of(search_plans(request, hooks)));
  });
}

std::string words_of(const py::object& value, const char* what) {
  if (value.is_none()) return {};
  if (py::isinstance<py::bool_>(value) || !(py::isinstance<py::str>(value) || py::isinstance<py::int_>(value)))
    throw py::type_error(fmt::format("{}: an int or a str, not {}", what, Py_TYPE(value.ptr())->tp_name));
  return py::str(value).cast<std::string>();
}

namespace {

SearchObject plan(const py::object& model, const py::object& cluster, std::optional<std::int64_t> devices,
                  std::optional<std::int64_t> global_batch, std::optional<std::int64_t> seq,
                  std::optional<std::string> dtype, std::optional<std::string> stack, std::optional<std::string> freeze,
                  std::string search, std::string cost, const py::object& db, const py::object& calibration,
                  const py::object& budget, const py::object& tokens, const py::object& schedules, std::int64_t seed,
                  std::int64_t top, double headroom, int threads, std::optional<std::string> trainer,
                  const py::object& progress) {
  SearchRequest request{
      .plan = JobOptions{devices, global_batch, seq, std::move(dtype), std::move(stack), std::move(freeze)}.request(),
      .cost = cost_of(std::move(cost), db, calibration),
      .search = std::move(search),
      .seed = seed,
      .top = top,
      .threads = threads,
      .headroom = headroom};
  request.budget = words_of(budget, "budget");
  request.tokens = words_of(tokens, "tokens");
  if (!schedules.is_none())
    for (const std::string& each : texts_of(schedules, "schedules"))
      request.schedules += (request.schedules.empty() ? "" : ",") + each;
  name_model(model, request.plan);
  name_cluster(cluster, request.plan);
  return run_search(std::move(request), progress,
                    trainer ? std::optional(target_of(*trainer)) : std::optional<Target>());
}

SimulationObject simulate_again(const SearchObject& search, std::size_t index) {
  return without_gil([&] { return SimulationObject{value_of(simulate_found(*search, index))}; });
}

void save(const SearchObject& search, const py::object& folder) {
  const std::string path = text_of(folder, "folder");
  without_gil([&] {
    if (search->found.outcome.best.empty()) throw Failure("nothing fits: there is no plan to write");
    must(make_folder(path));
    must(write_found(*search, value_of(simulate_found(*search, 0)), path));
  });
}

py::object search_json(const SearchObject& search) {
  const nlohmann::json json = without_gil([&] {
    std::optional<Simulation> winner;
    if (!search->found.outcome.best.empty()) winner = value_of(simulate_found(*search, 0));
    return to_json(*search, winner ? &*winner : nullptr);
  });
  return to_python(json);
}

std::string text_of_search(const Searched& of) {
  const PlanOutcome& outcome = of.found.outcome;
  return outcome.best.empty() ? describe_miss(of.problem, outcome) : describe(of.problem, outcome, of.table);
}

void bind_found(py::module_& module) {
  py::class_<FoundObject> bound(module, "FoundPlan", "A plan that a search has found, and simulated.");
  const auto figure = [&](const char* name, auto of, const char* documentation) {
    bound.def_property_readonly(
        name, [of](const FoundObject& self) { return of(self.judged()); }, documentation);
  };
  figure("strategy", &strategy_of, "");
  figure(
      "step_time_s", [](const Judged& of) { return of.forecast.step_s; }, "");
  figure(
      "step_time_ps", [](const Judged& of) { return of.forecast.step; }, "");
  figure(
      "samples_per_s", [](const Judged& of) { return of.forecast.samples_per_s; }, "");
  figure(
      "tokens_per_s", [](const Judged& of) { return of.forecast.tokens_per_s; }, "0: samples have no tokens.");
  figure(
      "mfu", [](const Judged& of) { return of.forecast.mfu; }, "");
  figure(
      "memory_verdict", [](const Judged& of) { return std::string(name_of(of.forecast.fit())); }, "");
  figure(
      "device_bytes",
      [](const Judged& of) {
        const ClassForecast* full = of.forecast.fullest();
        return full ? full->device_total.value : std::int64_t{0};
      },
      "Memory of the fullest device.");
  figure(
      "capacity_bytes",
      [](const Judged& of) {
        const ClassForecast* full = of.forecast.fullest();
        return full ? full->capacity.value : std::int64_t{0};
      },
      "What it has; 0: unknown.");
  bound
      .def(
          "simulate", [](const FoundObject& self) { return simulate_again(self.search, self.index); },
          "The plan played again, with its timeline.")
      .def("export", &export_found, py::arg("to"),
           "The plan as a trainer's launch configuration: megatron, torchtitan, deepspeed or pytorch; or for the "
           "trainer\n"
           "of a weft.Launch, whose own arguments are kept.")
      .def(
          "losses",
          [](const FoundObject& self, const FoundObject& to) {
            py::dict made;
            for (const Loss& loss : losses(self.judged().forecast, to.judged().forecast))
              made[to_text(loss.what)] = loss.seconds;
            return made;
          },
          py::arg("to"), "Where this plan loses seconds to another, the largest loss first; below 0: it gains.")
      .def("__repr__", [](const FoundObject& self) {
        return to_text(
            fmt::format("<weft.FoundPlan {}: {:.6g} s>", self.judged().strategy, self.judged().forecast.step_s));
      });
}

}  // namespace

void bind_search(py::module_& module) {
  py::class_<SearchProgress>(module, "Progress", "How far a search is.")
      .def_readonly("done", &SearchProgress::done, "Candidates, or evaluations.")
      .def_readonly("of", &SearchProgress::of, "0: unknown.")
      .def_readonly("best_s", &SearchProgress::best_s, "The best step time so far; 0: none yet.");
  bind_found(module);

  py::class_<Searched, SearchObject> bound(module, "Search", "What a search has found.");
  bound
      .def_property_readonly(
          "best",
          [](const SearchObject& self) {
            std::vector<FoundObject> plans;
            for (std::size_t i = 0; i < self->found.outcome.best.size(); ++i) plans.push_back({self, i});
            return plans;
          },
          "Plans that fit, the fastest first.")
      .def_property_readonly("feasible", [](const SearchObject& self) { return !self->found.outcome.best.empty(); })
      .def_property_readonly(
          "search", [](const SearchObject& self) { return self->found.by; }, "What found them.")
      .def_property_readonly(
          "lower_bound_s", [](const SearchObject& self) { return self->found.outcome.lower_bound_s; },
          "On every plan of the space; 0: unknown.")
      .def_property_readonly(
          "gap", [](const SearchObject& self) { return self->found.outcome.gap(); },
          "The best time over the lower bound, less 1; None where no bound is known, or the best is beyond it.")
      .def_property_readonly("considered",
                             [](const SearchObject& self) { return self->found.outcome.counts.considered; })
      .def_property_readonly("simulated", [](const SearchObject& self) { return self->found.outcome.counts.simulated; })
      .def_property_readonly(
          "stopped_by", [](const SearchObject& self) { return std::string(name_of(self->found.outcome.stopped_by)); },
          "done, evaluations, time or cancelled.")
      .def_property_readonly("assumptions", [](const SearchObject& self) { return self->problem.assumptions; })
      .def_property_readonly(
          "closest",
          [](const SearchObject& self) -> std::optional<NamedStrategy> {
            if (!self->found.outcome.closest) return std::nullopt;
            return strategy_of(*self->found.outcome.closest);
          },
          "Where nothing fits, the strategy that lacks the least memory.")
      .def("save", &save, py::arg("folder"), "Write plan.json, strategy.yaml and trace.json of the best plan.")
      .def("to_dict", &search_json, "What `weft plan --json` prints; simulates the best plan once more.")
      .def(
          "frame", [](const py::object& self) { return py::module_::import("weft.frames").attr("of_search")(self); },
          "A pandas.DataFrame, a row per plan.")
      .def("__str__", [](const SearchObject& self) { return to_text(text_of_search(*self)); })
      .def("__repr__",
           [](const SearchObject& self) {
             return to_text(fmt::format("<weft.Search of {} on {}: {} plans>", self->request.plan.model,
                                        self->request.plan.cluster, self->found.outcome.best.size()));
           })
      .def("_repr_html_",
           [](const py::object& self) { return py::module_::import("weft.html").attr("of_search")(self); });

  module.def("plan", &plan, py::arg("model"), py::arg("cluster"), py::kw_only(), py::arg("devices") = py::none(),
             py::arg("global_batch") = py::none(), py::arg("seq") = py::none(), py::arg("dtype") = py::none(),
             py::arg("stack") = py::none(), py::arg("freeze") = py::none(), py::arg("search") = "auto",
             py::arg("cost") = "analytic", py::arg("db") = py::none(), py::arg("calibration") = py::none(),
             py::arg("budget") = py::none(), py::arg("tokens") = py::none(), py::arg("schedules") = py::none(),
             py::arg("seed") = 1, py::arg("top") = 5, py::arg("headroom") = 100 * kHeadroom, py::arg("threads") = 0,
             py::arg("trainer") = py::none(), py::arg("progress") = py::none(),
             "Find the best strategy. Arguments are the options of `weft plan`. `progress` is called several times a\n"
             "second; where it returns False the search stops with the best so far. `trainer`: only plans that it can "
             "be told.");
}

}  // namespace weft::python
