// The pipeline stage of each forward operator, and the regions of operators that are recomputed together.
#pragma once

#include <functional>
#include <optional>

#include "graph/training.h"
#include "strategy/layers.h"
#include "strategy/tree.h"

namespace weft {

// Reports a violation by name, at `line` or, if it is unknown, in that part of the strategy.
using Report = std::function<void(std::string_view name, Line line, std::string_view part, std::string message)>;

// The layers of every stage, evenly, the first ones larger where they do not divide.
std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages);

// Layers are divided evenly, by the given counts, or by modules. Operators before every layer (embeddings) run in the
// first stage, those that no layer depends on (final norm, head, loss) in the last, others in the stage of their
// inputs. −1: not a forward operator.
IdVec<OpId, int> assign_stages(const ScheduleConfig& schedule, std::int64_t stages, const Graph& graph,
                               const Layers& layers, const Report& report);

// Regions by the recompute mode of each operator: the node of the rule for `full` (each layer if it is the root), core
// attention for `selective`, a layer's operators other than contractions for `op`.
RecomputeRegions assign_recompute(const IdVec<OpId, std::optional<Inherited<Recompute>>>& modes, const Graph& graph,
                                  const Layers& layers);

}  // namespace weft
