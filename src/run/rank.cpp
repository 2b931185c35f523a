#include "run/rank.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <net/if.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/whole_file.h"
#include "run/check.h"
#include "run/checkpoint.h"
#include "run/counted_memory.h"
#include "run/device.h"
#include "run/environment.h"
#include "run/executor.h"
#include "run/pinning.h"
#include "run/progress_page.h"
#include "run/step_log.h"

namespace weft::runtime {
namespace {

constexpr int kDone = 0, kFailed = 1, kBadInput = 2;
constexpr int kLeastSteps = 4;  // whatever the time: the first ones fill caches

// To the launcher, or to whoever reads stdout and stderr.
class Reports {
 public:
  explicit Reports(int rank) : rank_(rank) {
    if (const char* const pipe = std::getenv("WEFT_REPORTS")) pipe_ = std::atoi(pipe);
  }
  void step(std::int64_t step, double loss, double seconds) const {
    if (rank_ != 0) return;
    if (pipe_ >= 0)
      say(fmt::format("step {} {} {}\n", step, loss, seconds));
    else
      fmt::print("step {}  loss {:.6f}  {:.3f} s\n", step, loss, seconds);
  }
  void check(std::int64_t step, const Comparison& worst) const {
    if (pipe_ >= 0)
      say(fmt::format("check {} {} {} {}\n", step, std::max(worst.difference, worst.spread), worst.bound, worst.name));
    else
      fmt::print("step {}  {} differs by {:.1e}, bound {:.0e}\n", step, worst.name, worst.difference, worst.bound);
  }
  int bad(const Error& error) const {
    tell("bad", error);
    return kBadInput;
  }
  int failed(const Error& error) const {
    tell("error", error);
    return kFailed;
  }

 private:
  void tell(const char* word, const Error& error) const {
    std::string message = error.message;
    for (char& c : message)
      if (c == '\n') c = ' ';
    if (pipe_ >= 0)
      say(fmt::format("{} {}\n", word, message));
    else if (rank_ == 0 || std::strcmp(word, "bad") != 0)  // what is wrong with the input is said once
      fmt::print(stderr, "weft: rank {}: {}\n", rank_, message);
  }
  void say(const std::string& line) const {
    std::size_t at = 0;
    while (at < line.size()) {
      const ssize_t written = ::write(pipe_, line.data() + at, line.size() - at);
      if (written <= 0) return;
      at += static_cast<std::size_t>(written);
    }
  }

  const int rank_;
  int pipe_ = -1;
};

const Comparison* worst_of(const std::vector<Comparison>& list) {
  const Comparison* worst = nullptr;
  for (const Comparison& each : list)
    if (!worst || (!each.ok() && worst->ok()) ||
        (each.ok() == worst->ok() &&
         std::max(each.difference, each.spread) > std::max(worst->difference, worst->spread)))
      worst = &each;
  return worst;
}

// Where a training begins or goes on, and the numbers it does so with.
struct Beginning {
  TrainingPosition position;
  LeafValues values;
};

Result<Beginning> beginning_of(const Bundle& bundle, const RankOptions& options) {
  const RunFiles& files = options.files;
  std::optional<Checkpoint> checkpoint;
  std::optional<std::string> from;
  if (!files.load.empty()) from = files.load;
  if (files.resume) from = last_checkpoint(files.save);
  if (from) {
    WEFT_TRY(checkpoint, Checkpoint::open(*from, bundle));
  }
  Beginning beginning;
  if (checkpoint) beginning.position = checkpoint->position();
  if (checkpoint && !files.resume && checkpoint->position().steps >= options.steps)
    return error("--steps {}: {} has done {} already; --steps counts them too", options.steps, checkpoint->path(),
                 checkpoint->position().steps);
  if (options.data.empty()) {
    beginning.values = synthetic_values(bundle, beginning.position);
  } else {
    WEFT_TRY(beginning.values, values_from_tokens(bundle, options.data, beginning.position));
  }
  if (checkpoint) beginning.values = checkpoint->values(bundle, std::move(beginning.values));
  if (!files.save.empty()) WEFT_TRY_OK(prepare_saving(files.save, beginning.position.steps));
  return beginning;
}

}  // namespace

int run_rank(const RankOptions& options) {
  Result<std::optional<RankPlace>> found = place_in([](const char* name) { return std::getenv(name); });
  if (!found.ok()) return Reports(0).bad(found.error());
  const RankPlace place = found->value_or(RankPlace{});
  const Reports reports(place.rank);
  const Result<Bundle> bundle = read_bundle(options.bundle);
  if (options.remove_bundle) ::unlink(options.bundle.c_str());
  if (!bundle.ok()) return reports.bad(bundle.error());
  const int self = options.alone.value_or(place.rank);
  if (self < 0 || self >= bundle->world_size())
    return reports.bad(error("--alone {}: {} has devices 0 to {}", self, options.bundle, bundle->world_size() - 1));
  if (!options.alone && place.world != bundle->world_size())
    return reports.bad(
        error("{}: is for {} ranks, and {} were started", options.bundle, bundle->world_size(), place.world));
  if (const Status good = check_kernels(bundle->graph, bundle->numbers); !good.ok()) return reports.bad(good.error());

  const Result<Beginning> beginning = beginning_of(*bundle, options);
  if (!beginning.ok()) return reports.bad(beginning.error());
  const LeafValues& values = beginning->values;
  const TrainingPosition& done = beginning->position;
  std::optional<StepLog> log;
  if (!options.files.log.empty() && place.rank == 0) {
    Result<StepLog> opened = StepLog::open(options.files.log, done.steps > 0);
    if (!opened.ok()) return reports.bad(opened.error());
    log.emplace(std::move(opened).value());
  }

  if (const char* const threads = std::getenv("OMP_NUM_THREADS")) at::set_num_threads(std::max(1, std::atoi(threads)));
  const Result<at::Device> device = device_named(options.device, place.local_rank);
  if (!device.ok()) return reports.bad(device.error());
  Result<Backend> backend = backend_named(options.backend, *device, place.world);
  if (!backend.ok()) return reports.bad(backend.error());
  if (options.alone) backend = Backend::None;
  work_on(*device);
  ExecutorOptions playing{.tensors_on = *device,
                          .backend = *backend,
                          .timeout = options.timeout,
                          .overlaps = device->is_cuda() || std::ssize(allowed_cores()) > at::get_num_threads(),
                          .mask_seed = bundle->seed,
                          .steps_done = done.steps,
                          .progress = {}};
  std::optional<ProgressPage> page;
  if (const char* const path = std::getenv("WEFT_PROGRESS")) {
    Result<ProgressPage> opened = ProgressPage::open(path, place.world);
    if (!opened.ok()) return reports.failed(opened.error());
    page.emplace(std::move(opened).value());
    ProgressSlot* const slot = &page->of(place.rank);
    playing.progress = [slot](const Progress& now) {
      slot->step.store(now.step, std::memory_order_relaxed);
      slot->micro_batch.store(now.micro_batch, std::memory_order_relaxed);
      slot->instruction.store(now.instruction.index(), std::memory_order_relaxed);
      slot->waiting.store(now.waiting ? 1 : 0, std::memory_order_relaxed);
      slot->beats.fetch_add(1, std::memory_order_release);
    };
  }
  if (const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
      interface && place.world > 1 && ::if_nametoindex(interface) == 0)
    return reports.bad(error("GLOO_SOCKET_IFNAME={}: this machine has no such network interface", interface));
  // Where to write what is recorded; then memory is counted too.
  const char* const recorded = std::getenv("WEFT_TIMELINE");
  if (recorded) {
    playing.recorded_steps = kRecordedSteps;
    count_memory();
  }
  std::optional<Rendezvous> rendezvous;
  if (place.world == 1 || options.alone) {
    rendezvous.emplace(Rendezvous::in_process());
  } else {
    Result<Rendezvous> met = Rendezvous::over_tcp(place.host, place.port, place.rank, place.world, options.timeout);
    if (!met.ok()) return place.rank == 0 ? reports.bad(met.error()) : reports.failed(met.error());
    rendezvous.emplace(std::move(met).value());
  }
  Result<std::unique_ptr<Executor>> executor = Executor::make(*bundle, self, *rendezvous, values, playing);
  if (!executor.ok()) return reports.failed(executor.error());
  std::optional<Unsharded> one_device;
  if (options.check && place.rank == 0)
    one_device.emplace(
        *bundle, values, bundle->seed,
        [&page] {
          if (!page) return;
          page->of(0).waiting.store(0, std::memory_order_relaxed);
          page->of(0).beats.fetch_add(1, std::memory_order_release);
        },
        *device, done.steps);

  TensorId loss;
  for (TensorId result : bundle->graph.results())
    if (bundle->graph.name(result).ends_with("sums.loss")) loss = result;
  bool good = true;
  const auto first_begun = std::chrono::steady_clock::now();
  const std::int64_t of_step = samples_of_step(*bundle), tokens = of_step * tokens_of_sample(*bundle);
  for (std::int64_t step = done.steps + 1; step <= options.steps; ++step) {
    const StepNumbers numbers{static_cast<double>(step), bundle->learning_rate, 1};
    if (const Status loaded = (*executor)->load(); !loaded.ok()) return reports.failed(loaded.error());
    const auto begun = std::chrono::steady_clock::now();
    if (const Status played = (*executor)->step(numbers); !played.ok()) return reports.failed(played.error());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    const std::optional<double> value = loss.valid() ? (*executor)->result(loss) : std::nullopt;
    reports.step(step, value.value_or(0), took.count());
    if (log)
      if (const Status added = log->add(step, value.value_or(0), took.count(), of_step, tokens); !added.ok())
        return reports.bad(added.error());
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - first_begun;
    if (options.at_most.value > 0 && step >= kLeastSteps && spent.count() > options.at_most.value) break;
    if (options.check) {
      const Result<std::vector<Comparison>> compared =
          check_step(**executor, one_device ? &*one_device : nullptr, *bundle, place.rank, numbers);
      if (!compared.ok()) return reports.failed(compared.error());
      if (const Comparison* const worst = worst_of(*compared)) {
        reports.check(step, *worst);
        good = good && worst->ok();
      }
    }
    const RunFiles& files = options.files;
    if (!files.save.empty() && (step == options.steps || (files.save_every > 0 && step % files.save_every == 0))) {
      const TrainingPosition now{step, done.samples + (step - done.steps) * of_step};
      const Result<std::string> saved = save_checkpoint(**executor, *bundle, place.rank, files.save, now);
      if (!saved.ok()) return reports.failed(saved.error());
      if (!saved->empty()) return reports.bad({*saved});
    }
  }
  if (recorded)
    if (const Status written = write_whole(timeline_file(recorded, place.rank), print((*executor)->timeline()));
        !written.ok())
      return reports.failed(written.error());
  // Only device 0 has compared; without a launcher its exit code is what tells.
  return good || std::getenv("WEFT_REPORTS") ? kDone : kFailed;
}

}  // namespace weft::runtime
