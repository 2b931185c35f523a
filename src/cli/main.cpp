#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "ask/build.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "cli/commands.h"

namespace weft {
namespace {

constexpr const char* kDescription =
    "Weft finds how to train a model on a cluster and predicts every device's time and memory.\n\n"
    "  weft plan --model llama3-70b --cluster dgx-h100:16\n"
    "                                       the best strategy, and what others lose to it\n"
    "  weft show model llama3-70b           parameters, FLOPs, activations and the module tree of a model\n"
    "  weft show cluster dgx-h100:16        devices, links and fabric of a cluster\n"
    "  weft show strategy --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1\n"
    "                                       a plan: where ranks sit, how layers are split, what is sent and held\n"
    "  weft show program ...                the same plan, instruction by instruction\n"
    "  weft simulate ...                    the same plan in simulated time: step time, MFU, memory, a trace\n"
    "  weft compare PLAN PLAN               two plans: what differs, and where time and memory go\n"
    "  weft run ... --ranks 4 --steps 5     the same plan for real, ranks as processes of this machine\n"
    "  weft export plan.json --to megatron  the same plan as a launch script of a trainer\n"
    "  weft validate runs.csv               predictions against measured runs\n"
    "  weft calibrate runs.csv --out C.yaml constants of devices, links and stacks fitted to measured runs\n"
    "  weft profile import --db h200.db operators.csv       measured operators, for simulate --cost measured\n"
    "  weft show models | clusters          what there is to choose from\n"
    "  weft doctor                          what of weft is there on this machine, and what works\n";

// Suggests the nearest command: an unknown one is mostly a misspelling.
std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(command->get_name());
  return fmt::format("unknown command '{}'{}", word, did_you_mean(word, known));
}

// The command the user was in when parsing ended, and its name as typed: "weft show model".
std::pair<const CLI::App*, std::string> chosen_command(const CLI::App& app) {
  const CLI::App* command = &app;
  std::string path = "weft";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  return {command, path};
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "weft");
  app.require_subcommand(1);
  app.set_version_flag("--version", describe(build_facts()));
  Chosen chosen;
  add_plan(app, chosen);
  add_show(app, chosen);
  add_simulate(app, chosen);
  add_compare(app, chosen);
  add_run(app, chosen);
  add_export(app, chosen);
  add_validate(app, chosen);
  add_calibrate(app, chosen);
  add_profile(app, chosen);
  add_doctor(app, chosen);
  add_completion(app, chosen);
  add_man(app, chosen);
  if (argc == 1) return print_text(app.help());
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto [command, path] = chosen_command(app);
    const std::size_t parent = path.rfind(' ');  // CLI11 adds the command's own name itself
    return print_text(command->help(parent == std::string::npos ? "" : path.substr(0, parent)));
  } catch (const CLI::CallForVersion&) {
    return print_text(app.version());
  } catch (const CLI::ParseError& problem) {
    const auto [command, path] = chosen_command(app);
    const std::vector<std::string> rest = app.remaining(true);
    std::string message = problem.what();
    if (const std::string prefix = "Could not convert: "; message.rfind(prefix, 0) == 0)
      message = message.substr(prefix.size()) + ": not a number";
    const bool has_commands = !command->get_subcommands([](const CLI::App*) { return true; }).empty();
    const bool misspelt = has_commands && !rest.empty() && rest.front().rfind("-", 0) != 0;
    return report(
        {fmt::format("{}\nTry '{} --help'.", misspelt ? unknown_command(*command, rest.front()) : message, path)});
  }
  return chosen ? chosen() : print_text(app.help());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::hold_standard_streams();
  weft::keep_freed_memory();
  return weft::run(argc, argv);
}
