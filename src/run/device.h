// Where a rank's tensors live: a processor, or one GPU; and time as that device counts it.
//
// A GPU does what it is given in the order in which it is given it, later than the host gives it: the host waits only
// where it reads a number, and at the end of a step.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "run/counted_memory.h"

namespace weft::runtime {

// GPUs of this machine that this libtorch can use.
int gpu_count();

// "cpu", "cuda", or "" for a GPU where there is one. Ranks of one machine take its GPUs in turn. An error says that there
// is no such device.
Result<at::Device> device_named(std::string_view name, int local_rank);
// Makes it the one that this thread works on.
void work_on(at::Device device);

// Until all that was given to the device is done.
void finish(at::Device device);

// What tensors hold on the device: on processors where it is counted (counted_memory.h), on a GPU as libtorch's allocator
// has given it.
CountedMemory memory_of(at::Device device);
void restart_peak(at::Device device);

// Seconds that each of these runs takes on the device, back to back. On a GPU the host is ahead of it, so that no time of
// the host is counted (as where a step's many kernels wait in line).
std::vector<double> device_times(at::Device device, const std::function<void()>& run, std::int64_t runs);

}  // namespace weft::runtime
