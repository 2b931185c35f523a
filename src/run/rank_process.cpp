#include "run/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace weft::runtime {
namespace {

std::vector<std::string> environment_of(const RankProcess& process) {
  std::map<std::string, std::string> variables;
  for (char** each = environ; *each; ++each) {
    const std::string_view entry = *each;
    const std::size_t equals = std::min(entry.find('='), entry.size());
    variables[std::string(entry.substr(0, equals))] = entry.substr(std::min(equals + 1, entry.size()));
  }
  variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(process.rank);
  variables["WORLD_SIZE"] = std::to_string(process.ranks);
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(process.port);
  variables["TORCH_CPP_LOG_LEVEL"] = "ERROR";
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"})
    variables[name] = std::to_string(process.threads);
  if (const std::string kind = blas_core_type(); !kind.empty()) variables["OPENBLAS_CORETYPE"] = kind;
  for (const auto& [name, value] : process.variables)
    if (value.empty())
      variables.erase(name);
    else
      variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

std::string blas_core_type() {
  if (std::getenv("OPENBLAS_CORETYPE")) return {};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return {};
}

Result<StartedRank> start(const RankProcess& process) {
  int pipes[2];
  if (::pipe2(pipes, O_CLOEXEC) != 0) return error("no pipe: {}", std::strerror(errno));
  const int output = ::open(process.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  // All that the child needs is made before the fork; after it only system calls are made.
  std::vector<std::string> words = process.words, entries = environment_of(process);
  const std::vector<char*> arguments = pointers(words), environment = pointers(entries);
  const cpu_set_t cores = as_set(process.cores);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(127);
    ::signal(SIGINT, SIG_IGN);  // the launcher hears it and ends all
    if (!process.cores.empty()) ::sched_setaffinity(0, sizeof cores, &cores);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    ::dup2(pipes[1], process.heard);
    ::execve(arguments[0], arguments.data(), environment.data());
    ::_exit(127);
  }
  const int problem = errno;
  ::close(pipes[1]);
  if (output >= 0) ::close(output);
  if (pid < 0) {
    ::close(pipes[0]);
    return error("rank {} cannot be started: {}", process.rank, std::strerror(problem));
  }
  return StartedRank{pid, pipes[0]};
}

}  // namespace weft::runtime
