// What differs between the libtorch versions that weft-rank builds against: Debian's 1.13 and a PyTorch's 2.x. Nothing
// else asks for the version.
#pragma once

#include <c10/core/Allocator.h>
#include <torch/csrc/api/include/torch/version.h>

#include <cstring>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif
#ifdef USE_C10D_NCCL  // where weft-rank is built for GPUs (tools/build_rank.sh)
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace weft::runtime {

// Gloo sums bf16 from 2.x on; before, such sums are made in fp32.
inline constexpr bool kGlooSumsBfloat16 = TORCH_VERSION_MAJOR >= 2;

// What process groups of Gloo and NCCL have in common.
#if TORCH_VERSION_MAJOR >= 2
using GroupBackend = c10d::Backend;
#else
using GroupBackend = c10d::ProcessGroup;
#endif

#ifdef USE_C10D_NCCL
inline constexpr bool kHasNccl = true;
#else
inline constexpr bool kHasNccl = false;
#endif

// An allocator by two functions. `allocate` is const in 1.13 and is not in late 2.x, which also asks for `copy_data`: what
// does not override something of the version at hand is merely there.
// NOLINTBEGIN(modernize-use-override)
template <c10::DataPtr (*kAllocate)(std::size_t), void (*kRelease)(void*)>
class AllocatorThrough final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) const { return kAllocate(bytes); }
  c10::DataPtr allocate(std::size_t bytes) { return kAllocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return kRelease; }
  void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
};
// NOLINTEND(modernize-use-override)

}  // namespace weft::runtime
