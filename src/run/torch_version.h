// What differs between the libtorch versions that weft-rank builds against: Debian's 1.13 and a PyTorch's 2.x. Nothing
// else asks for the version.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

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

}  // namespace weft::runtime
