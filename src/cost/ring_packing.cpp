#include "cost/ring_packing.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

constexpr std::size_t kMostRings = 4096;  // eight fully connected devices have 2,520
constexpr int kMostChoices = 50'000;

class Packing {
 public:
  explicit Packing(const std::vector<std::vector<int>>& lanes) : lanes_(lanes), size_(static_cast<int>(lanes.size())) {
    if (size_ < 3) return;
    order_ = {0};
    visited_.assign(lanes.size(), false);
    visited_[0] = true;
    extend();
    bound_ = static_cast<std::size_t>(
        std::accumulate(lanes[0].begin(), lanes[0].end(), 0));  // each ring takes two lanes of every device
    for (const auto& row : lanes)
      bound_ = std::min(bound_, static_cast<std::size_t>(std::accumulate(row.begin(), row.end(), 0)) / 2);
    choose(0);
  }
  std::vector<std::vector<int>> take() {
    std::vector<std::vector<int>> rings;
    for (std::size_t ring : best_) rings.push_back(rings_[ring]);
    return rings;
  }

 private:
  // Every ring once, not in both directions: the second device has a lower number than the last.
  void extend() {
    if (rings_.size() >= kMostRings) return;
    const int at = order_.back();
    if (static_cast<int>(order_.size()) == size_) {
      if (lanes_[at][0] > 0 && order_[1] < order_.back()) rings_.push_back(order_);
      return;
    }
    for (int next = 1; next < size_; ++next) {
      if (visited_[next] || lanes_[at][next] == 0) continue;
      visited_[next] = true;
      order_.push_back(next);
      extend();
      order_.pop_back();
      visited_[next] = false;
    }
  }

  // Takes (sign −1) or returns (+1) the ring's lanes; false if one is missing.
  bool move_lanes(const std::vector<int>& ring, int sign) {
    bool enough = true;
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const int a = ring[i], b = ring[i + 1 == ring.size() ? 0 : i + 1];
      lanes_[a][b] += sign;
      lanes_[b][a] += sign;
      enough &= lanes_[a][b] >= 0;
    }
    return enough;
  }

  void choose(std::size_t first) {
    if (chosen_.size() > best_.size()) best_ = chosen_;
    for (std::size_t ring = first; ring < rings_.size() && best_.size() < bound_ && choices_ < kMostChoices; ++ring) {
      ++choices_;
      if (move_lanes(rings_[ring], -1)) {
        chosen_.push_back(ring);
        choose(ring);
        chosen_.pop_back();
      }
      move_lanes(rings_[ring], 1);
    }
  }

  std::vector<std::vector<int>> lanes_;
  int size_;
  std::vector<int> order_;
  std::vector<bool> visited_;
  std::vector<std::vector<int>> rings_;
  std::size_t bound_ = 0;
  int choices_ = 0;
  std::vector<std::size_t> chosen_, best_;
};

}  // namespace

std::vector<std::vector<int>> pack_rings(const std::vector<std::vector<int>>& lanes) { return Packing(lanes).take(); }

}  // namespace weft
