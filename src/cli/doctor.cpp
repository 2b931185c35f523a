// weft doctor: what is there, what is optional, and what each part enables.
#include <dlfcn.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "ask/build.h"
#include "ask/simulation.h"
#include "cli/commands.h"
#include "cluster/cluster.h"
#include "models/models.h"
#include "report/table.h"
#include "run/launch.h"

namespace weft {
namespace {

// Broken: there, and does not work. Absent: an optional part that is not there.
enum class Health { Good, Absent, Broken };
constexpr std::array<std::string_view, 3> kHealthNames = {"ok", "absent", "broken"};

struct Finding {
  std::string part;
  Health health = Health::Good;
  std::string found;    // what is there, or why not
  std::string enables;  // the commands that need it
};

struct ProgramEnd {
  std::string text;  // of stdout and stderr
  int code = -1;
};

std::string in_shell(std::string_view word) {
  std::string made = "'";
  for (const char c : word) made += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return made + "'";
}

ProgramEnd run_program(const std::string& words) {
  ProgramEnd end;
  std::FILE* pipe = ::popen(fmt::format("exec 2>&1 < /dev/null; {}", words).c_str(), "r");
  if (!pipe) return end;
  std::array<char, 4096> piece;
  while (const std::size_t read = std::fread(piece.data(), 1, piece.size(), pipe)) end.text.append(piece.data(), read);
  const int status = ::pclose(pipe);
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  while (!end.text.empty() && end.text.back() == '\n') end.text.pop_back();
  return end;
}

std::string last_line(const std::string& text) {
  const std::size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

Finding planning() {
  Finding finding{"planning", Health::Good, "", "plan, simulate, show, validate, calibrate"};
  const SimulationRequest request{
      .plan = {
          .model = "gpt2-124m:layers=1", .cluster = "dgx-a100:1", .strategy = "dp=8", .global_batch = 8, .seq = 32}};
  Result<SettledSimulation> settled = settle_simulation(request);
  const Result<Simulation> played =
      settled.ok() ? simulate(std::move(settled).value()) : Result<Simulation>(settled.error());
  if (!played.ok()) return {finding.part, Health::Broken, played.error().message, finding.enables};
  finding.found = fmt::format("{} models, {} kinds of nodes, {} of devices; config.json and ONNX files",
                              model_names().size(), cluster_preset_names().size(), device_preset_names().size());
  return finding;
}

Finding profiles() {
  return {"profiles", Health::Good, fmt::format("SQLite {}", sqlite3_libversion()), "profile, --cost measured"};
}

Finding rank_program_found() {
  Finding finding{"weft-rank", Health::Absent, "", "run, profile measure"};
  const Result<std::string> path = runtime::rank_program();
  if (!path.ok()) {
    finding.found = path.error().message;
    return finding;
  }
  const ProgramEnd end = run_program(in_shell(*path) + " --facts");
  const nlohmann::json facts = nlohmann::json::parse(end.text, nullptr, false);
  if (end.code != 0 || !facts.is_object()) {
    finding.health = Health::Broken;
    finding.found = fmt::format("{} does not start: {}", *path, last_line(end.text));
    return finding;
  }
  finding.health = Health::Good;
  finding.found = fmt::format("libtorch {}, Gloo{}, {} GPUs, {} cores", facts.value("libtorch", "?"),
                              facts.value("nccl", false) ? ", NCCL" : "", facts.value("gpus", 0),
                              std::thread::hardware_concurrency());
  return finding;
}

// By the driver's own interface, which is there wherever a GPU can be used.
Finding gpus() {
  Finding finding{"GPUs", Health::Absent, "no NVIDIA driver (libcuda.so.1)", "run and profile with --device cuda"};
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return finding;
  const auto initialise = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count_devices = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  const auto name_device = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  int count = 0;
  if (!initialise || !count_devices || !name_device || initialise(0) != 0 || count_devices(&count) != 0 || count == 0) {
    finding.found = "a driver, and no GPU that it can use";
    return finding;
  }
  std::array<char, 256> name{};
  name_device(name.data(), static_cast<int>(name.size()) - 1, 0);
  return {finding.part, Health::Good, fmt::format("{} × {}", count, name.data()), finding.enables};
}

Finding module_of(const std::string& python) {
  Finding finding{"Python", Health::Absent, "", "import weft: notebooks, sweeps"};
  const ProgramEnd end = run_program(
      python +
      " -c 'import sys\n"
      "try:\n"
      "    import weft\n"
      "except ModuleNotFoundError as problem:\n"
      "    if problem.name != \"weft\": raise\n"
      "    print(sys.executable, \"has no module weft: install the package, or pip install .\")\n"
      "    sys.exit(3)\n"
      "from importlib.util import find_spec\n"
      "has = [name for name in (\"numpy\", \"pandas\") if find_spec(name)]\n"
      "print(\"weft\", weft.__version__, \"in\", sys.executable, \"with\", \" and \".join(has) or \"no numpy\")'");
  finding.found = last_line(end.text);
  finding.health = end.code == 0 ? Health::Good : end.code == 3 || end.code == 127 ? Health::Absent : Health::Broken;
  if (finding.health == Health::Good && finding.found.rfind("weft " + build_facts().version + " ", 0) != 0) {
    finding.health = Health::Broken;
    finding.found += fmt::format("; this is weft {}", build_facts().version);
  }
  return finding;
}

// Of the python3 that the shell finds, or else of Debian's, for which packages are made.
Finding python() {
  Finding found = module_of("python3");
  if (found.health != Health::Absent) return found;
  Finding debian = module_of("/usr/bin/python3");
  return debian.health == Health::Absent ? found : debian;
}

Answer examine(bool as_json) {
  const std::vector<Finding> findings = {planning(), profiles(), rank_program_found(), gpus(), python()};
  Answer answer;
  Table table{{{}, {}, {.most = 60}, {}}};
  nlohmann::json json = {{"build", to_json(build_facts())}, {"parts", nlohmann::json::array()}};
  for (const Finding& each : findings) {
    const std::string health(kHealthNames[static_cast<std::size_t>(each.health)]);
    answer.feasible = answer.feasible && each.health != Health::Broken;
    table.add({each.part, health, each.found, each.enables});
    json["parts"].push_back(
        {{"part", each.part}, {"health", health}, {"found", each.found}, {"enables", each.enables}});
  }
  json["ok"] = answer.feasible;
  answer.text = as_json ? to_text(json) : describe(build_facts()) + "\n" + table.print();
  return answer;
}

}  // namespace

void add_doctor(CLI::App& app, Chosen& chosen) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "What is there, what is optional, and what each part enables.");
  command->footer(
      "\nParts that are absent are optional. The exit code is 1 if a part is there and does not work.\n"
      "\nExamples:\n"
      "  weft doctor\n"
      "  weft doctor --json\n");
  command->add_flag("--json", *json, "one JSON object");
  command->callback([json, &chosen] { chosen = [json] { return finish(Result<Answer>(examine(*json))); }; });
}

}  // namespace weft
