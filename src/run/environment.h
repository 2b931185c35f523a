// Which rank a process is, as launchers say it: torchrun, mpirun (Open MPI), srun.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace weft::runtime {

struct RankPlace {
  int rank = 0, world = 1, local_rank = 0;
  std::string host = "127.0.0.1";  // where rank 0 listens
  int port = 29500;

  bool operator==(const RankPlace&) const = default;
};

using Environment = std::function<const char*(const char* name)>;  // as std::getenv

// RANK, WORLD_SIZE and LOCAL_RANK, else OMPI_COMM_WORLD_*, else SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID; with
// MASTER_ADDR and MASTER_PORT. None: the process is not one of several. An error names a variable that makes no sense.
Result<std::optional<RankPlace>> place_in(const Environment& environment);

}  // namespace weft::runtime
