#include "run/counted_memory.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>

#include "base/check.h"
#include "run/torch_version.h"

namespace weft::runtime {
namespace {

// An allocator is one of its process, and so is what it counts.
c10::Allocator* before = nullptr;
std::atomic<std::int64_t> held = 0, peak = 0;

// libtorch's allocator takes memory from posix_memalign, which knows the size of what it gave.
void release(void* memory) {
  held.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
  before->raw_deleter()(memory);
}

at::DataPtr counted(std::size_t bytes) {
  at::DataPtr memory = before->allocate(bytes);
  if (memory.get_context() == nullptr) return memory;
  const auto size = static_cast<std::int64_t>(::malloc_usable_size(memory.get()));
  const std::int64_t now = held.fetch_add(size, std::memory_order_relaxed) + size;
  for (std::int64_t most = peak.load(std::memory_order_relaxed);
       now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed);) {
  }
  WEFT_CHECK(memory.compare_exchange_deleter(before->raw_deleter(), &release), "memory that another has to free");
  return memory;
}

}  // namespace

void count_memory() {
  if (before) return;
  static AllocatorThrough<counted, release> counting;
  before = c10::GetCPUAllocator();
  constexpr std::uint8_t kOverOthers = 100;
  c10::SetCPUAllocator(&counting, kOverOthers);
}

CountedMemory counted_memory() {
  return {{held.load(std::memory_order_relaxed)}, {peak.load(std::memory_order_relaxed)}};
}

void restart_peak() { peak.store(held.load(std::memory_order_relaxed), std::memory_order_relaxed); }

}  // namespace weft::runtime
