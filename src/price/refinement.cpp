#include "price/refinement.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace weft {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b); }

namespace {

class Refinement {
 public:
  explicit Refinement(const LabelledGraph& graph) : colour_(graph.colour) {
    const std::size_t nodes = colour_.size();
    first_.assign(nodes + 1, 0);
    for (const LabelledGraph::Edge& edge : graph.edges) ++first_[edge.from + 1], ++first_[edge.to + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    neighbour_.resize(2 * graph.edges.size());
    label_of_.resize(neighbour_.size());
    std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
    std::unordered_map<std::uint64_t, std::uint32_t> known;
    for (const LabelledGraph::Edge& edge : graph.edges) {
      const auto [found, added] = known.try_emplace(edge.label, static_cast<std::uint32_t>(labels_.size()));
      if (added) labels_.push_back(edge.label);
      for (const auto& [at, other] : {std::pair(edge.from, edge.to), std::pair(edge.to, edge.from)}) {
        label_of_[next[at]] = found->second;
        neighbour_[next[at]++] = other;
      }
    }
  }

  std::vector<std::uint32_t> run() {
    start();
    while (!changed_.empty()) {
      spread();
      split();
    }
    return std::move(class_of_);
  }

 private:
  struct Change {
    std::uint32_t node, before, after;  // classes
  };

  std::uint64_t seen(std::uint32_t of_class, std::uint32_t edge) const {
    return mix(of_class, labels_[label_of_[edge]]);
  }

  // Classes by colour, and then by what every node sees of them.
  void start() {
    const auto nodes = static_cast<std::uint32_t>(colour_.size());
    std::unordered_map<std::uint64_t, std::uint32_t> known;
    class_of_.resize(nodes);
    for (std::uint32_t node = 0; node < nodes; ++node)
      class_of_[node] = known.try_emplace(colour_[node], static_cast<std::uint32_t>(known.size())).first->second;
    size_.assign(known.size(), 0);
    signature_.assign(known.size(), 0);
    for (std::uint32_t of : class_of_) ++size_[of];
    sum_.assign(nodes, 0);
    for (std::uint32_t node = 0; node < nodes; ++node)
      for (std::uint32_t edge = first_[node]; edge < first_[node + 1]; ++edge)
        sum_[node] += seen(class_of_[neighbour_[edge]], edge);
    is_touched_.assign(nodes, 0);
    touched_.resize(nodes);
    std::iota(touched_.begin(), touched_.end(), 0u);
    split();
  }

  // The neighbours of nodes whose class has changed see something else.
  void spread() {
    for (const Change& change : changed_)
      for (std::uint32_t edge = first_[change.node]; edge < first_[change.node + 1]; ++edge) {
        const std::uint32_t other = neighbour_[edge];
        sum_[other] += seen(change.after, edge) - seen(change.before, edge);
        if (is_touched_[other] == 0) touched_.push_back(other);
        is_touched_[other] = 1;
      }
    changed_.clear();
  }

  // Touched nodes stay with the others of their class if they see the same; else those that do are a class of their own.
  // Where all of a class are touched, most of them keep its number.
  void split() {
    std::sort(touched_.begin(), touched_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(class_of_[a], sum_[a], a) < std::tuple(class_of_[b], sum_[b], b);
    });
    for (std::size_t from = 0, to = 0; from < touched_.size(); from = to) {
      const std::uint32_t of = class_of_[touched_[from]];
      while (to < touched_.size() && class_of_[touched_[to]] == of) ++to;
      split(of, from, to);
    }
    for (const Change& change : changed_) class_of_[change.node] = change.after;
    for (std::uint32_t node : touched_) is_touched_[node] = 0;
    touched_.clear();
  }

  void split(std::uint32_t of, std::size_t from, std::size_t to) {
    const auto end_of_part = [&](std::size_t begin) {
      std::size_t end = begin;
      while (end < to && sum_[touched_[end]] == sum_[touched_[begin]]) ++end;
      return end;
    };
    if (to - from == size_[of]) {
      std::size_t most = 0;
      for (std::size_t begin = from, end = 0; begin < to; begin = end) {
        end = end_of_part(begin);
        if (end - begin > most) most = end - begin, signature_[of] = sum_[touched_[begin]];
      }
    }
    const std::uint64_t stays = signature_[of];
    for (std::size_t begin = from, end = 0; begin < to; begin = end) {
      end = end_of_part(begin);
      if (sum_[touched_[begin]] == stays) continue;
      const auto fresh = static_cast<std::uint32_t>(size_.size());
      size_.push_back(static_cast<std::uint32_t>(end - begin));
      signature_.push_back(sum_[touched_[begin]]);
      size_[of] -= size_.back();
      for (std::size_t i = begin; i < end; ++i) changed_.push_back({touched_[i], of, fresh});
    }
  }

  const std::vector<std::uint64_t>& colour_;
  // Edges of node n: first_[n] … first_[n + 1].
  std::vector<std::uint32_t> first_, neighbour_, label_of_;
  std::vector<std::uint64_t> labels_;
  std::vector<std::uint32_t> class_of_;   // by node
  std::vector<std::uint64_t> sum_;        // by node: of what it sees
  std::vector<std::uint32_t> size_;       // by class
  std::vector<std::uint64_t> signature_;  // by class: the sum of its nodes that were not touched
  std::vector<std::uint32_t> touched_;
  std::vector<char> is_touched_;
  std::vector<Change> changed_;
};

}  // namespace

std::vector<std::uint32_t> refined(const LabelledGraph& graph) { return Refinement(graph).run(); }

}  // namespace weft
