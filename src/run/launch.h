// Spawns the ranks of a run on this machine and watches over them until all are done or one is not well.
//
// A rank is the program `weft-rank`, one process each, told who it is by the variables that torchrun sets. It reports in
// lines of text (RankReport); what it is at is known from a shared page (progress_page.h). One that dies, or that
// makes no progress for the timeout while others wait, ends the run: all others are ended and one message names it and
// its instruction. Ranks die with their launcher, whatever ends that. Knows nothing of libtorch.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "bundle/bundle.h"
#include "run/pinning.h"
#include "run/run_files.h"

namespace weft::runtime {

// What ranks say, one a line: "step 3 2.71 0.052", "check 1e-12 1e-9 gradient of fc.weight", "bad …", "error …".
struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  Seconds time;
};
struct CheckReport {
  std::string name;  // of the tensor that differs most in a step
  std::int64_t step = 0;
  double difference = 0, bound = 0;
};

struct LaunchOptions {
  std::string rank_program;  // path of weft-rank
  std::string bundle;        // path of the file
  std::string data;          // path of a file of tokens; empty: synthetic ones
  RunFiles files = {};
  std::int64_t steps = 1;
  bool check = false;
  Seconds timeout{60};
  std::vector<int> threads;               // by rank
  std::vector<Cores> pinned;              // by rank: the cores that it may use; an empty list: all
  std::vector<int> beside = {};           // by rank: busy loops that share its cores (busy_loops.h); empty: none
  std::string device = {}, backend = {};  // "cpu" or "cuda", "gloo" or "nccl"; empty: the rank's own choice
  bool record = false;                    // ranks write timelines (timeline.h) to the run's directory
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(const CheckReport&)> on_check = {};
};

struct LaunchOutcome {
  enum class Kind : std::uint8_t {
    Done,
    BadInput,     // a rank cannot do what it is asked
    Failed,       // a rank died, hung or met an error
    Interrupted,  // SIGINT or SIGTERM came
  };
  Kind kind = Kind::Done;
  std::string message = {};
};

// `bundle` names instructions; `directory` is for files of the run (what ranks write to stderr), and is the caller's to
// remove. Blocks until every rank has ended. SIGINT and SIGTERM are handled while it runs.
Result<LaunchOutcome> launch(const Bundle& bundle, const std::string& directory, const LaunchOptions& options);

// While it lives, SIGINT and SIGTERM only leave a note. One at a time.
class CatchInterrupts {
 public:
  CatchInterrupts();
  ~CatchInterrupts();
  CatchInterrupts(const CatchInterrupts&) = delete;
  bool came() const;

 private:
  struct sigaction before_[2];
};

// A port of this machine that nobody listens on now.
Result<int> free_port();

// Where weft-rank lies: beside this program. An error where it does not: weft was built without libtorch.
Result<std::string> rank_program();

}  // namespace weft::runtime
