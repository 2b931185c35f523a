// Completion of the command line in bash and zsh.
#include <fmt/format.h>

#include <functional>

#include "cli/described.h"

namespace weft {
namespace {

// Every command, before those below it.
void visit(const DescribedCommand& command, const std::function<void(const DescribedCommand&)>& with) {
  with(command);
  for (const DescribedCommand& each : command.commands) visit(each, with);
}

std::string in_quotes(std::string_view text) {
  std::string made = "'";
  for (const char c : text) made += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return made + "'";
}

// In a specification of _arguments brackets and colons have a meaning.
std::string in_specification(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') made += '\\';
    made += c == '\n' ? ' ' : c;
  }
  return made;
}

std::string function_of(const DescribedCommand& command) {
  std::string name = "_" + command.path;
  for (char& c : name)
    if (c == ' ' || c == '-') c = '_';
  return name;
}

// "model:(a b)", "FILE:_files": what follows an option, or stands in a place.
std::string zsh_value(const DescribedOption& option) {
  if (!option.choices.empty())
    return fmt::format("{}:({})", in_specification(option.value), fmt::join(option.choices, " "));
  if (option.value == "INT" || option.value == "UINT" || option.value == "FLOAT") return option.value + ": ";
  return fmt::format("{}:_files", in_specification(option.value.empty() ? "FILE" : option.value));
}

}  // namespace

std::string bash_completion(const DescribedCommand& weft) {
  std::string paths, values, words;
  visit(weft, [&](const DescribedCommand& command) {
    std::string names, choices;
    for (const DescribedCommand& each : command.commands) {
      names += (names.empty() ? "" : " ") + each.name();
      paths += (paths.empty() ? "" : "|") + in_quotes(each.path);
    }
    std::string options;
    std::vector<std::string> places;  // words that stand without an option
    for (const DescribedOption& option : command.options) {
      if (!option.positional.empty()) places.insert(places.end(), option.choices.begin(), option.choices.end());
      for (const std::string& name : option.names) {
        options += (options.empty() ? "" : " ") + name;
        if (!option.value.empty())
          values += fmt::format("    {}) takes=1; words={} ;;\n", in_quotes(command.path + " " + name),
                                in_quotes(fmt::format("{}", fmt::join(option.choices, " "))));
      }
    }
    words += fmt::format("      {}) options={} commands={} places={} ;;\n", in_quotes(command.path), in_quotes(options),
                         in_quotes(names), in_quotes(fmt::format("{}", fmt::join(places, " "))));
  });
  return fmt::format(R"(# bash completion for weft, made by `weft completion bash`.
_weft() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} path=weft takes= words= options= commands= places= i
  # A word that has a colon or an equals sign is several here: dgx-h100:16.
  if declare -F _get_comp_words_by_ref > /dev/null; then _get_comp_words_by_ref -n := cur prev; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path $prev" in
{}  esac
  if [[ -z $takes ]]; then
    case "$path" in
{}    esac
    words=$commands
    if [[ $cur == -* || -z $commands ]]; then words="$commands $options"; fi
    if [[ $cur != -* && -z $commands ]]; then words=$places; fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if declare -F __ltrim_colon_completions > /dev/null; then __ltrim_colon_completions "$cur"; fi
}}
complete -o default -F _weft weft
)",
                     paths, values, words);
}

std::string zsh_completion(const DescribedCommand& weft) {
  std::string functions;
  visit(weft, [&](const DescribedCommand& command) {
    std::string specifications;
    const auto add = [&](const std::string& specification) {
      specifications += fmt::format(" \\\n    {}", in_quotes(specification));
    };
    for (const DescribedOption& option : command.options) {
      for (const std::string& name : option.names)
        add(fmt::format("{}[{}]{}", name, in_specification(option.description),
                        option.value.empty() ? "" : ":" + zsh_value(option)));
      if (!option.positional.empty()) add("*:" + zsh_value(option));
    }
    if (command.commands.empty()) {
      functions += fmt::format("{}() {{\n  _arguments{}\n}}\n\n", function_of(command), specifications);
      return;
    }
    std::string described, cases;
    for (const DescribedCommand& each : command.commands) {
      const std::string first = each.description.substr(0, each.description.find('\n'));
      described += fmt::format("\n    {}", in_quotes(each.name() + ":" + first));
      cases += fmt::format("        {}) {} ;;\n", each.name(), function_of(each));
    }
    functions += fmt::format(
        "{}() {{\n  local context state state_descr line\n  typeset -A opt_args\n  local -a commands=({}\n  )\n"
        "  _arguments -C{} \\\n    '1:command:->command' \\\n    '*::argument:->argument'\n"
        "  case $state in\n    command) _describe command commands ;;\n    argument)\n      case $line[1] in\n{}"
        "      esac ;;\n  esac\n}}\n\n",
        function_of(command), described, specifications, cases);
  });
  return "#compdef weft\n# zsh completion for weft, made by `weft completion zsh`.\n\n" + functions + "_weft \"$@\"\n";
}

}  // namespace weft
