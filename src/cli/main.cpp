#include <fmt/format.h>

#include <cstdio>

#include "base/suggest.h"
#include "cli/commands.h"

namespace weft {

int report(const Error& error) {
  fmt::print(stderr, "weft: {}\n", error.message);
  return kBadInput;
}

int say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return kDone;
}

namespace {

constexpr const char* kDescription =
    "Weft finds how to train a model on a cluster and predicts every device's time and memory.\n\n"
    "  weft show model llama3-70b           parameters, FLOPs, activations and the module tree of a model\n"
    "  weft show cluster dgx-h100:16        devices, links and fabric of a cluster\n"
    "  weft show models | clusters          what there is to choose from\n";

// A wrong sub-command is a misspelling more often than not.
std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) known.push_back(command->get_name());
  return fmt::format("unknown command '{}'{}", word, did_you_mean(word, known));
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "weft");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("weft ") + WEFT_VERSION);
  app.failure_message(CLI::FailureMessage::simple);
  Action action;
  add_show(app, action);
  if (argc == 1) return say(app.help());
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* deepest = &app;
    while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands().front();
    return say(deepest->help());
  } catch (const CLI::CallForAllHelp&) {
    return say(app.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForVersion&) {
    return say(app.version() + "\n");
  } catch (const CLI::ParseError& problem) {
    const CLI::App* deepest = &app;
    while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands().front();
    const std::vector<std::string> rest = app.remaining(true);
    const bool misspelt = !rest.empty() && rest.front().rfind("-", 0) != 0 && !deepest->get_subcommands([](const CLI::App*) { return true; }).empty();
    return report({fmt::format("{}\nTry '{} --help'.", misspelt ? unknown_command(*deepest, rest.front()) : problem.what(),
                               deepest == &app ? std::string("weft") : "weft " + deepest->get_display_name())});
  }
  return action ? action() : say(app.help());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::run(argc, argv); }
