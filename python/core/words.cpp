#include "core/words.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "cluster/show.h"
#include "core/call.h"
#include "core/convert.h"
#include "models/show.h"
#include "strategy/shorthand.h"
#include "strategy/yaml.h"

namespace weft::python {
namespace {

NamedModel named_model(const py::object& spec, std::int64_t batch, std::optional<std::int64_t> seq,
                       const std::string& dtype) {
  NamedModel named{.spec = text_of(spec, "spec"), .seq = seq, .model = {}, .summary = {}};
  const auto type = dtype_named(dtype);
  if (!type || !is_floating(*type)) throw Failure(fmt::format("dtype '{}': write bf16, fp16, fp32 or fp8", dtype));
  without_gil([&] {
    named.model = value_of(load_model(named.spec, {.batch = batch, .seq = seq, .dtype = *type}));
    named.summary = summarize(named.model.graph);
  });
  return named;
}

NamedCluster named_cluster(const py::object& spec) {
  std::string text = text_of(spec, "spec");
  return without_gil([&] {
    Cluster cluster = value_of(parse_cluster(text));
    return NamedCluster{std::move(text), std::move(cluster)};
  });
}

// A file's tree is read here, once.
NamedStrategy named_strategy(std::string text) {
  if (text.empty()) throw Failure("strategy: empty; write degrees, tp=8,pp=2, or the name of a .yaml file");
  if (!names_a_file(text)) {
    value_of(parse_shorthand(text));
    return {std::move(text), {}};
  }
  std::string tree = to_yaml(value_of(read_strategy(text)));
  return {std::move(text), std::move(tree)};
}

// Of Strategy(tp=8, stages=[8, 7]): "tp=8,stages=8+7".
std::string shorthand_of(const py::kwargs& degrees) {
  std::string text;
  for (const auto& [key, value] : degrees) {
    if (value.is_none()) continue;
    std::string word;
    if (py::isinstance<py::bool_>(value)) {
      word = value.cast<bool>() ? "1" : "0";
    } else if (py::isinstance<py::int_>(value)) {
      word = py::str(value).cast<std::string>();
    } else if (py::isinstance<py::str>(value)) {
      word = value.cast<std::string>();
    } else if (py::isinstance<py::sequence>(value)) {
      for (const py::handle each : py::reinterpret_borrow<py::sequence>(value))
        word += (word.empty() ? "" : "+") + py::str(each).cast<std::string>();
    } else {
      throw py::type_error(fmt::format("{}: an int, a bool, a str or a list of them, not {}", key.cast<std::string>(),
                                       Py_TYPE(value.ptr())->tp_name));
    }
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key.cast<std::string>(), word);
  }
  return text;
}

}  // namespace

void name_model(const py::handle& model, PlanRequest& request) {
  if (!py::isinstance<NamedModel>(model)) {
    request.model = text_of(model, "model");
    return;
  }
  const auto& named = model.cast<const NamedModel&>();
  request.model = named.spec;
  if (!request.seq) request.seq = named.seq;
}

void name_cluster(const py::handle& cluster, PlanRequest& request) {
  request.cluster =
      py::isinstance<NamedCluster>(cluster) ? cluster.cast<const NamedCluster&>().spec : text_of(cluster, "cluster");
}

void name_strategy(const py::handle& strategy, PlanRequest& request) {
  if (!py::isinstance<NamedStrategy>(strategy)) {
    request.strategy = text_of(strategy, "strategy");
    return;
  }
  const auto& named = strategy.cast<const NamedStrategy&>();
  request.strategy = named.text;
  request.tree = named.tree;
}

void bind_words(py::module_& module) {
  py::class_<NamedModel>(module, "Model",
                         "A model: of the zoo, with overrides; a Hugging Face config.json; an ONNX file.")
      .def(py::init(&named_model), py::arg("spec"), py::kw_only(), py::arg("batch") = 1, py::arg("seq") = py::none(),
           py::arg("dtype") = "bf16")
      .def_readonly("spec", &NamedModel::spec)
      .def_property_readonly("name", [](const NamedModel& self) { return to_text(self.model.info.name); })
      .def_property_readonly("kind", [](const NamedModel& self) { return to_text(name_of(self.model.info.kind)); })
      .def_property_readonly("layers", [](const NamedModel& self) { return self.model.info.layers; })
      .def_property_readonly("experts", [](const NamedModel& self) { return self.model.info.experts; })
      .def_property_readonly("seq", [](const NamedModel& self) { return self.model.info.seq; })
      .def_property_readonly("batch", [](const NamedModel& self) { return self.model.info.batch; })
      .def_property_readonly("parameters", [](const NamedModel& self) { return self.summary.parameters; })
      .def_property_readonly("active_parameters", [](const NamedModel& self) { return self.summary.active_parameters; })
      .def_property_readonly("flops_forward", [](const NamedModel& self) { return self.summary.flops_forward.value; })
      .def(
          "to_dict", [](const NamedModel& self) { return to_python(to_json(self.model)); },
          "What `weft show model --json` prints.")
      .def("__str__", [](const NamedModel& self) { return to_text(describe(self.model)); })
      .def("__repr__", [](const NamedModel& self) { return to_text(fmt::format("weft.Model('{}')", self.spec)); })
      .def("_repr_html_",
           [](const py::object& self) { return py::module_::import("weft.html").attr("of_text")(py::str(self)); });

  py::class_<NamedCluster>(module, "Cluster", "A cluster: presets and their nodes, joined by +, or a YAML or XML file.")
      .def(py::init(&named_cluster), py::arg("spec"))
      .def_readonly("spec", &NamedCluster::spec)
      .def_property_readonly("devices", [](const NamedCluster& self) { return self.cluster.device_count(); })
      .def_property_readonly("nodes", [](const NamedCluster& self) { return self.cluster.node_count(); })
      .def_property_readonly("homogeneous", [](const NamedCluster& self) { return self.cluster.homogeneous(); })
      .def(
          "yaml", [](const NamedCluster& self) { return to_text(to_yaml(self.cluster)); },
          "A file that can be edited and named as a cluster.")
      .def(
          "to_dict", [](const NamedCluster& self) { return to_python(to_json(self.cluster)); },
          "What `weft show cluster --json` prints.")
      .def("__str__", [](const NamedCluster& self) { return to_text(describe(self.cluster)); })
      .def("__repr__", [](const NamedCluster& self) { return to_text(fmt::format("weft.Cluster('{}')", self.spec)); })
      .def("_repr_html_",
           [](const py::object& self) { return py::module_::import("weft.html").attr("of_text")(py::str(self)); });

  py::class_<NamedStrategy>(module, "Strategy", "A strategy: degrees in one line or by name, or a tree in a YAML file.")
      .def(py::init([](const py::object& text, const py::kwargs& degrees) {
             if (text.is_none()) return named_strategy(shorthand_of(degrees));
             if (!degrees.empty()) throw py::type_error("Strategy: either a text or degrees by name, not both");
             return named_strategy(text_of(text, "text"));
           }),
           py::arg("text") = py::none())
      .def_static(
          "from_yaml",
          [](std::string yaml, std::string name) {
            value_of(parse_strategy(yaml, name));
            return NamedStrategy{std::move(name), std::move(yaml)};
          },
          py::arg("yaml"), py::arg("name") = "strategy.yaml", "A tree from YAML text.")
      .def_readonly("text", &NamedStrategy::text, "Shorthand, or the name of a tree.")
      .def_property_readonly(
          "yaml",
          [](const NamedStrategy& self) -> py::object {
            return self.tree.empty() ? py::none() : py::object(to_text(self.tree));
          },
          "The tree; None: it is given by degrees.")
      .def("__str__", [](const NamedStrategy& self) { return self.text; })
      .def("__repr__", [](const NamedStrategy& self) { return to_text(fmt::format("weft.Strategy('{}')", self.text)); })
      .def("__hash__", [](const NamedStrategy& self) { return std::hash<std::string>()(self.text + '\n' + self.tree); })
      .def("__eq__", [](const NamedStrategy& self, const py::object& other) {
        return py::isinstance<NamedStrategy>(other) && self == other.cast<const NamedStrategy&>();
      });

  module.def("models", &model_names, "The models of the zoo.");
  module.def("clusters", &cluster_preset_names, "The presets of nodes.");
  module.def("devices", &device_preset_names, "The presets of devices.");
}

}  // namespace weft::python
