#include "bundle/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/read_file.h"
#include "base/whole_file.h"
#include "graph/text.h"
#include "program/program_text.h"
#include "program/verify.h"

namespace weft {
namespace {

constexpr std::string_view kFirstLine = "weft bundle 1";
// A program of 100,000 instructions takes some 20 MB.
constexpr FileKind kBundleFile{"a bundle (weft run --bundle)", std::size_t{4} << 30};

std::string section(std::string_view name, const std::string& text) {
  return fmt::format("begin {0}\n{1}{2}end {0}\n", name, text, text.ends_with('\n') ? "" : "\n");
}

// Words for messages stay on one line.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

// A part of the bundle's text, and the line it begins on.
struct Section {
  std::string_view text;
  int line = 0;  // of its first line; 0: it is not there
};

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : rest_(text), file_(file) {}

  Result<Bundle> read() {
    WEFT_TRY_OK(first_line());
    while (next_line()) {
      const auto [word, value] = split(current_);
      if (word.empty()) continue;
      const Status read = word == "begin" ? take_section(value) : take_value(word, value);
      if (!read.ok()) return read.error();
    }
    return assembled();
  }

 private:
  Error here(const Error& error) const { return error.at(file_, line_); }

  bool next_line() {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    current_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (current_.ends_with('\r')) current_.remove_suffix(1);
    ++line_;
    return true;
  }
  static std::pair<std::string_view, std::string_view> split(std::string_view line) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return {line, {}};
    return {line.substr(0, blank), line.substr(blank + 1)};
  }
  // A few printable characters of what stands in a file that may be anything.
  static std::string shown(std::string_view text) {
    std::string printable(text.substr(0, 40));
    for (char& c : printable)
      if (c < ' ' || c > '~') c = '?';
    return printable;
  }

  Status first_line() {
    if (!next_line()) return Error{"is empty; a bundle begins with 'weft bundle 1'"}.at(file_);
    if (current_ == kFirstLine) return Ok{};
    if (current_.starts_with("weft bundle "))
      return here(error("'{}': this weft reads version 1; write the bundle anew", shown(current_)));
    return here(error("'{}': no bundle, which begins with '{}'", shown(current_), kFirstLine));
  }

  template <class T>
  Status number(std::string_view word, std::string_view value, T& to) {
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), to);
    if (status != std::errc() || end != value.data() + value.size())
      return here(error("{} '{}': not a number", word, shown(value)));
    return Ok{};
  }
  Status take_value(std::string_view word, std::string_view value) {
    if (word == "model") {
      bundle_.model = value;
    } else if (word == "strategy") {
      bundle_.strategy = value;
    } else if (word == "numbers") {
      if (value != name_of(Numbers::AsStored) && value != name_of(Numbers::Float64))
        return here(
            error("numbers '{}': write {} or {}", shown(value), name_of(Numbers::AsStored), name_of(Numbers::Float64)));
      bundle_.numbers = value == name_of(Numbers::Float64) ? Numbers::Float64 : Numbers::AsStored;
    } else if (word == "learning-rate") {
      WEFT_TRY_OK(number(word, value, bundle_.learning_rate));
      if (!std::isfinite(bundle_.learning_rate)) return here(error("learning-rate {}: not finite", shown(value)));
    } else if (word == "seed") {
      WEFT_TRY_OK(number(word, value, bundle_.seed));
    } else if (word == "vocabulary") {
      WEFT_TRY_OK(number(word, value, bundle_.vocabulary));
      if (bundle_.vocabulary < 0) return here(error("vocabulary {}: negative", shown(value)));
    } else {
      return here(error("'{}': unknown word; write model, strategy, numbers, learning-rate, seed, vocabulary or begin",
                        shown(word)));
    }
    return Ok{};
  }

  Section* section_named(std::string_view name) {
    if (name == "graph") return &graph_;
    if (name == "program") return &program_;
    if (name == "schedule") return &schedule_;
    if (name == "last-graph") return &last_graph_;
    if (name == "last-program") return &last_program_;
    return nullptr;
  }
  Status take_section(std::string_view name) {
    Section* const section = section_named(name);
    if (!section)
      return here(error("begin '{}': write graph, program, schedule, last-graph or last-program", shown(name)));
    if (section->line != 0) return here(error("a second {}; the first is at line {}", name, section->line));
    const int begun = line_;
    const char* const first = rest_.data();
    const std::string end = fmt::format("end {}", name);
    while (next_line())
      if (current_ == end) {
        *section = {std::string_view(first, static_cast<std::size_t>(current_.data() - first)), begun + 1};
        return Ok{};
      }
    return error("'begin {}' without '{}': the file is cut off", name, end).at(file_, begun);
  }

  // The section with as many empty lines in front as there are lines before it: errors then count from the top.
  static std::string from_the_top(const Section& section) {
    return std::string(static_cast<std::size_t>(section.line - 1), '\n') + std::string(section.text);
  }

  Result<Bundle> assembled() {
    for (const auto& [name, section] : {std::pair{"graph", graph_}, {"program", program_}, {"schedule", schedule_}})
      if (section.line == 0) return error("has no {}: 'begin {}' is missing", name, name).at(file_);
    if ((last_graph_.line == 0) != (last_program_.line == 0))
      return Error{"has one of last-graph and last-program; both belong together"}.at(file_);
    WEFT_TRY(bundle_.graph, parse_graph(from_the_top(graph_), file_));
    WEFT_TRY(bundle_.program, parse_program(from_the_top(program_), bundle_.graph, file_));
    WEFT_TRY(bundle_.schedule, parse_schedule(from_the_top(schedule_), file_));
    if (const Status good = check_schedule(bundle_.schedule); !good.ok()) return good.error().at(file_, schedule_.line);
    WEFT_TRY_OK(verified(bundle_.program, bundle_.graph, program_));
    const std::vector<DeviceId>& devices = bundle_.program.meshes[bundle_.program.world].devices();
    for (std::size_t i = 0; i < devices.size(); ++i)
      if (devices[i] != DeviceId(i))
        return error("the world's devices must be 0 to {} in order; device {} is at place {}", devices.size() - 1,
                     devices[i].index(), i)
            .at(file_, program_.line);
    if (last_graph_.line != 0) {
      Bundle::Last last;
      WEFT_TRY(last.graph, parse_graph(from_the_top(last_graph_), file_));
      WEFT_TRY(last.program, parse_program(from_the_top(last_program_), last.graph, file_));
      WEFT_TRY_OK(verified(last.program, last.graph, last_program_));
      if (last.program.instructions.size() != bundle_.program.instructions.size() ||
          last.program.buffers.size() != bundle_.program.buffers.size() ||
          last.program.meshes != bundle_.program.meshes || last.graph.ops().size() != bundle_.graph.ops().size() ||
          last.graph.tensors().size() != bundle_.graph.tensors().size())
        return Error{"the last micro-batch must have the same instructions, buffers and meshes as the others"}.at(
            file_, last_program_.line);
      bundle_.last = std::move(last);
    }
    return std::move(bundle_);
  }
  Status verified(const Program& program, const Graph& graph, const Section& section) const {
    if (const Status good = verify(program, graph, bundle_.schedule); !good.ok())
      return good.error().at(file_, section.line);
    return Ok{};
  }

  std::string_view rest_, current_;
  const std::string_view file_;
  int line_ = 0;
  Section graph_, program_, schedule_, last_graph_, last_program_;
  Bundle bundle_;
};

}  // namespace

std::string_view name_of(Numbers numbers) { return numbers == Numbers::Float64 ? "float64" : "as-stored"; }

Program numbered_by_rank(Program program) {
  const Mesh world = program.meshes[program.world];
  for (Mesh& mesh : program.meshes) {
    std::vector<DeviceId> ranks;
    for (DeviceId device : mesh.devices()) ranks.emplace_back(static_cast<std::size_t>(world.position_of(device)));
    mesh = Mesh::make(mesh.axes(), std::move(ranks)).value();
  }
  return program;
}

std::string print(const Bundle& bundle) {
  std::string text = fmt::format("{}\nmodel {}\nstrategy {}\nnumbers {}\nlearning-rate {}\nseed {}\nvocabulary {}\n",
                                 kFirstLine, one_line(bundle.model), one_line(bundle.strategy), name_of(bundle.numbers),
                                 bundle.learning_rate, bundle.seed, bundle.vocabulary);
  text += section("graph", print(bundle.graph));
  text += section("program", print(bundle.program, bundle.graph));
  text += section("schedule", print(bundle.schedule));
  if (bundle.last) {
    text += section("last-graph", print(bundle.last->graph));
    text += section("last-program", print(bundle.last->program, bundle.last->graph));
  }
  return text;
}

Result<Bundle> parse_bundle(std::string_view text, std::string_view file) { return Reader(text, file).read(); }

Status write_bundle(const Bundle& bundle, const std::string& path) { return write_whole(path, print(bundle)); }

Result<Bundle> read_bundle(const std::string& path) {
  WEFT_TRY(const std::string text, read_file(path, kBundleFile));
  return parse_bundle(text, path);
}

}  // namespace weft
