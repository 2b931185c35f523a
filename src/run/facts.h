// What this weft-rank can use, as one JSON object: for `weft doctor`.
#pragma once

#include <string>

namespace weft::runtime {

// {"libtorch": "1.13.1", "gloo": true, "nccl": false, "gpus": 0}
std::string facts();

}  // namespace weft::runtime
