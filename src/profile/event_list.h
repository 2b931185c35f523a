// Events to be measured as lines of text: what `weft` gives to the ranks that measure them.
//
//   weft events 1
//   linear <tab> {transposed=1} <tab> f32[8,64] f32[256,64] <tab> f32 <tab> forward <tab> n=0:128 <tab> 0 <tab> 1
//   all-reduce <tab> <tab> <tab> f32 <tab> <tab> <tab> 65536 <tab> 2
//
// Operator, attributes, shapes, type, direction, part, bytes, members. Where it is measured is not said: here.
#pragma once

#include <span>
#include <string_view>

#include "profile/event.h"

namespace weft {

std::string print_events(std::span<const Event> events);
// Errors: "file:line: …". What comes back has been checked, but for its device.
Result<std::vector<Event>> parse_events(std::string_view text, std::string_view file);

}  // namespace weft
