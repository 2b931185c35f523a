// weft completion and weft man: the command line described for shells and for man, from the parser itself.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/suggest.h"
#include "base/whole_file.h"
#include "cli/commands.h"
#include "cli/described.h"

namespace weft {
namespace {

const DescribedCommand* find(const DescribedCommand& below, const std::string& page) {
  if (page_name(below) == page) return &below;
  for (const DescribedCommand& each : below.commands)
    if (const DescribedCommand* found = find(each, page)) return found;
  return nullptr;
}

void list_pages(const DescribedCommand& below, std::vector<const DescribedCommand*>& pages) {
  pages.push_back(&below);
  for (const DescribedCommand& each : below.commands) list_pages(each, pages);
}

Result<std::string> print_page(const DescribedCommand& weft, const std::vector<std::string>& words) {
  std::string name = "weft";
  for (const std::string& word : words)
    if (word != "weft" || &word != &words.front()) name += "-" + word;
  if (const DescribedCommand* command = find(weft, name)) return man_page(*command);
  std::vector<const DescribedCommand*> pages;
  list_pages(weft, pages);
  std::vector<std::string> names;
  for (const DescribedCommand* each : pages) names.push_back(page_name(*each));
  return error("no page '{}'{}", name, did_you_mean(name, names));
}

Result<std::string> write_pages(const DescribedCommand& weft, const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) return error("--out {}: {}", folder, problem.message());
  std::vector<const DescribedCommand*> pages;
  list_pages(weft, pages);
  for (const DescribedCommand* each : pages) {
    WEFT_TRY(WholeFile file, WholeFile::create(fmt::format("{}/{}.1", folder, page_name(*each))));
    file.write(man_page(*each));
    if (const Status written = file.finish(); !written.ok()) return written.error().at("--out");
  }
  return fmt::format("written: {} pages in {}\n", pages.size(), folder);
}

}  // namespace

void add_completion(CLI::App& app, Chosen& chosen) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a script that completes weft's commands in your shell.");
  command->footer(
      "Examples:\n"
      "  source <(weft completion bash)                             in this shell\n"
      "  weft completion bash > ~/.local/share/bash-completion/completions/weft\n"
      "  weft completion zsh > ~/.zfunc/_weft                       with ~/.zfunc in fpath\n");
  command->add_option("shell", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  command->callback([shell, &app, &chosen] {
    chosen = [shell, &app] {
      const DescribedCommand weft = describe(app, "weft");
      return print_text(*shell == "bash" ? bash_completion(weft) : zsh_completion(weft));
    };
  });
}

void add_man(CLI::App& app, Chosen& chosen) {
  struct Arguments {
    std::vector<std::string> words;
    std::string out;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("man", "Print the manual page of a command.");
  command->footer(
      "Examples:\n"
      "  weft man show model | man -l -\n"
      "  weft man --out ~/.local/share/man/man1     every page, for `man weft-plan`\n");
  command->add_option("command", arguments->words, "plan, show model, ... (default: weft itself)");
  command->add_option("--out", arguments->out, "write every page into this folder");
  command->callback([arguments, &app, &chosen] {
    chosen = [arguments, &app] {
      const DescribedCommand weft = describe(app, "weft");
      return finish(arguments->out.empty() ? print_page(weft, arguments->words) : write_pages(weft, arguments->out));
    };
  });
}

}  // namespace weft
