// What differs between libtorch 1.13 (Debian 12) and 2.x, in one place. Nothing else asks for the version.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace weft::runtime {

// Gloo sums bf16 from 2.x on; before, such sums are made in fp32.
inline constexpr bool kGlooSumsBfloat16 = TORCH_VERSION_MAJOR >= 2;

}  // namespace weft::runtime
