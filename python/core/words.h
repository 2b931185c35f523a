// weft.Model, weft.Cluster, weft.Strategy: what a user names, looked at before it is used.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "cluster/cluster.h"
#include "models/models.h"
#include "models/summary.h"
#include "plan/job.h"

namespace weft::python {

namespace py = pybind11;

struct NamedModel {
  std::string spec;
  std::optional<std::int64_t> seq;  // if it was asked for
  Model model;
  ModelSummary summary;
};

struct NamedCluster {
  std::string spec;
  Cluster cluster;
};

// Degrees, or a tree.
struct NamedStrategy {
  std::string text;  // shorthand, or the name of a tree
  std::string tree;  // YAML; empty: degrees

  bool operator==(const NamedStrategy&) const = default;
};

// A request's words, from names or from the objects above. The model's own `seq` holds unless the request has one.
void name_model(const py::handle& model, PlanRequest& request);
void name_cluster(const py::handle& cluster, PlanRequest& request);
void name_strategy(const py::handle& strategy, PlanRequest& request);

void bind_words(py::module_& module);

}  // namespace weft::python
