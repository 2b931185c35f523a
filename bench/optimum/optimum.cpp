#include "optimum/optimum.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "optimum/optimum_bound.h"

namespace weft {
namespace {

std::vector<DeviceId> first_devices() {
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < kOptimumDevices; ++i) devices.emplace_back(i);
  return devices;
}

OptimumSpace make_space(const TrainingGraph& training) {
  OptimumSpace space{Proposals(training, kOptimumDevices), SoapMeshes({kOptimumDevices, 1, 1}, first_devices()), {}};
  const Graph& graph = training.graph;
  for (std::size_t u = 0; u < space.proposals.units().size(); ++u) {
    std::vector<UnitChoice>& of = space.choices.emplace_back();
    const OpId head = space.proposals.units()[u].front();
    const Signature& signature = graph.signature(head);
    const auto axes = static_cast<int>(signature.axes.size());
    for (unsigned set = 1; set < 1u << kOptimumDevices; ++set) {
      std::vector<DeviceId> devices;
      for (std::size_t i = 0; i < kOptimumDevices; ++i)
        if (set >> i & 1u) devices.emplace_back(i);
      const int count = static_cast<int>(devices.size());
      if (count == 3) continue;
      const auto add = [&](std::array<int, kSoapAxes> sizes, int a, int b) {
        const OpConfig config = space.meshes.config(sizes, {a, b, -1}, devices);
        UnitChoice choice{space.proposals.change_units({u}, config, space.meshes), set};
        if (choice.ops.empty()) return;
        of.push_back(choice);
        // On the grid of all devices the last operators may also be whole on every device.
        const bool whole = a < 0 && b < 0;
        for (std::size_t i = choice.ops.size(); config.mesh == MeshId(0) && !whole && i-- > 1;) {
          choice.ops[i].second = {MeshId(0), {-1, -1, -1}};
          of.push_back(choice);
        }
      };
      if (count == 1) add({1, 1, 1}, -1, -1);
      if (count == kOptimumDevices) add({kOptimumDevices, 1, 1}, -1, -1);
      for (int a = 0; count > 1 && a < axes; ++a) {
        add({count, 1, 1}, a, -1);
        for (int b = a + 1; count == 4 && b < axes; ++b) add({2, 2, 1}, a, b);
      }
    }
  }
  return space;
}

class Branching {
 public:
  Branching(const SoapProblem& problem, const OptimumRequest& request)
      : problem_(problem), request_(request), space_(make_space(problem.training)), bound_(problem, space_) {}

  Optimum run() {
    chosen_.assign(space_.choices.size(), nullptr);
    found_.time = request_.known;
    found_.strategies = 1;
    for (std::size_t u = 0; u < space_.choices.size(); ++u) {
      found_.units.emplace_back(problem_.training.graph.name(space_.proposals.units()[u].front()),
                                space_.choices[u].size());
      found_.strategies *= static_cast<double>(space_.choices[u].size());
    }
    found_.root = bound_.of(chosen_, 0);
    check();
    branch(0, 0);
    found_.complete = found_.nodes < request_.most_nodes;
    if (found_.complete) found_.open = found_.time;
    return std::move(found_);
  }

 private:
  void branch(std::size_t unit, unsigned used) {
    if (found_.nodes >= request_.most_nodes) return;
    if (unit == space_.choices.size()) return leaf();
    std::vector<std::pair<Picoseconds, const UnitChoice*>> order;
    for (const UnitChoice& choice : space_.choices[unit]) {
      // New devices come in ascending order: the union is a prefix again.
      const unsigned all = used | choice.devices;
      if ((all & (all + 1)) != 0) continue;
      ++found_.nodes;
      chosen_[unit] = &choice;
      const Picoseconds least = bound_.of(chosen_, unit + 1);
      if (least < found_.time) order.emplace_back(least, &choice);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [least, choice] : order) {
      if (least >= found_.time) break;
      if (found_.nodes >= request_.most_nodes) {
        found_.open = std::min(found_.open, least);
        return;
      }
      chosen_[unit] = choice;
      branch(unit + 1, used | choice->devices);
    }
  }

  void leaf() {
    ++found_.leaves;
    SoapStrategy strategy = chosen();
    const Result<SoapJudgement> judged = judge(problem_, strategy);
    if (!judged.ok()) return;
    WEFT_CHECK(judged->fifo >= bound_.of(chosen_, chosen_.size()), "the bound is one");
    if (judged->fifo >= found_.time) return;
    found_.time = judged->fifo;
    found_.better = std::move(strategy);
  }

  // Strategies at random, in runs: the first of a run has one configuration for all operators alike, as good ones do,
  // and each of the others changes a unit of the last.
  void check() {
    constexpr std::int64_t kRun = 8;
    Rng rng(1);
    std::vector<std::size_t> now(chosen_.size(), 0);
    for (std::int64_t i = 0; i < request_.checks; ++i) {
      if (i % kRun == 0) {
        std::map<SignatureId, std::size_t> alike;
        for (std::size_t u = 0; u < now.size(); ++u) {
          const OpId head = space_.proposals.units()[u].front();
          const std::size_t drawn = rng.below(space_.choices[u].size());
          now[u] = alike.try_emplace(problem_.training.graph.ops()[head].signature, drawn).first->second;
        }
      } else {
        const std::size_t u = rng.below(now.size());
        now[u] = rng.below(space_.choices[u].size());
      }
      for (std::size_t u = 0; u < now.size(); ++u) chosen_[u] = &space_.choices[u][now[u] % space_.choices[u].size()];
      const Result<SoapJudgement> judged = judge(problem_, chosen());
      if (!judged.ok()) continue;
      ++found_.checked;
      for (std::size_t u = 0; u <= now.size(); ++u) {
        const Picoseconds least = bound_.of(chosen_, u);
        WEFT_CHECK(least <= judged->fifo, "the bound of {} units is {} ps, the strategy takes {} ps", u, least,
                   judged->fifo);
        found_.closest = std::max(found_.closest, static_cast<double>(least) / static_cast<double>(judged->fifo));
      }
    }
  }

  SoapStrategy chosen() const {
    SoapStrategy strategy{
        "", space_.meshes.meshes(), IdVec<OpId, OpConfig>(problem_.training.first_backward.index()), {}};
    for (const UnitChoice* choice : chosen_)
      for (const auto& [op, config] : choice->ops) strategy.ops[op] = config;
    return strategy;
  }

  const SoapProblem& problem_;
  const OptimumRequest& request_;
  const OptimumSpace space_;
  OptimumBound bound_;
  std::vector<const UnitChoice*> chosen_;
  Optimum found_;
};

}  // namespace

Optimum find_optimum(const SoapProblem& problem, const OptimumRequest& request) {
  return Branching(problem, request).run();
}

}  // namespace weft
