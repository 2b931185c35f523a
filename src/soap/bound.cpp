#include "soap/bound.h"

#include <algorithm>
#include <set>

namespace weft {
namespace {

struct Minimum {
  Picoseconds time = 0;
  double work = 0;  // device-picoseconds
};

// Calls visit(extents, parts) for every split into a number of parts that divides `devices`.
template <class Visit>
void each_split(const Signature& signature, std::int64_t devices, const Visit& visit) {
  std::vector<std::int64_t> extents;
  for (const Axis& axis : signature.axes) extents.push_back(axis.size);
  const auto from = [&](const auto& self, std::size_t first, std::int64_t parts, std::size_t axes) -> void {
    visit(extents, parts);
    if (axes == kSoapAxes) return;
    for (std::size_t a = first; a < extents.size(); ++a) {
      if (!splittable(signature, static_cast<int>(a))) continue;
      for (std::int64_t degree = 2; parts * degree <= devices; ++degree) {
        if (devices % (parts * degree) != 0 || !divides(signature, static_cast<int>(a), degree)) continue;
        const std::int64_t whole = extents[a];
        extents[a] /= degree;
        self(self, a + 1, parts * degree, axes + 1);
        extents[a] = whole;
      }
    }
  };
  from(from, 0, 1, 0);
}

}  // namespace

SoapBound lower_bound(const SoapProblem& problem, const std::vector<DeviceId>& devices) {
  const Graph& graph = problem.training.graph;
  std::set<const DeviceSpec*> specs;
  for (DeviceId device : devices) specs.insert(&problem.cluster.spec(device));
  IdVec<SignatureId, std::optional<Minimum>> least(graph.signatures().size());
  IdVec<OpId, Picoseconds> end(graph.ops().size(), 0);
  double work = 0;
  Picoseconds path = 0;
  for (OpId op : graph.ops().ids()) {
    std::optional<Minimum>& of = least[graph.ops()[op].signature];
    if (!of && graph.kind(op) == OpKind::Accumulate)
      of = Minimum{};  // with one micro-batch nothing is added to a gradient
    if (!of) {
      const Signature& signature = graph.signature(op);
      of = Minimum{std::numeric_limits<Picoseconds>::max(), std::numeric_limits<double>::max()};
      each_split(signature, static_cast<std::int64_t>(devices.size()),
                 [&](const std::vector<std::int64_t>& extents, std::int64_t parts) {
                   for (const DeviceSpec* spec : specs) {
                     // With a mask a part may have almost no unmasked pairs: take the least.
                     const double attended = signature.kind == OpKind::Attention && parts > 1 ? 0 : -1;
                     const Picoseconds time = problem.cost.compute({&signature, extents, spec, {}, attended}).time;
                     of->time = std::min(of->time, time);
                     of->work = std::min(of->work, static_cast<double>(time) * static_cast<double>(parts));
                   }
                 });
    }
    Picoseconds start = 0;
    for (TensorId input : graph.inputs(op))
      if (const OpId producer = graph.tensors()[input].producer; producer.valid())
        start = std::max(start, end[producer]);
    end[op] = start + of->time;
    path = std::max(path, end[op]);
    work += of->work;
  }
  return {static_cast<Picoseconds>(work / static_cast<double>(devices.size())), path};
}

}  // namespace weft
