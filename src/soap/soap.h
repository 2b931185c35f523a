// The searches over operator graphs: exact, symbolic and MCMC. Start here.
//
//   search_soap(training, cluster, cost, stack, {.search = SoapSearch::Mcmc, .budget = {.seconds = 60}})
//
// Given the training graph of a step and a cluster, returns the best strategy found, as a tree that `weft simulate
// --strategy` reads, with its step time, a lower bound for all strategies of the space, and the times of the strategies
// it started from. Searches simulate without host time; the result is judged under fair sharing with the stack's host
// time, and is never slower there than data parallelism or the expert strategy. Times within `slack` of the fastest
// count as equal, and the fewest bytes moved decide.
//
// Exact: per-operator layouts on one grid of all devices, optimal for the sum of all costs. Symbolic: the same by
// communication volume, without constants of devices. MCMC: whole layers (tied.h), then single operators on any devices
// (mcmc.h), starting from all of these. Not here: pipelines of micro-batches and layer-wise plans (partition.h,
// layerwise.h), hybrid parallelism by enumeration.
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
  int threads = 0;                     // 0: all cores
  double headroom = kHeadroom;         // share of a device's memory that stays free
  NumberTypes types = {};              // of matrix products and of communication
  double slack = 0.002;                // a step may be slower than the fastest by this fraction if it moves fewer bytes
  std::vector<double> slacks = {};     // MCMC: further slacks, ascending, for more candidates ("thrifty")
  std::vector<DeviceId> devices = {};  // empty: all of the cluster
  OnProgress on_progress = {};
};

// A strategy judged in full.
struct SoapCandidate {
  std::string name;                     // "data parallel", "expert", "exact", "symbolic", "layers", "thrifty", "mcmc"
  std::string grid;                     // "16x4"
  std::optional<SoapJudgement> judged;  // none: does not compile
  std::string error = {};
  // Of exact and symbolic plans: their objective and a lower bound on it.
  std::int64_t objective = 0, objective_bound = 0;
  double seconds = 0;  // of the search for it
};

struct SoapOutcome {
  SoapStrategy strategy;
  Strategy tree;
  // Other candidates that are hardly slower, by name: exact ones among them.
  std::vector<std::pair<std::string, Strategy>> close;
  SoapJudgement judged;
  SoapBound bound;
  double gap = 0;  // time under fair sharing / bound − 1
  std::vector<SoapCandidate> candidates;
  SearchCounts counts;
  StoppedBy stopped_by = StoppedBy::Itself;
  bool feasible = true;  // false: nothing fits, and this strategy lacks the least memory
};

Result<SoapOutcome> search_soap(const TrainingGraph& training, const Cluster& cluster, const CostModel& cost,
                                const SoftwareStack& stack, const SoapRequest& request = {});

// Shapes of a grid of `devices`, with at most two axes: all along one axis, then nodes × devices per node, then the
// others.
std::vector<std::array<int, kSoapAxes>> grids_of(int devices, int per_node);

}  // namespace weft
