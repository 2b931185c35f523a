// Plays one rank's part of a program on libtorch: steps of training with real numbers.
//
// Given a bundle, the device to be, a place to meet the others, and where values come from; every call of `step` plays
// all of a step's micro-batches and the optimizer. Instructions are issued by one host thread in program order; computing
// is done at once (on a GPU: given to it at once), communication while later instructions are issued, until something
// that it is before, or that reads what it brings, comes up. Backward is the program's own instructions: there is no autograd.
//
// All ranks of a bundle must play, each in a process or a thread of its own. Everything that goes wrong (a peer that is
// gone, a timeout, memory) comes back as an error that names the instruction; the executor is then of no more use.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "bundle/bundle.h"
#include "run/communicator.h"
#include "run/rendezvous.h"
#include "run/timeline.h"
#include "run/values.h"

namespace weft::runtime {

// What a rank is at: for those who watch it.
struct Progress {
  std::int64_t step = 0;  // from 0
  std::int32_t micro_batch = 0;
  InstructionId instruction;
  bool waiting = false;  // for others
};

struct ExecutorOptions {
  at::Device tensors_on = at::kCPU;
  Backend backend = Backend::Gloo;
  Seconds timeout{60};  // of every communication
  // Whether there is a core for what carries messages while the host computes. Where there is none, the host waits for
  // what it has issued at once: a thread that computes gives way after milliseconds, not when a message comes.
  bool overlaps = true;
  // Of dropout masks, mixed with operator, step and micro-batch. None: masks depend on the element alone, as the
  // reference's do.
  std::optional<std::uint64_t> mask_seed = {};
  std::int64_t steps_done = 0;                         // before the first that is played, where training goes on
  std::function<void(const Progress&)> progress = {};  // called before every instruction and every wait
  // How many steps to record (timeline.h). Ranks compare clocks before such a step, and so begin it together, as the
  // simulator's do. All ranks must record alike.
  int recorded_steps = 0;
};

// A tensor put together from all devices that hold parts of it.
struct WholeTensor {
  Shape shape;
  std::vector<double> values;
  double spread = 0;  // the largest difference between two that should hold the same, relative to the tensor's largest
};

// The bytes of a whole tensor, row-major, in the type it is held in.
using BytesOfTensor = std::function<void(std::span<const std::byte>)>;

class Executor {
 public:
  // Meets the other ranks. Refers to the bundle, which must outlive it. An error names an operator without a kernel, a
  // type that cannot be stored here, or a peer that does not come.
  static Result<std::unique_ptr<Executor>> make(const Bundle& bundle, int device, const Rendezvous& rendezvous,
                                                LeafValues values, ExecutorOptions options = {});
  ~Executor();

  // Draws the next step's samples, as a loader does beside training; `step` does it where nobody has.
  Status load();
  Status step(const StepNumbers& numbers);
  // What the last step ended with: the mean loss.
  std::optional<double> result(TensorId tensor) const;
  // A buffer that outlives the step, put together on device 0; nothing elsewhere. All ranks must call it alike.
  Result<std::optional<WholeTensor>> gather(BufferId buffer);
  // To every device one tensor that outlives steps, put together from those that hold its parts: `take` is called on
  // device d with that of buffer wanted[d], if it is valid. All ranks must call it alike.
  Status deliver(std::span<const BufferId> wanted, const BytesOfTensor& take);
  // The first, by rank, of what went wrong somewhere; empty where nothing did. The same on all ranks, which must all call
  // it; it waits for all of them.
  Result<std::string> agree_on(const std::string& problem);
  // Of the steps that were recorded.
  const RankTimeline& timeline() const;

 private:
  class Player;
  explicit Executor(std::unique_ptr<Player> player);
  std::unique_ptr<Player> player_;
};

// Whether there is a kernel for every operator of a graph, and a type for every tensor.
Status check_kernels(const Graph& graph, Numbers numbers);

}  // namespace weft::runtime
