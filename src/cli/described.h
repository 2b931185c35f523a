// The command line as data: what man pages and completions are made of, read from the parser itself.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft {

struct DescribedOption {
  std::vector<std::string> names;  // "--model", "-h"; none: it has a place, not a name
  std::string positional;          // "plan"; empty: it has a name only
  std::string value;               // "TEXT"; empty: a flag
  std::string description;
  std::vector<std::string> choices;  // words it can be, where there is a list of them
  bool required = false;
};

struct DescribedCommand {
  std::string path;  // "weft show model"
  std::string description, footer;
  std::vector<DescribedOption> options;
  std::vector<DescribedCommand> commands;

  std::string name() const { return path.substr(path.rfind(' ') + 1); }
};
DescribedCommand describe(const CLI::App& app, const std::string& path);

// troff, section 1; and its file: "weft-show-model".
std::string man_page(const DescribedCommand& command);
std::string page_name(const DescribedCommand& command);

// A script that completes `weft` in the shell.
std::string bash_completion(const DescribedCommand& weft);
std::string zsh_completion(const DescribedCommand& weft);

}  // namespace weft
