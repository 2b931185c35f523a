// What is timed when an event is measured: prepared once, then run again and again.
#pragma once

#include <functional>

#include "bundle/bundle.h"
#include "profile/event.h"
#include "run/communicator.h"

namespace weft::runtime {

// An operator's kernel. An error names the operator that has none, or a type that cannot be stored.
Result<std::function<void()>> computation_of(const Event& event, Numbers numbers, at::Device device = at::kCPU);

// One member's side of a communication among `group`: what play_exchange, all_reduce, play_send and play_receive do, with
// parts that lie in one piece.
std::function<void()> communication_of(const Event& event, Communicator& communicator, const GroupKey& group,
                                       int device);

}  // namespace weft::runtime
