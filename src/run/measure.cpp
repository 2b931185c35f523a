#include "run/measure.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>

#include "base/read_file.h"
#include "profile/event_list.h"
#include "run/device.h"
#include "run/environment.h"
#include "run/measured_work.h"

namespace weft::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

constexpr double kDeciles = 2.5631031310892007;  // from the first to the last decile of a normal distribution, in σ
constexpr double kMedian = 1.2533141373155;      // standard error of the median over that of the mean, there

constexpr double kRound = 5e-3;  // seconds that a round of computations takes at least

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

enum class Average : std::uint8_t { Median, Mean };

Sample sample_of(std::vector<double> times, Average average) {
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  Sample sample;
  sample.mean_s = std::max(quantile(times, 0.5), 1e-9);  // the clock's step
  if (average == Average::Mean)
    sample.mean_s = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  sample.spread_s = (quantile(times, 0.9) - quantile(times, 0.1)) / kDeciles;
  sample.count = static_cast<std::int64_t>(times.size());
  return sample;
}

class Measuring {
 public:
  Measuring(std::span<const Event> events, int rank, int world, const Rendezvous& rendezvous,
            const MeasureOptions& options, at::Device device)
      : rank_(rank), world_(world), options_(options), device_(device) {
    std::set<std::int64_t> sizes;
    for (const Event& event : events)
      if (is_communication(event) && event.members > 1) sizes.insert(event.members);
    std::vector<GroupKey> groups;
    for (const std::int64_t size : sizes)
      for (int first = 0; first + size <= world; first += static_cast<int>(size))
        groups.push_back(ranks_from(first, static_cast<int>(size), 0));
    if (world > 1) groups.push_back(control_ = ranks_from(0, world, kControlChannel));
    communicator_ = std::make_unique<Communicator>(rendezvous, rank, groups, options.timeout);
  }

  // What the first rank says, everywhere; also a moment when all are here.
  double agreed(double value) { return world_ == 1 ? value : agreed(control_, value); }

  Result<Sample> measure(const Event& event, double limit) {
    if (is_communication(event) && event.members > 1) return communication(event, limit);
    std::function<void()> run;
    if (is_communication(event)) {
      run = communication_of(event, *communicator_, {}, rank_);
    } else {
      WEFT_TRY(run, computation_of(event, options_.numbers, device_));
    }
    agreed(0);
    // All go through a round side by side; it is long against the time that they begin and end apart.
    return repeated(
        limit, Average::Median, [&](double value) { return agreed(value); },
        [&](std::int64_t runs) {
          std::vector<double> times;
          const auto begun = Clock::now();
          while (std::ssize(times) < runs || seconds_since(begun) < kRound) {
            const std::vector<double> more =
                device_times(device_, run, std::max<std::int64_t>(runs - std::ssize(times), 1));
            times.insert(times.end(), more.begin(), more.end());
          }
          return times;
        });
  }

 private:
  static GroupKey ranks_from(int first, int count, int channel) {
    GroupKey key;
    for (int i = 0; i < count; ++i) key.devices.push_back(first + i);
    key.channel = channel;
    return key;
  }
  static double timed(const std::function<void()>& run) {
    const auto begun = Clock::now();
    run();
    return seconds_since(begun);
  }

  double agreed(const GroupKey& group, double value) {
    const at::Tensor said = at::zeros({1}, at::TensorOptions(at::kDouble));
    if (rank_ == group.devices.front()) said.fill_(value);
    communicator_->all_reduce(group, said, Communicator::Reduction::Sum)->wait();
    return said.item().toDouble();
  }

  // A round to warm up, then rounds until the median is known or the time is over. Rank 0 says how many runs at least
  // the next one has; `agree` tells the others, which go on until it has enough.
  template <class Agree, class Round>
  Sample repeated(double limit, Average average, const Agree& agree, const Round& round) {
    const auto begun = Clock::now();
    round(2);
    std::vector<double> times;
    std::int64_t runs = static_cast<std::int64_t>(agree(static_cast<double>(options_.least_runs)));
    while (runs > 0) {
      const std::vector<double> more = round(runs);
      times.insert(times.end(), more.begin(), more.end());
      const Sample now = sample_of(times, average);  // rank 0's decides
      const double error =
          kMedian * now.spread_s / std::sqrt(static_cast<double>(std::max<std::int64_t>(now.count, 1))) / now.mean_s;
      const bool enough =
          error <= options_.precision || now.count >= options_.most_runs || seconds_since(begun) > limit;
      const std::int64_t next = enough ? 0 : std::clamp<std::int64_t>(now.count, 1, 64);
      runs = static_cast<std::int64_t>(agree(static_cast<double>(next)));
    }
    return sample_of(times, average);
  }

  // What a step has between two communications: they find threads asleep and caches full of other things, and sometimes a
  // core that is not given back to them at once. Some tenths of a millisecond.
  void compute_between() {
    if (!factor_.defined()) factor_ = at::full({256, 256}, 0.5, at::TensorOptions(at::kFloat));
    for (int i = 0; i < 4; ++i) product_ = factor_.mm(factor_);
  }

  // All ranks, in groups of that size, at the same time, as the groups of a run are; what does not fill one waits.
  Sample communication(const Event& event, double limit) {
    const int size = static_cast<int>(event.members), first = rank_ / size * size;
    const bool takes_part = first + size <= world_;
    const GroupKey group = takes_part ? ranks_from(first, size, 0) : GroupKey{};
    const std::function<void()> run = takes_part ? communication_of(event, *communicator_, group, rank_) : nullptr;
    // The mean: what now and then takes long is part of every step.
    return repeated(
        limit, Average::Mean, [&](double value) { return agreed(value); },
        [&](std::int64_t runs) {
          std::vector<double> times;
          if (!takes_part) return times;
          // Begins and ends by this machine's clock. A communication begins when its last member does.
          const at::Tensor begins = at::empty({runs}, at::TensorOptions(at::kDouble));
          auto* const begun = static_cast<double*>(begins.data_ptr());
          std::vector<double> ended;
          agreed(group, 0);
          for (std::int64_t i = 0; i < runs; ++i) {
            compute_between();
            begun[i] = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
            run();
            ended.push_back(std::chrono::duration<double>(Clock::now().time_since_epoch()).count());
          }
          communicator_->all_reduce(group, begins, Communicator::Reduction::Max)->wait();
          for (std::int64_t i = 0; i < runs; ++i)
            times.push_back(std::max(ended[static_cast<std::size_t>(i)] - begun[i], 1e-9));
          return times;
        });
  }

  const int rank_, world_;
  const MeasureOptions options_;
  const at::Device device_;  // of computations; communications are Gloo's
  GroupKey control_;
  std::unique_ptr<Communicator> communicator_;
  at::Tensor factor_, product_;
};

// One line for one event, for messages.
std::string named(const Event& event) {
  return is_communication(event)
             ? fmt::format("{} of {} bytes among {}", event.op, event.bytes, event.members)
             : fmt::format("{} {} {} {} {}", event.op, event.attributes, event.shapes, event.direction, event.part);
}

}  // namespace

Result<std::size_t> measure_events(std::span<const Event> events, int rank, int world, const Rendezvous& rendezvous,
                                   const MeasureOptions& options,
                                   const std::function<void(std::size_t, const Sample&)>& report) {
  for (const Event& event : events)
    if (event.members > world) return error("{}: needs {} ranks, and {} measure", named(event), event.members, world);
  WEFT_TRY(const at::Device device, device_named(options.device, rank));
  work_on(device);
  std::size_t at = 0;
  try {
    Measuring measuring(events, rank, world, rendezvous, options, device);
    const auto begun = Clock::now();
    for (; at < events.size(); ++at) {
      // An even share of what is left of the budget; nothing: it is over.
      const double left = options.budget.value - seconds_since(begun);
      const double limit = measuring.agreed(left <= 0 ? 0 : left / static_cast<double>(events.size() - at));
      if (limit <= 0) break;
      const Result<Sample> sample = measuring.measure(events[at], limit);
      if (!sample.ok()) return error("{}: {}", named(events[at]), sample.error().message);
      if (rank == 0) report(at, *sample);
    }
  } catch (const std::exception& problem) {
    const std::string what = problem.what();
    return error("{}: {}", at < events.size() ? named(events[at]) : "meeting", what.substr(0, what.find('\n')));
  }
  return at;
}

int measure_rank(const std::string& path, const MeasureOptions& options) {
  const Result<std::optional<RankPlace>> found = place_in([](const char* name) { return std::getenv(name); });
  const RankPlace place = found.ok() ? found->value_or(RankPlace{}) : RankPlace{};
  const auto fail = [&](int code, const Error& error) {
    if (place.rank == 0 || code != 2) fmt::print(stderr, "weft: rank {}: {}\n", place.rank, error.message);
    return code;
  };
  if (!found.ok()) return fail(2, found.error());
  constexpr FileKind kList{"a list of events", 64 << 20};
  const Result<std::string> text = read_file(path, kList);
  if (!text.ok()) return fail(2, text.error());
  const Result<std::vector<Event>> events = parse_events(*text, path);
  if (!events.ok()) return fail(2, events.error());
  if (const char* const threads = std::getenv("OMP_NUM_THREADS")) at::set_num_threads(std::max(1, std::atoi(threads)));
  std::optional<Rendezvous> rendezvous;
  if (place.world == 1) {
    rendezvous.emplace(Rendezvous::in_process());
  } else {
    Result<Rendezvous> met = Rendezvous::over_tcp(place.host, place.port, place.rank, place.world, options.timeout);
    if (!met.ok()) return fail(1, met.error());
    rendezvous.emplace(std::move(met).value());
  }
  const Result<std::size_t> measured =
      measure_events(*events, place.rank, place.world, *rendezvous, options, [](std::size_t at, const Sample& sample) {
        fmt::print("sample {} {} {} {}\n", at, sample.mean_s, sample.spread_s, sample.count);
        std::fflush(stdout);
      });
  return measured.ok() ? 0 : fail(1, measured.error());
}

}  // namespace weft::runtime
