#include "cli/described.h"

#include <CLI/CLI.hpp>

#include "cluster/cluster.h"
#include "models/models.h"
#include "search/find_plan.h"
#include "strategy/stack.h"

namespace weft {
namespace {

// The library knows these words; the parser takes any text for them.
std::vector<std::string> choices_of(const std::string& option) {
  if (option == "--model" || option == "model") return model_names();
  if (option == "--cluster" || option == "cluster") return cluster_preset_names();
  if (option == "--stack") return stack_names();
  if (option == "--search") return {kSearchNames.begin(), kSearchNames.end()};
  if (option == "--cost") return {"analytic", "measured", "symbolic"};
  if (option == "--network") return {"fair", "fifo"};
  return {};
}

DescribedOption describe_option(const CLI::Option& option) {
  DescribedOption made;
  for (const std::string& name : option.get_snames()) made.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) made.names.push_back("--" + name);
  if (option.get_positional()) made.positional = option.get_name(true);
  if (option.get_items_expected_max() > 0) made.value = option.get_type_name();
  made.description = option.get_description();
  made.required = option.get_required();
  for (const std::string& name : made.names)
    if (made.choices.empty()) made.choices = choices_of(name);
  if (made.names.empty()) made.choices = choices_of(made.positional);
  return made;
}

}  // namespace

DescribedCommand describe(const CLI::App& app, const std::string& path) {
  DescribedCommand made{path, app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    made.options.push_back(describe_option(*option));
    // "TEXT:{table,text,dot}": the words that the parser itself checks.
    std::string& value = made.options.back().value;
    const std::size_t from = value.find(":{"), to = value.find('}');
    if (from == std::string::npos || to == std::string::npos) continue;
    for (std::size_t at = from + 2; at < to;) {
      const std::size_t end = std::min(value.find(',', at), to);
      made.options.back().choices.push_back(value.substr(at, end - at));
      at = end + 1;
    }
    value.resize(from);
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    made.commands.push_back(describe(*command, path + " " + command->get_name()));
  return made;
}

}  // namespace weft
