#include "ask/validation.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/whole_file.h"
#include "core/bind.h"
#include "core/call.h"
#include "core/convert.h"

namespace weft::python {
namespace {

using ValidationObject = std::shared_ptr<Validation>;

ValidationObject validate(const py::object& files, const py::object& rules, std::optional<std::string> stack,
                          const py::object& calibration, std::size_t worst, int threads) {
  const ValidationRequest request{.files = texts_of(files, "files"),
                                  .rules = rules.is_none() ? "" : text_of(rules, "rules"),
                                  .stack = stack.value_or(""),
                                  .calibration = calibration.is_none() ? "" : text_of(calibration, "calibration"),
                                  .worst = worst,
                                  .threads = threads};
  const auto watch = std::make_shared<Watch>();
  return watched(watch, {}, [watch, request] {
    const ValidationTables tables = value_of(read_tables(request));
    return std::make_shared<Validation>(validate_tables(request, tables, watch->cancelled()));
  });
}

}  // namespace

void bind_validation(py::module_& module) {
  py::class_<Validation, ValidationObject> bound(module, "Validation", "Predictions beside measured runs.");
  const auto figure = [&](const char* name, auto of, const char* documentation) {
    bound.def_property_readonly(
        name, [of](const Validation& self) { return of(self); }, documentation);
  };
  figure(
      "rows", [](const Validation& of) { return of.total.rows; }, "");
  figure(
      "skipped",
      [](const Validation& of) {
        std::vector<std::tuple<std::string, int, std::string>> rows;
        for (const SkippedRow& row : of.skipped) rows.emplace_back(row.file, row.line, row.reason);
        return rows;
      },
      "(file, line, reason) of rows that cannot be planned.");
  figure(
      "mape", [](const Validation& of) { return of.total.mape; }, "Mean absolute error of time, a fraction.");
  figure(
      "median_ape", [](const Validation& of) { return of.total.median_ape; }, "");
  figure(
      "bias", [](const Validation& of) { return of.total.bias; }, "Mean signed error.");
  figure(
      "kendall_tau",
      [](const Validation& of) -> std::optional<double> {
        if (of.total.order.pairs() == 0) return std::nullopt;
        return of.total.order.tau();
      },
      "Of the order of plans; None: no two rows differ in the plan alone.");
  bound
      .def(
          "plot",
          [](const Validation& self, const py::object& path) {
            const std::string name = text_of(path, "path");
            without_gil([&] {
              WholeFile file = value_of(WholeFile::create(name));
              file.write(plot_of(self));
              must(file.finish());
            });
          },
          py::arg("path"), "Draw predicted against measured, a page of HTML.")
      .def(
          "to_dict", [](const Validation& self) { return to_python(to_json(self)); },
          "What `weft validate --json` prints.")
      .def(
          "frame",
          [](const py::object& self) { return py::module_::import("weft.frames").attr("of_validation")(self); },
          "A pandas.DataFrame, a row per measured run.")
      .def("__str__", [](const Validation& self) { return to_text(describe(self)); })
      .def("__repr__",
           [](const Validation& self) {
             return fmt::format("<weft.Validation of {} runs, mean error {:.1f} %>", self.total.rows,
                                100 * self.total.mape);
           })
      .def("_repr_html_",
           [](const py::object& self) { return py::module_::import("weft.html").attr("of_text")(py::str(self)); });
  module.def("validate", &validate, py::arg("files"), py::kw_only(), py::arg("rules") = py::none(),
             py::arg("stack") = py::none(), py::arg("calibration") = py::none(), py::arg("worst") = 10,
             py::arg("threads") = 0,
             "Compare predictions with tables of measured runs. Arguments are the options of `weft validate`.");
}

}  // namespace weft::python
