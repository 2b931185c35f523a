// Which pipeline stage each forward operator runs in, and which operators are computed again together.
#pragma once

#include <functional>
#include <optional>

#include "graph/training.h"
#include "strategy/layers.h"
#include "strategy/tree.h"

namespace weft {

// Reports a violation of that name, at that line or, if it has none, in that part of the strategy.
using Report = std::function<void(std::string_view name, Line line, std::string_view part, std::string message)>;

// Layers are cut evenly, by the given counts, or by modules. What comes before every layer (embeddings) runs in the
// first stage, what no layer reads (final norm, head, loss) in the last, the rest with what it reads. −1: not a
// forward operator.
IdVec<OpId, int> assign_stages(const ScheduleConfig& schedule, std::int64_t stages, const Graph& graph,
                               const Layers& layers, const Report& report);

// Regions by the recompute mode of each operator: a whole node for `full` (of the root: the layer), core attention for
// `selective`, a layer's operators other than contractions for `op`.
RecomputeRegions assign_recompute(const IdVec<OpId, std::optional<Inherited<Recompute>>>& modes, const Graph& graph,
                                  const Layers& layers);

}  // namespace weft
