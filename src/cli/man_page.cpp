// Man pages in troff's man macros.
#include <fmt/format.h>

#include <algorithm>

#include "ask/build.h"
#include "cli/described.h"

namespace weft {
namespace {

// Text as troff prints it: nothing in it is a command.
std::string troff(std::string_view text) {
  std::string made;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) made += "\\&";
    begins = c == '\n';
    if (c == '\\')
      made += "\\e";
    else if (c == '-')
      made += "\\-";
    else
      made += c;
  }
  return made;
}

std::string names_of(const DescribedOption& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
  if (names.empty()) return option.positional;
  return option.positional.empty() ? names : fmt::format("{}, {}", option.positional, names);
}

std::string synopsis(const DescribedCommand& command) {
  std::string text = command.path;
  if (!command.commands.empty()) text += " COMMAND";
  for (const DescribedOption& option : command.options)
    if (option.required)
      text +=
          option.positional.empty() ? fmt::format(" {} {}", names_of(option), option.value) : " " + option.positional;
  return text + (command.options.empty() ? "" : " [OPTIONS]");
}

// Paragraphs as they are laid out for a terminal.
std::string as_printed(std::string_view text) {
  if (text.empty()) return "";
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return fmt::format(".nf\n{}\n.fi\n", troff(text));
}

}  // namespace

std::string page_name(const DescribedCommand& command) {
  std::string name = command.path;
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string man_page(const DescribedCommand& command) {
  const std::string summary = command.description.substr(0, command.description.find('\n'));
  std::string page =
      fmt::format(".TH {} 1 \"\" \"weft {}\" \"User Commands\"\n", troff(page_name(command)), build_facts().version);
  page += fmt::format(".SH NAME\n{} \\- {}\n", troff(page_name(command)), troff(summary));
  page += fmt::format(".SH SYNOPSIS\n.B {}\n", troff(synopsis(command)));
  if (command.description.size() > summary.size())
    page += ".SH DESCRIPTION\n" + as_printed(command.description.substr(summary.size()));
  if (!command.commands.empty()) {
    page += ".SH COMMANDS\n";
    for (const DescribedCommand& each : command.commands)
      page += fmt::format(".TP\n.BR {} (1)\n{}\n", troff(page_name(each)),
                          troff(each.description.substr(0, each.description.find('\n'))));
  }
  page += ".SH OPTIONS\n";
  for (const DescribedOption& option : command.options)
    page += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", troff(names_of(option)),
                        option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", troff(option.value)),
                        troff(option.description));
  if (!command.footer.empty()) page += ".SH NOTES\n" + as_printed(command.footer);
  page +=
      ".SH EXIT STATUS\n0: done. 1: no feasible plan, a failed check, or an answer that could not be written. 2: bad "
      "input.\n";
  return page;
}

}  // namespace weft
