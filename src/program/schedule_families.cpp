#include "program/schedule_families.h"

#include <algorithm>
#include <array>
#include <deque>

namespace weft {
namespace {

// Issues each kind of work of a chunk in the order of the micro-batches, and no more than there are.
class Line {
 public:
  explicit Line(std::int32_t micro_batches, std::int32_t chunks) : micro_batches_(micro_batches) {
    actions_.reserve(std::size_t{3} * micro_batches * chunks);
  }

  bool left(Body body, std::int32_t chunk) const { return issued(body, chunk) < micro_batches_; }
  // Nothing happens when that work is all done, nor for a W whose I is still to come.
  void issue(Body body, std::int32_t chunk = 0) {
    std::int32_t& next = issued_[static_cast<std::size_t>(body)][chunk];
    const bool early = body == Body::BackwardWeight && next >= issued(Body::BackwardInput, chunk);
    if (next < micro_batches_ && !early) actions_.push_back({body, next++, chunk});
  }
  void issue_rest(Body body, std::int32_t chunk = 0) {
    while (left(body, chunk)) issue(body, chunk);
  }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  std::int32_t issued(Body body, std::int32_t chunk) const { return issued_[static_cast<std::size_t>(body)][chunk]; }

  std::int32_t micro_batches_;
  std::array<std::array<std::int32_t, 2>, 4> issued_{};
  std::vector<Action> actions_;
};

constexpr Body F = Body::Forward;
constexpr Body B = Body::Backward;
constexpr Body I = Body::BackwardInput;
constexpr Body W = Body::BackwardWeight;

}  // namespace

std::vector<Action> one_chunk(std::int32_t micro_batches, Rhythm rhythm) {
  Line line(micro_batches, 1);
  for (std::int32_t i = 0; i < rhythm.warm_up; ++i) line.issue(F);
  for (std::int32_t i = 0; i < micro_batches; ++i) {
    line.issue(F);
    line.issue(rhythm.lag == kFused ? B : I);
    if (rhythm.lag != kFused && i >= rhythm.lag) line.issue(W);
  }
  if (rhythm.lag != kFused) line.issue_rest(W);
  return line.take();
}

// Megatron-LM's order: groups of p micro-batches go through all chunks in turn, forwards from the first chunk,
// backwards from the last; 2(p−1−r) + (v−1)p forwards go before the first backward.
std::vector<Action> interleaved(std::int32_t ranks, std::int32_t chunks, std::int32_t micro_batches,
                                std::int32_t rank) {
  const std::int32_t total = micro_batches * chunks;
  const std::int32_t warm_up = std::min(total, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks);
  const auto step = [&](Body body, std::int32_t k) {
    const std::int32_t group = k / (ranks * chunks), turn = k / ranks % chunks;
    return Action{body, group * ranks + k % ranks, body == F ? turn : chunks - 1 - turn};
  };
  std::vector<Action> actions;
  actions.reserve(std::size_t{2} * total);
  for (std::int32_t k = 0; k < warm_up; ++k) actions.push_back(step(F, k));
  for (std::int32_t k = 0; k < total; ++k) {
    if (warm_up + k < total) actions.push_back(step(F, warm_up + k));
    actions.push_back(step(B, k));
  }
  return actions;
}

// With F = B = W = 1, rank r starts at r, the first micro-batch is back at its second chunk at 2p−1−r, and the first
// backward of that chunk comes 2r+1 later. Warm-up fills exactly these times; then every rank repeats F I W of one
// chunk, F I W of the other; the end mirrors the warm-up, with the weights that are left last.
std::vector<Action> zb_v(std::int32_t ranks, std::int32_t micro_batches, std::int32_t rank) {
  Line line(micro_batches, 2);
  const auto repeat = [&](std::int32_t times, std::initializer_list<std::pair<Body, std::int32_t>> pattern) {
    for (std::int32_t i = 0; i < times; ++i)
      for (const auto& [body, chunk] : pattern) line.issue(body, chunk);
  };
  repeat(2 * (ranks - rank) - 1, {{F, 0}});
  repeat(rank, {{F, 1}, {F, 0}});
  repeat(ranks - rank, {{F, 1}, {I, 1}, {W, 1}});
  while (line.left(F, 1)) repeat(1, {{F, 0}, {I, 0}, {W, 0}, {F, 1}, {I, 1}, {W, 1}});
  repeat(rank, {{I, 0}, {I, 1}});
  repeat(ranks - rank, {{I, 0}, {W, 0}});
  while (line.left(I, 0) || line.left(I, 1)) repeat(1, {{I, 0}, {I, 1}});
  line.issue_rest(W, 1);
  line.issue_rest(W, 0);
  return line.take();
}

// The eight phases of DeepSeek's schedule. `apart` ranks lie between this one and the middle of the pipeline, where the
// two directions first meet.
std::vector<Action> dual_pipe(std::int32_t half, std::int32_t micro_batches, std::int32_t depth) {
  const std::int32_t apart = half - 1 - depth;
  std::vector<Action> actions;
  actions.reserve(std::size_t{5} * micro_batches);
  std::array<std::int32_t, 2> forwards{}, backwards{};
  std::deque<Action> weights;  // split off and still to do, first in, first out
  const auto forward = [&](std::int32_t chunk) { actions.push_back({F, forwards[chunk]++, chunk}); };
  const auto backward = [&](std::int32_t chunk, bool split = false) {
    actions.push_back({split ? I : B, backwards[chunk]++, chunk});
    if (split) weights.push_back({W, actions.back().micro_batch, chunk});
  };
  const auto pair = [&](std::int32_t forward_chunk, std::int32_t backward_chunk) {
    forward(forward_chunk);
    actions.back().with_next = true;
    backward(backward_chunk);
  };
  const auto weight = [&] {
    actions.push_back(weights.front());
    weights.pop_front();
  };

  for (std::int32_t i = 0; i < 2 * apart; ++i) forward(0);
  for (std::int32_t i = 0; i <= depth; ++i) {
    forward(0);
    forward(1);
  }
  for (std::int32_t i = 0; i < apart; ++i) {
    backward(1, true);
    weight();
    forward(1);
  }
  for (std::int32_t i = 0; i < micro_batches - half - apart; ++i) {
    pair(0, 1);
    pair(1, 0);
  }
  for (std::int32_t i = 0; i < apart; ++i) {
    backward(1);
    pair(1, 0);
  }
  // Of these 2(depth+1) backwards the later half is split, so that weights are left to fill the gaps of the end.
  for (std::int32_t i = 0; i < 2 * (depth + 1); ++i) backward(1 - i % 2, i > depth);
  for (std::int32_t i = 0; i < apart; ++i) {
    weight();
    backward(0, true);
  }
  for (std::int32_t i = 0; i <= depth; ++i) weight();
  return actions;
}

}  // namespace weft
