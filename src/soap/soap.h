// The searches over operator graphs: exact, symbolic and MCMC. Start here.
//
//   search_soap(training, cluster, cost, stack, {.search = SoapSearch::Mcmc, .budget = {.seconds = 60}})
//
// Given the training graph of a step and a cluster; back comes the best strategy found, as a tree that `weft simulate
// --strategy` takes, with its step time, a lower bound that no strategy of the space beats, and what the strategies it
// began with take. Searches play links first in, first out, with hosts that take no time; what is returned is judged
// under fair sharing with the stack as it is, and is never slower there than data parallelism or the expert's strategy.
// Times within `slack` of the fastest count as equal, and the fewest bytes moved decide.
//
// Exact: per-operator layouts on one grid of all devices, optimal for the sum of all pieces. Symbolic: the same by
// volumes alone, without a constant of any device. MCMC: whole layers (tied.h), then any operator on any devices, begun
// from all of these. Not here: pipelines of micro-batches and layer-wise plans (partition.h, layerwise.h), hybrid
// parallelism by enumeration.
#pragma once

#include "problem/budget.h"
#include "soap/bound.h"

namespace weft {

enum class SoapSearch : std::uint8_t { Exact, Symbolic, Mcmc };
std::string_view name_of(SoapSearch search);  // "exact", "symbolic", "mcmc"

struct SoapRequest {
  SoapSearch search = SoapSearch::Mcmc;
  SearchBudget budget = {};
  std::uint64_t seed = 1;
  int threads = 0;                     // 0: as many as the machine has
  double headroom = kHeadroom;         // of a device's memory that stays free
  NumberTypes types = {};              // of products, and of what is sent
  double slack = 0.002;                // how much longer a step may take than the fastest, to move fewer bytes
  std::vector<double> slacks = {};     // MCMC: more of them, ascending, whose thriftiest are candidates and no more
  std::vector<DeviceId> devices = {};  // empty: all of the cluster
  OnProgress on_progress = {};
};

// A strategy that was looked at in full.
struct SoapCandidate {
  std::string name;                     // "data parallel", "expert", "exact", "symbolic", "layers", "thrifty", "mcmc"
  std::string grid;                     // "16x4"
  std::optional<SoapJudgement> judged;  // none: it does not compile
  std::string error = {};
  // Of exact and symbolic plans: their objective, and how far it may be from the best.
  std::int64_t objective = 0, objective_bound = 0;
  double seconds = 0;  // to find it
};

struct SoapOutcome {
  SoapStrategy strategy;
  Strategy tree;
  SoapJudgement judged;
  SoapBound bound;
  double gap = 0;  // judged fair time over the bound, less 1
  std::vector<SoapCandidate> candidates;
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  bool feasible = true;  // otherwise the closest miss
};

Result<SoapOutcome> search_soap(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
                                const SoftwareStack& stack, const SoapRequest& request = {});

// Grids of so many devices: all along one axis, then nodes by devices of a node, then the others, two axes at most.
std::vector<std::array<int, kSoapAxes>> grids_of(int devices, int per_node);

}  // namespace weft
