#include "run/device.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

#include "run/torch_version.h"
#if TORCH_VERSION_MAJOR >= 2
#include <ATen/DeviceAccelerator.h>
#endif

namespace weft::runtime {
namespace {

using Clock = std::chrono::steady_clock;

c10::impl::VirtualGuardImpl gpus() { return c10::impl::VirtualGuardImpl(at::kCUDA); }

}  // namespace

int gpu_count() { return at::hasCUDA() ? static_cast<int>(gpus().deviceCount()) : 0; }

Result<at::Device> device_named(std::string_view name, int local_rank) {
  const int count = gpu_count();
  if (name == "cpu" || (name.empty() && count == 0)) return at::Device(at::kCPU);
  if (!name.empty() && name != "cuda") return error("--device '{}': cpu or cuda", name);
  if (count == 0)
    return error("--device cuda: {}", at::hasCUDA() ? "this machine has no GPU"
                                                    : "this libtorch has no CUDA; build weft-rank against one that has "
                                                      "(tools/build_rank.sh)");
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(local_rank % count));
}

void work_on(at::Device device) {
  if (device.is_cuda()) gpus().setDevice(device);
}

void finish(at::Device device) {
  if (device.is_cuda()) gpus().synchronizeStream(gpus().getStream(device));
}

#if TORCH_VERSION_MAJOR >= 2
CountedMemory memory_of(at::Device device) {
  if (!device.is_cuda()) return counted_memory();
  const auto stats = at::accelerator::getDeviceStats(device.index());
  return {Bytes{stats.allocated_bytes[0].current}, Bytes{stats.allocated_bytes[0].peak}};
}

void restart_peak(at::Device device) {
  if (!device.is_cuda()) return restart_peak();
  at::accelerator::resetPeakStats(device.index());
}

namespace {

std::vector<double> gpu_times(at::Device device, const std::function<void()>& run, std::int64_t runs) {
  // Work that keeps the GPU busy while the host gives it the first runs: each of these takes it some milliseconds.
  static const at::Tensor busy = at::empty({8192, 8192}, at::TensorOptions(at::kFloat).device(device)).fill_(0.5);
  const auto stream = gpus().getStream(device);
  const auto event = [&] { return c10::Event(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT); };
  // As many at a time as the GPU's queue takes without making the host wait (1,024 launches).
  constexpr std::int64_t kAtOnce = 16;
  std::vector<double> times;
  while (std::ssize(times) < runs) {
    const std::int64_t count = std::min(kAtOnce, runs - std::ssize(times));
    std::vector<c10::Event> marks;
    for (std::int64_t i = 0; i <= count; ++i) marks.push_back(event());
    for (int i = 0; i < 2; ++i) busy.mm(busy);
    marks[0].record(stream);
    for (std::int64_t i = 0; i < count; ++i) {
      run();
      marks[static_cast<std::size_t>(i) + 1].record(stream);
    }
    finish(device);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      times.push_back(marks[i].elapsedTime(marks[i + 1]) * 1e-3);
  }
  return times;
}

}  // namespace
#else
CountedMemory memory_of(at::Device) { return counted_memory(); }
void restart_peak(at::Device) { restart_peak(); }

namespace {
std::vector<double> gpu_times(at::Device, const std::function<void()>&, std::int64_t) { return {}; }
}  // namespace
#endif

std::vector<double> device_times(at::Device device, const std::function<void()>& run, std::int64_t runs) {
  if (device.is_cuda()) return gpu_times(device, run, runs);
  std::vector<double> times;
  for (std::int64_t i = 0; i < runs; ++i) {
    const auto begun = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - begun).count());
  }
  return times;
}

}  // namespace weft::runtime
