// weft-rank BUNDLE [--steps N] [--check] [--data TOKENS] [--save DIR] [--save-every N] [--resume] [--load DIR]
// [--log FILE] [--device cpu|cuda] [--backend gloo|nccl] [--timeout SECONDS]: one rank of a run. `weft run` starts as many
// as it needs; torchrun --no-python, mpirun and srun can too.
// weft-rank --measure EVENTS [--budget SECONDS] [--device cpu|cuda]: one of the ranks that measure a list of events
// (run/measure.h).
// weft-rank --facts: the libraries and devices that it can use.
#include <fmt/format.h>
#include <malloc.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "run/facts.h"
#include "run/measure.h"
#include "run/rank.h"

int main(int argc, char** argv) {
  // Memory that is freed is used again by the next step; giving it back to the system would cost a page fault for every
  // 4 KiB of every large tensor.
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
  std::signal(SIGPIPE, SIG_IGN);  // a peer that died is an error of the collective, not this rank's end
  if (argc >= 3 && std::string_view(argv[1]) == "--measure") {
    weft::runtime::MeasureOptions measuring;
    for (int i = 3; i + 1 < argc; i += 2)
      if (std::string_view(argv[i]) == "--budget")
        measuring.budget = weft::Seconds{std::atof(argv[i + 1])};
      else if (std::string_view(argv[i]) == "--device")
        measuring.device = argv[i + 1];
    return weft::runtime::measure_rank(argv[2], measuring);
  }
  if (argc == 2 && std::string_view(argv[1]) == "--facts") {
    fmt::print("{}\n", weft::runtime::facts());
    return 0;
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  weft::runtime::RankOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--steps" && i + 1 < argc)
      options.steps = std::atoll(argv[++i]);
    else if (word == "--timeout" && i + 1 < argc)
      options.timeout = weft::Seconds{std::atof(argv[++i])};
    else if (word == "--data" && i + 1 < argc)
      options.data = argv[++i];
    else if (word == "--save" && i + 1 < argc)
      options.files.save = argv[++i];
    else if (word == "--save-every" && i + 1 < argc)
      options.files.save_every = std::atoll(argv[++i]);
    else if (word == "--load" && i + 1 < argc)
      options.files.load = argv[++i];
    else if (word == "--log" && i + 1 < argc)
      options.files.log = argv[++i];
    else if (word == "--resume")
      options.files.resume = true;
    else if (word == "--device" && i + 1 < argc)
      options.device = argv[++i];
    else if (word == "--backend" && i + 1 < argc)
      options.backend = argv[++i];
    else if (word == "--for" && i + 1 < argc)
      options.at_most = weft::Seconds{std::atof(argv[++i])};
    else if (word == "--alone" && i + 1 < argc)
      options.alone = std::atoi(argv[++i]);
    else if (word == "--check")
      options.check = true;
    else if (word == "--remove-bundle")
      options.remove_bundle = true;
    else if (!word.starts_with('-') && options.bundle.empty())
      options.bundle = word;
    else
      options.bundle.clear(), i = argc;
  }
  if (options.bundle.empty() || options.steps < 1 || !(options.timeout.value > 0)) {
    fmt::print(stderr,
               "usage: weft-rank BUNDLE [--steps N] [--check] [--data TOKENS] [--save DIR] [--save-every N] [--resume] "
               "[--load DIR] [--log FILE] [--device cpu|cuda] [--backend gloo|nccl] [--timeout SECONDS]\n");
    return 2;
  }
  return weft::runtime::run_rank(options);
}
