// One rank started as a process of this machine: told who it is, on its cores, and heard through a pipe.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "run/pinning.h"

namespace weft::runtime {

struct RankProcess {
  int rank = 0, ranks = 1, threads = 1;
  int port = 1;                    // where rank 0 listens
  std::vector<std::string> words;  // the program, then its arguments
  // Besides this process's own and those that torchrun sets. An empty value: not that variable, whatever it is here.
  std::map<std::string, std::string> variables = {};
  Cores cores = {};
  std::string output = {};  // a file for stderr, and for stdout where that is not the pipe
  int heard = 1;            // the child's descriptor that the pipe stands for
};
struct StartedRank {
  pid_t pid = -1;
  int pipe = -1;  // what it says; the caller's to close
};
// OPENBLAS_CORETYPE for this machine's processor, unless it is set: OpenBLAS takes a processor that is newer than itself for
// its oldest kind (0.3.21 of Debian 12 takes a Sapphire Rapids for a Prescott) and multiplies at a quarter of its speed
// (32 against 132 GFLOP/s on one core). Empty: nothing is to be said.
std::string blas_core_type();

// It dies with this process, and leaves SIGINT to it.
Result<StartedRank> start(const RankProcess& process);

}  // namespace weft::runtime
