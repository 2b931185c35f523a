#include "hybrid/pipeline_clock.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace weft {
namespace {

bool holds_no_more(const InFlight& one, const InFlight& other) {
  const auto at_most = [](std::int32_t a, std::int32_t b) { return a <= b; };
  return one.body == other.body && one.chunk == other.chunk &&
         std::equal(one.whole.begin(), one.whole.end(), other.whole.begin(), at_most) &&
         std::equal(one.half.begin(), one.half.end(), other.half.begin(), at_most);
}

std::vector<InFlight> in_flight_of(const std::vector<Action>& actions, std::size_t chunks) {
  std::vector<InFlight> found;
  InFlight now{Body::Forward, 0, std::vector<std::int32_t>(chunks, 0), std::vector<std::int32_t>(chunks, 0)};
  if (std::none_of(actions.begin(), actions.end(), [](const Action& a) { return a.body == Body::BackwardWeight; }))
    return found;
  for (const Action& action : actions) {
    now.body = action.body;
    now.chunk = action.chunk;
    if (std::none_of(found.begin(), found.end(), [&](const InFlight& each) { return holds_no_more(now, each); })) {
      std::erase_if(found, [&](const InFlight& each) { return holds_no_more(each, now); });
      found.push_back(now);
    }
    std::int32_t &whole = now.whole[static_cast<std::size_t>(action.chunk)],
                 &half = now.half[static_cast<std::size_t>(action.chunk)];
    if (action.body == Body::Forward) ++whole;
    if (action.body == Body::Backward || action.body == Body::BackwardInput) --whole;
    if (action.body == Body::BackwardInput) ++half;
    if (action.body == Body::BackwardWeight) --half;
  }
  return found;
}

}  // namespace

PipelineTable::PipelineTable(const Schedule& schedule)
    : ranks_(schedule.ranks), chunks_(schedule.chunks), micro_batches_(schedule.micro_batches) {
  stage_at_ = stages_by_place(schedule);
  const int stages = schedule.stages();
  const auto at = [&](Body body, std::int32_t micro_batch, std::int32_t stage) {
    const int kind = body == Body::Forward ? 0 : body == Body::BackwardWeight ? 2 : 1;
    return (static_cast<std::size_t>(kind) * static_cast<std::size_t>(micro_batches_) +
            static_cast<std::size_t>(micro_batch)) *
               static_cast<std::size_t>(stages) +
           static_cast<std::size_t>(stage);
  };
  std::vector<std::int32_t> made(3u * static_cast<std::size_t>(micro_batches_) * static_cast<std::size_t>(stages), -1);
  std::vector<std::size_t> next(static_cast<std::size_t>(ranks_), 0);
  std::vector<std::int32_t> place_of;  // of every action
  last_of_rank_.assign(static_cast<std::size_t>(ranks_), kStart);
  last_of_place_.assign(static_cast<std::size_t>(ranks_ * chunks_), kStart);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      for (; next[r] < schedule.actions[r].size(); ++next[r]) {
        const Action& action = schedule.actions[r][next[r]];
        const int stage = stage_at(rank, action.chunk);
        const std::int32_t place = rank * chunks_ + action.chunk;
        Step step{last_of_rank_[r], kNever, 0};
        bool remote = false;
        const bool forward = action.body == Body::Forward;
        const int neighbour = forward ? stage - 1 : stage + 1;
        if (action.body != Body::BackwardWeight && neighbour >= 0 && neighbour < stages) {
          const std::int32_t needs = made[at(forward ? Body::Forward : Body::Backward, action.micro_batch, neighbour)];
          if (needs < 0) break;
          step.needs = needs;
          remote = place_of[static_cast<std::size_t>(needs - kFirst)] / chunks_ != rank;
        }
        step.cost = cost_of(stage, action.body, remote);
        const auto index = static_cast<std::int32_t>(steps_.size()) + kFirst;
        if (!forward && action.micro_batch + 1 == micro_batches_)
          last_of_place_[static_cast<std::size_t>(place)] = index;
        made[at(action.body, action.micro_batch, stage)] = last_of_rank_[r] = index;
        steps_.push_back(step);
        place_of.push_back(place);
        moved = true;
      }
    }
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<std::int32_t> now(static_cast<std::size_t>(chunks_), 0), most = now;
    std::int32_t count = 0, highest = -1;
    for (const Action& action : schedule.actions[static_cast<std::size_t>(rank)]) {
      std::int32_t& of = now[static_cast<std::size_t>(action.chunk)];
      if (action.body == Body::Forward) ++of, ++count;
      if (count > highest) highest = count, most = now;
      if (action.body == Body::Backward || action.body == Body::BackwardWeight) --of, --count;
    }
    in_flight_.push_back(std::move(most));
    split_.push_back(in_flight_of(schedule.actions[static_cast<std::size_t>(rank)], static_cast<std::size_t>(chunks_)));
  }
}

void PipelineTable::play(const std::vector<StageTimes>& stages, PipelineTimes& times) const {
  struct Cost {
    double takes, waits;  // waits: from the end of `needs` to its own start
  };
  thread_local std::vector<Cost> costs;
  costs.resize(stages.size() * 8);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageTimes& of = stages[i];
    for (const bool remote : {false, true}) {
      const auto set = [&](Body body, double takes, double head) {
        const double sent = body != Body::Forward ? of.sends : i > 0 ? stages[i - 1].sends : 0;
        costs[static_cast<std::size_t>(cost_of(static_cast<std::int32_t>(i), body, remote))] = {
            takes, (remote ? sent : 0) - head};
      };
      set(Body::Forward, of.forward, 0);
      set(Body::Backward, of.backward_input + of.backward_weight, of.backward_head);
      set(Body::BackwardInput, of.backward_input, of.backward_head);
      set(Body::BackwardWeight, of.backward_weight, 0);
    }
  }
  thread_local std::vector<double> end;
  end.resize(steps_.size() + kFirst);
  end[kStart] = 0;
  end[kNever] = -std::numeric_limits<double>::infinity();
  double* next = end.data() + kFirst;
  for (const Step& step : steps_) {
    const Cost& cost = costs[static_cast<std::size_t>(step.cost)];
    *next++ =
        std::max(end[static_cast<std::size_t>(step.before)], end[static_cast<std::size_t>(step.needs)] + cost.waits) +
        cost.takes;
  }
  times.rank_end.clear();
  times.chunk_end.clear();
  times.chunk_last.clear();
  times.makespan = 0;
  for (std::int32_t last : last_of_rank_) {
    times.rank_end.push_back(end[static_cast<std::size_t>(last)]);
    times.makespan = std::max(times.makespan, times.rank_end.back());
  }
  for (std::int32_t last : last_of_place_) {
    times.chunk_end.push_back(end[static_cast<std::size_t>(last)]);
    times.chunk_last.push_back(
        costs[static_cast<std::size_t>(steps_[static_cast<std::size_t>(last - kFirst)].cost)].takes);
  }
}

std::shared_ptr<const PipelineTable> PipelineTables::find(const std::string& schedule, int ranks, int chunks,
                                                          int micro_batches) {
  const Key key{schedule, ranks, chunks, micro_batches};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
  }
  std::shared_ptr<const PipelineTable> made;
  if (const Result<Schedule> table = make_schedule({schedule, ranks, micro_batches, chunks}); table.ok())
    made = std::make_shared<PipelineTable>(*table);
  const std::lock_guard lock(mutex_);
  return known_.try_emplace(key, std::move(made)).first->second;
}

PipelineClock::PipelineClock(PipelineTables& tables, const std::string& schedule, int ranks, int chunks,
                             int micro_batches)
    : micro_batches_(micro_batches) {
  // A schedule takes multiples of the number of ranks, or any number: keep the remainder.
  const int once = 2 * ranks + micro_batches % ranks;
  if (micro_batches <= once + ranks) {
    first_ = tables.find(schedule, ranks, chunks, micro_batches);
    return;
  }
  first_ = tables.find(schedule, ranks, chunks, once);
  second_ = tables.find(schedule, ranks, chunks, once + ranks);
  if (!second_) first_.reset();
}

void PipelineClock::play(const std::vector<StageTimes>& stages, PipelineTimes& times) const {
  WEFT_CHECK(valid());
  first_->play(stages, times);
  if (!second_) return;
  const double once = times.makespan;
  second_->play(stages, times);
  // The time that as many micro-batches as ranks add; in the limit at least the busiest rank's work on them.
  double busiest = 0;
  for (int rank = 0; rank < second_->ranks(); ++rank) {
    double work = 0;
    for (int chunk = 0; chunk < second_->chunks(); ++chunk) {
      const StageTimes& of = stages[static_cast<std::size_t>(second_->stage_at(rank, chunk))];
      work += of.forward + of.backward_input + of.backward_weight;
    }
    busiest = std::max(busiest, work);
  }
  const double adds = std::max(times.makespan - once, second_->ranks() * busiest);
  const double more = static_cast<double>(micro_batches_ - second_->micro_batches()) / second_->ranks() * adds;
  times.makespan += more;
  for (double& end : times.rank_end) end += more;
  for (double& end : times.chunk_end) end += more;
}

}  // namespace weft
