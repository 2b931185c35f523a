#include "measure/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

namespace weft {
namespace {

constexpr std::int64_t kSide = 1024;                       // of the product's square factors
constexpr std::int64_t kElements = std::int64_t{1} << 22;  // of the terms that are added: 48 MiB go through memory
constexpr std::array<std::int64_t, 5> kMessages = {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20};  // bytes

Event product() {
  return {.op = "linear",
          .shapes = fmt::format("f32[{0},{0}] f32[{0},{0}]", kSide),
          .dtype = "f32",
          .direction = "forward"};
}
Event pass() {
  return {.op = "binary",
          .attributes = print(Attrs{{"fn", "add"}}),
          .shapes = fmt::format("f32[{0}] f32[{0}]", kElements),
          .dtype = "f32",
          .direction = "forward"};
}
Event message(std::int64_t bytes) {
  return {.op = "transfer", .dtype = "f32", .bytes = bytes, .members = 2, .most_per_node = 2};
}

std::string after_colon(const std::string& line) {
  const std::size_t at = line.find(':');
  const std::size_t begin = at == std::string::npos ? at : line.find_first_not_of(" \t", at + 1);
  return begin == std::string::npos ? "" : line.substr(begin);
}

// "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz": Intel Xeon Platinum 8481C.
std::string plain(std::string model) {
  model = model.substr(0, model.find('@'));
  for (const char* noise : {"(R)", "(TM)", "(r)", "(tm)", " CPU", " Processor"})
    for (std::size_t at = model.find(noise); at != std::string::npos; at = model.find(noise))
      model.erase(at, std::char_traits<char>::length(noise));
  while (!model.empty() && model.back() == ' ') model.pop_back();
  return model.empty() ? "processor" : model;
}

}  // namespace

Machine this_machine(int threads) {
  Machine machine;
  std::string model;
  std::ifstream processors("/proc/cpuinfo");
  for (std::string line; model.empty() && std::getline(processors, line);)
    if (line.starts_with("model name") || line.starts_with("Model")) model = after_colon(line);
  model = plain(model);
  for (char c : model)
    if (std::isalnum(static_cast<unsigned char>(c)))
      machine.name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  // One word for the processor, as names that begin with the same word are the same device.
  machine.name += threads == 1 ? "-core" : fmt::format("{0}-{0}threads", threads);
  machine.title = fmt::format("{}, {} thread{}", model, threads, threads == 1 ? "" : "s");
  machine.cores = static_cast<int>(std::max<long>(1, ::sysconf(_SC_NPROCESSORS_ONLN)));
  machine.memory = Bytes{static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE)};
  return machine;
}

Result<Machine> this_gpu() {
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(
      ::popen("nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2> /dev/null", "r"), close);
  char line[256] = "";
  if (!pipe || !std::fgets(line, sizeof line, pipe.get())) return error("--device cuda: nvidia-smi finds no GPU here");
  Machine machine;  // "NVIDIA H200, 143771", in MiB
  machine.title = line;
  const std::size_t comma = machine.title.find(',');
  if (comma == std::string::npos) return error("--device cuda: nvidia-smi says '{}'", machine.title);
  machine.memory = Bytes{std::atoll(machine.title.c_str() + comma + 1) << 20};
  machine.title.resize(comma);
  const std::string product =
      machine.title.starts_with("NVIDIA ") ? machine.title.substr(std::strlen("NVIDIA ")) : machine.title;
  for (char c : product.substr(0, product.find(' ')))
    if (std::isalnum(static_cast<unsigned char>(c)))
      machine.name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return machine;
}

std::string measuring_stack(int ranks) { return fmt::format("weft, {} rank{} at once", ranks, ranks == 1 ? "" : "s"); }

namespace {

// The number in measuring_stack; 0: another stack.
std::int64_t ranks_at_once(std::string_view stack) {
  constexpr std::string_view kPrefix = "weft, ";
  return stack.starts_with(kPrefix) ? std::atoll(std::string(stack.substr(kPrefix.size())).c_str()) : 0;
}

}  // namespace

void keep_nearest_load(std::vector<MeasuredEvent>& profile, std::int64_t ranks) {
  const auto without_load = [](Event event) {
    event.stack.clear();
    return event;
  };
  const auto nearer = [&](std::int64_t a, std::int64_t b) {  // whether a is
    if ((a >= ranks) != (b >= ranks)) return a >= ranks;
    return a >= ranks ? a < b : a > b;
  };
  std::map<Event, std::int64_t> best;
  for (const MeasuredEvent& each : profile)
    if (const std::int64_t load = ranks_at_once(each.event.stack); load > 0) {
      const auto [found, added] = best.try_emplace(without_load(each.event), load);
      if (!added && nearer(load, found->second)) found->second = load;
    }
  std::erase_if(profile, [&](const MeasuredEvent& each) {
    const std::int64_t load = ranks_at_once(each.event.stack);
    return load > 0 && best.at(without_load(each.event)) != load;
  });
}

std::vector<Event> machine_probes(int ranks) {
  std::vector<Event> probes = {product(), pass()};
  if (ranks > 1)
    for (const std::int64_t bytes : kMessages) probes.push_back(message(bytes));
  return probes;
}

Result<std::string> cluster_file(const Machine& machine, int ranks, const std::vector<MeasuredEvent>& profile) {
  const auto sample = [&](const Event& probe) -> Result<Sample> {
    for (const MeasuredEvent& each : profile) {
      Event bare = each.event;
      if (bare.device != machine.name || bare.stack != measuring_stack(ranks)) continue;
      bare.device = bare.stack = bare.variant = bare.cache = "";
      if (bare == probe) return pooled(each.samples);
    }
    return error("no {} {}{} of {} in the profile", probe.op, probe.shapes,
                 probe.bytes > 0 ? fmt::format("of {} bytes", probe.bytes) : "", machine.name);
  };
  WEFT_TRY(const Sample product_time, sample(product()));
  WEFT_TRY(const Sample pass_time, sample(pass()));
  constexpr double kCubed = static_cast<double>(kSide) * kSide * kSide;
  const double rate = 2 * kCubed / product_time.mean_s, bandwidth = 12.0 * kElements / pass_time.mean_s;
  double link = bandwidth / 2, latency = 50e-6;
  std::string link_source = "estimate: half of the memory bandwidth; a profile of two ranks measures it";
  if (ranks > 1) {
    WEFT_TRY(const Sample least, sample(message(kMessages.front())));
    WEFT_TRY(const Sample large, sample(message(kMessages.back())));
    link = static_cast<double>(kMessages.back()) / std::max(large.mean_s - least.mean_s, large.mean_s / 10);
    latency = least.mean_s;
    link_source =
        fmt::format("measured: all-to-alls of Gloo between two of {} ranks, {} and {} bytes, the least of both ends",
                    ranks, kMessages.front(), kMessages.back());
  }
  const std::string measured =
      fmt::format("measured by weft profile measure on {} rank{} at once", ranks, ranks == 1 ? "" : "s");
  const std::string memory = exact(Bytes{std::max<std::int64_t>(1, machine.memory.value / machine.cores)});
  std::string text = fmt::format(
      "# This machine, as measured through weft run's kernels and communicators.\n"
      "devices:\n"
      "  {0}:\n"
      "    title: \"{1}\"\n"
      "    architecture: {2}\n"
      "    memory: [{3}, \"the machine's memory, shared by its cores\"]\n"
      "    memory_usable: [{3}, \"the machine's memory, shared by its cores\"]\n"
      "    memory_bandwidth: [{4}, \"{5}: two terms of {6} fp32 numbers added\"]\n"
      "    compute_units: [1, \"one thread\"]\n"
      "    copy_engines: [0, \"one thread\"]\n"
      "    peak:\n"
      "      fp32: [{7}, \"{5}: a product of {8} x {8} x {8}\"]\n",
      machine.name, machine.title, "x86-64", memory, exact(BytesPerSecond{bandwidth}), measured, kElements,
      exact(FlopsPerSecond{rate}), kSide);
  text += fmt::format(
      "links:\n"
      "  gloo-loopback: {{kind: memory, bandwidth: [{}, \"{}\"], latency: [{}, \"half of a message's: it crosses "
      "two\"]}}\n",
      exact(BytesPerSecond{link}), link_source, exact(Seconds{latency / 2}));
  text += fmt::format(
      "nodes:\n"
      "  this-machine:\n"
      "    title: \"{} core{}, {}\"\n"
      "    source: \"/proc/cpuinfo\"\n"
      "    vertices: {{core0..{}: {}, socket0: socket}}\n"
      "    wires:\n"
      "      - [core0..{}, socket0, gloo-loopback]\n"
      "    fabric: {{kind: switch}}\n"
      "cluster:\n"
      "  groups:\n"
      "    - {{node: this-machine, count: 1}}\n",
      std::max(machine.cores, ranks), machine.cores == 1 ? "" : "s", machine.title, std::max(machine.cores, ranks) - 1,
      machine.name, std::max(machine.cores, ranks) - 1);
  return text;
}

}  // namespace weft
