// The keyword arguments that simulate and plan have in common.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "ask/cost.h"
#include "core/convert.h"
#include "plan/job.h"

namespace weft::python {

struct JobOptions {
  std::optional<std::int64_t> devices, global_batch, seq;
  std::optional<std::string> dtype, stack, freeze;

  PlanRequest request() const {
    PlanRequest request;
    request.device_count = devices;
    request.global_batch = global_batch;
    request.seq = seq;
    request.dtype = dtype.value_or("");
    request.stack = stack.value_or("");
    request.freeze = freeze.value_or("");
    return request;
  }
};

inline CostArguments cost_of(std::string cost, const py::object& db, const py::object& calibration) {
  return {.model = std::move(cost),
          .database = db.is_none() ? "" : text_of(db, "db"),
          .calibration = calibration.is_none() ? "" : text_of(calibration, "calibration")};
}

}  // namespace weft::python
