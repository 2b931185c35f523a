// Where in the training step the instructions stand that are being emitted.
#pragma once

#include <utility>

#include "compile/group_code.h"

namespace weft {

struct Position {
  TurnId turn;
  InTurn in_turn = InTurn::Before;
  Phase phase = Phase::Forward;
  bool weight_part = false;  // Turn::weight_part
  Guard guard = Guard::Always;
  bool ahead = false;               // issued in an earlier turn than `turn` (a prefetched gather)
  InstructionList* sink = nullptr;  // the list that emitted instructions are appended to
};

// Sets a value, and restores the one before at the end of the scope.
template <class T>
class Temporarily {
 public:
  Temporarily(T& variable, T value) : variable_(variable), before_(std::exchange(variable, std::move(value))) {}
  ~Temporarily() { variable_ = std::move(before_); }
  Temporarily(const Temporarily&) = delete;
  Temporarily& operator=(const Temporarily&) = delete;

 private:
  T& variable_;
  T before_;
};

}  // namespace weft
