// The machine that measures, as a cluster file: a device for each core, what a rank reaches on it while the others are
// busy too, and the links between ranks. Every figure is read off a few events of the profile (`machine_probes`).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "profile/event.h"

namespace weft {

struct Machine {
  std::string name;   // of its devices, in cluster files and profiles: "xeonplatinum8481c-core"
  std::string title;  // "Intel Xeon Platinum 8481C, 1 thread"
  int cores = 1;
  Bytes memory;  // of all
};
// As /proc says. `threads`: of a rank.
Machine this_machine(int threads);
// Its first GPU, as nvidia-smi says. An error where there is none.
Result<Machine> this_gpu();

// What events are filed under as their software: a rank among busy ones is slower than one alone.
std::string measuring_stack(int ranks);  // "weft, 2 ranks at once"

// Of events that were measured while different numbers of ranks were busy, those nearest to `ranks`: the next larger
// number, or the largest. Others' events stay as they are.
void keep_nearest_load(std::vector<MeasuredEvent>& profile, std::int64_t ranks);

// A large product, a pass over memory, and messages between two ranks of a byte to many.
std::vector<Event> machine_probes(int ranks);

// A cluster file of one node, read back by parse_cluster_yaml. The profile has the probes under the machine's name and
// that number of ranks; an error names what is missing.
Result<std::string> cluster_file(const Machine& machine, int ranks, const std::vector<MeasuredEvent>& profile);

}  // namespace weft
