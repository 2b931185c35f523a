// The event queue: one entry per actor, ordered by (time, actor). A 4-ary heap with each actor's place in it, so that
// an entry can be moved. No allocation after `reset`.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/workload.h"

namespace weft {

class Agenda {
 public:
  void reset(std::size_t actors) {
    place_.assign(actors, kAbsent);
    heap_.clear();
    heap_.reserve(actors);
  }

  bool empty() const { return heap_.empty(); }
  Picoseconds time() const { return heap_.front().time; }

  std::uint32_t pop() {
    const std::uint32_t actor = heap_.front().actor;
    remove_at(0);
    return actor;
  }

  // The time of the actor's next event; `absent` if it has none.
  Picoseconds time_of(std::uint32_t actor, Picoseconds absent) const {
    return place_[actor] == kAbsent ? absent : heap_[place_[actor]].time;
  }

  // Sets the time of the actor's next event, in place of an earlier one.
  void set(std::uint32_t actor, Picoseconds time) {
    const std::uint32_t place = place_[actor];
    if (place == kAbsent) {
      heap_.push_back({time, actor});
      rise(heap_.size() - 1, {time, actor});
    } else if (time < heap_[place].time) {
      rise(place, {time, actor});
    } else if (time > heap_[place].time) {
      sink(place, {time, actor});
    }
  }
  void remove(std::uint32_t actor) {
    if (place_[actor] != kAbsent) remove_at(place_[actor]);
  }

  struct Entry {
    Picoseconds time = 0;
    std::uint32_t actor = 0;

    bool before(const Entry& other) const { return time != other.time ? time < other.time : actor < other.actor; }
  };
  const std::vector<Entry>& entries() const { return heap_; }  // in no particular order

 private:
  static constexpr std::uint32_t kAbsent = 0xffffffff;

  void put(std::size_t place, Entry entry) {
    heap_[place] = entry;
    place_[entry.actor] = static_cast<std::uint32_t>(place);
  }
  void rise(std::size_t place, Entry entry) {
    while (place > 0) {
      const std::size_t parent = (place - 1) / 4;
      if (!entry.before(heap_[parent])) break;
      put(place, heap_[parent]);
      place = parent;
    }
    put(place, entry);
  }
  void sink(std::size_t place, Entry entry) {
    for (;;) {
      const std::size_t first = 4 * place + 1;
      if (first >= heap_.size()) break;
      const std::size_t last = first + 4 < heap_.size() ? first + 4 : heap_.size();
      std::size_t best = first;
      for (std::size_t child = first + 1; child < last; ++child)
        if (heap_[child].before(heap_[best])) best = child;
      if (!heap_[best].before(entry)) break;
      put(place, heap_[best]);
      place = best;
    }
    put(place, entry);
  }
  void remove_at(std::size_t place) {
    place_[heap_[place].actor] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    if (place > 0 && last.before(heap_[(place - 1) / 4])) {
      rise(place, last);
    } else {
      sink(place, last);
    }
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> place_;
};

}  // namespace weft
