#include "run/facts.h"

#include <fmt/format.h>

#include "run/device.h"
#include "run/torch_version.h"

namespace weft::runtime {

std::string facts() {
  return fmt::format(R"({{"libtorch":"{}","gloo":true,"nccl":{},"gpus":{}}})", TORCH_VERSION, kHasNccl, gpu_count());
}

}  // namespace weft::runtime
