// Pipeline schedules as data: what every pipeline rank does with every micro-batch, in issue order.
//
// Given: a name and sizes (`make_schedule`), a text (`parse_schedule`), or a table a caller fills in.
// Back: a Schedule, a plain value. `check_schedule` verifies any table, whoever made it; `play` gives its makespan,
// bubble and activations in flight for given integer costs; `print` writes it, parse∘print = identity.
// Not here: which layers a stage has, tensors, streams and sends (they follow from the routes), optimizer steps, and
// orders fitted to measured costs: the zero-bubble tables are the handcrafted ones.
// Cost: everything is linear in the number of actions, at most 3 per micro-batch, rank and chunk.
//
// The model is cut into stages. A rank holds `chunks` model chunks, each one stage. A micro-batch follows a route: the
// place (rank, chunk) of every stage, in order. One route serves all micro-batches of most schedules:
//   straight      stage s on rank s                             gpipe, 1f1b, zb-h1, zb-h2
//   round robin   stage s on rank s mod p, chunk s div p        interleaved
//   V             rank r holds stages r and 2p−1−r              zb-v, dualpipe-v
// DualPipe has two: half of the micro-batches enter at rank 0, half at rank p−1. Pipelines of different shapes may stand
// side by side, each a route of its own stages (`side_by_side`). Every route holds the whole model, so gradients are
// summed over all.
//
// Sources: GPipe, Huang et al. 2019; 1F1B and interleaving, Narayanan et al. 2021 (Megatron-LM); zb-h1, zb-h2, Qi et
// al., Zero Bubble Pipeline Parallelism, 2024; zb-v, Qi et al., Pipeline Parallelism with Controllable Memory, 2024;
// DualPipe, DeepSeek-V3 Technical Report, 2024.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

enum class Body : std::uint8_t {
  Forward,         // F
  Backward,        // B: both products of the backward pass, fused
  BackwardInput,   // I: gradients of the inputs, which the stage before waits for
  BackwardWeight,  // W: gradients of the weights, which no other stage waits for
};

struct Action {
  Body body = Body::Forward;
  std::int32_t micro_batch = 0;
  std::int32_t chunk = 0;
  // Issued together with the rank's next action, each hiding the other's communication (DualPipe's F&B): the two start
  // when both can and what they make is sent when both are done.
  bool with_next = false;

  bool operator==(const Action&) const = default;
};

struct Place {
  std::int32_t rank = 0;
  std::int32_t chunk = 0;

  bool operator==(const Place&) const = default;
};

struct Schedule {
  std::string name;
  std::int32_t ranks = 1;
  std::int32_t chunks = 1;  // per rank
  std::int32_t micro_batches = 1;
  std::vector<std::vector<Place>> routes;    // by stage: where it runs for micro-batches of this route
  std::vector<std::int32_t> route_of;        // by micro-batch
  std::vector<std::vector<Action>> actions;  // by rank, in issue order

  // Of the first route.
  std::int32_t stages() const { return routes.empty() ? 0 : static_cast<std::int32_t>(routes.front().size()); }
  std::int32_t stages_of(std::int32_t micro_batch) const {
    return static_cast<std::int32_t>(routes[route_of[micro_batch]].size());
  }
  Place place_of(std::int32_t micro_batch, std::int32_t stage) const { return routes[route_of[micro_batch]][stage]; }
  bool operator==(const Schedule&) const = default;
};

// The stage of every place, by rank · chunks + chunk.
std::vector<std::int32_t> stages_by_place(const Schedule& schedule);

// The first and the last micro-batch for which a place computes gradients of weights, in the order it plays them: these
// begin and end its sums. Where stages are held twice, each place has the micro-batches of its own route.
struct Visits {
  std::int32_t first = 0, last = 0;

  bool operator==(const Visits&) const = default;
};
std::vector<Visits> visits_by_place(const Schedule& schedule);  // by rank · chunks + chunk

// How many micro-batches each place has, by rank · chunks + chunk.
std::vector<std::int32_t> micro_batches_by_place(const Schedule& schedule);

struct ScheduleOptions {
  std::string name = "1f1b";       // one of schedule_names()
  std::int32_t ranks = 1;          // p, the pipeline's length
  std::int32_t micro_batches = 1;  // m, per step and replica
  std::int32_t chunks = 0;         // v, model chunks per rank; 0: what the schedule needs (interleaved has no default)
};

// gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, dualpipe, dualpipe-v.
std::vector<std::string> schedule_names();

// The schedule of that name, which check_schedule accepts; or an error that names the violated need. Needs:
//   interleaved   v ≥ 2, m divisible by p
//   dualpipe      p even, m even and ≥ 2p
//   dualpipe-v    m ≥ 2p
// With stages of equal cost F, B (input), W (weight) and free communication, `play` finds these bubbles:
//   gpipe, 1f1b   (p−1)(F+B+W)
//   interleaved   (p−1)(F+B+W), of chunks 1/v as long
//   zb-h1         (p−1)(F+B−W)       if m ≥ p, W ≤ F                 in flight at most p, as 1f1b on rank 0
//   zb-h2         (p−1)(F+B−2W)      if m ≥ 2p−1, W ≤ F, 2W ≤ F+B    in flight at most 2p−1
//   zb-v          2(p−1)(B−W)        if m ≥ 2p−1, F ≤ B, 2W ≤ F+B    in flight at most 2p half-size chunks, as 1f1b
//   dualpipe      (p/2−1)(F&B+B−2W)  if F ≤ B, W ≤ B                 in flight at most p+1
//   dualpipe-v    (p−1)(F&B+B−2W)    if F ≤ B, W ≤ B                 in flight at most 2p+1 half-size chunks
// (so zb-v has none when F = B = W), where F&B is the time of an overlapped pair and the two dualpipes' bubble the most
// idle time until the makespan. (DeepSeek writes (PP/2−1)(F&B+B−3W), its B being the fused backward, here B+W.)
Result<Schedule> make_schedule(const ScheduleOptions& options);

// Pipelines beside one another, which share nothing: ranks and micro-batches of each follow those of the ones before.
// Chunks per rank are the same. At least one; the name is the first's.
Schedule side_by_side(std::span<const Schedule> pipelines);

// Whether the table is a pipeline schedule: places and routes agree; every micro-batch has at every stage one forward
// and one backward (fused, or input and weight), at its place; and the ranks, each in its own order, come to the end:
// F of a stage needs F of the stage before; B needs B of the stage after and the stage's own F; W needs its own B.
// An error names the action at fault, or the cycle of ranks that wait for one another.
Status check_schedule(const Schedule& schedule);

// One order of all actions of all ranks that agrees with each rank's own and with what actions need of one another: by
// when they must end at the latest for the schedule to take no longer, if F, I and W take a tick each. Of actions that
// must end together, those come first that must begin first, then those that are further along the pipeline. The
// schedule is one that check_schedule accepts. Cost: it is played, and the actions are sorted.
struct RankedAction {
  std::int32_t rank = 0;
  std::int32_t action = 0;  // of the rank's

  bool operator==(const RankedAction&) const = default;
};
std::vector<RankedAction> total_order(const Schedule& schedule);

// Time in any unit, the same for all.
using Ticks = std::int64_t;

struct StageCost {
  Ticks forward = 1;
  Ticks backward_input = 1;
  Ticks backward_weight = 1;  // a fused backward takes input + weight
};

struct PlayCosts {
  std::vector<StageCost> stages = {{}};  // by stage; a single one stands for all
  Ticks transfer = 0;                    // from the end of work on one rank to its result on the next
  Ticks pair_saving = 0;  // what overlap takes off a pair; a pair lasts no less than the longer of its two actions
};

struct RankPlay {
  Ticks start = 0;                     // of the first action
  Ticks end = 0;                       // of the last
  Ticks busy = 0;                      // Σ of its actions
  std::int32_t in_flight = 0;          // most chunk activations held at once: from F to the fused B, or to W
  std::vector<std::int32_t> by_chunk;  // the same, of every chunk by itself

  bool operator==(const RankPlay&) const = default;
};

struct Playback {
  Ticks makespan = 0;
  std::vector<RankPlay> ranks;

  // The most idle time of a rank between its own first start and last end: the zero-bubble papers' measure, in which a
  // rank that starts later also ends later and loses nothing.
  Ticks bubble() const;
  // Of the ranks' time until the makespan, the idle share.
  double bubble_share() const;

  bool operator==(const Playback&) const = default;
};

// Every rank runs its actions in order, each as soon as what it needs has come; exact. Errors as check_schedule, and on
// costs that are negative, not one per stage, or overflow.
Result<Playback> play(const Schedule& schedule, const PlayCosts& costs = {});

// Readable text, one line per rank; `#` starts a comment. A place or action without `.chunk` means chunk 0; `&` joins
// actions issued together.
//   schedule dualpipe: 4 ranks, 2 chunks, 8 micro-batches
//   route 0-3: 0 1 2 3
//   route 4-7: 3.1 2.1 1.1 0.1
//   0: F0 F1 F2 F4.1 I4.1 W4.1 F5.1 F3&B5.1 …
std::string print(const Schedule& schedule);
// A table whose numbers are in range; check_schedule decides whether it is a schedule. Errors: "file:line: …".
Result<Schedule> parse_schedule(std::string_view text, std::string_view file);

// "F3", "W3.1": an action as in the text.
std::string name_of(const Action& action);

}  // namespace weft
