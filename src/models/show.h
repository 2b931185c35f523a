// `weft show model NAME [--json]`: a model as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/models.h"
#include "models/summary.h"

namespace weft {

// A page of text, newline at the end.
std::string describe(const Model& model);

// Keys: name, kind, source, layers, context, seq, batch, tied_embeddings, parameters, active_parameters,
// parameter_bytes, flops_forward, flops_training, pointwise_flops_forward, activation_bytes, operators,
// tensors, unique_operators, operators_by_kind, modules (name, copies, parameters, flops_forward, operators,
// modules). Absent values are null.
nlohmann::json to_json(const Model& model);

// The names of the zoo, one family per line.
std::string list_models();

}  // namespace weft
