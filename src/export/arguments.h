// A trainer's arguments, `--flag value`, checked against the table of those it takes: written in order, read with their
// lines. The table (presets/targets/megatron.txt) says of every argument what Weft does with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "export/launch_words.h"

namespace weft {

// What Weft does with an argument of the trainer.
enum class ArgumentRole : std::uint8_t {
  Read,        // has a place in a plan
  Unmodelled,  // changes how a step is executed in a way that predictions do not know
  Elsewhere,   // data, logging, checkpoints: no part of a plan
  Refused,     // changes the plan in a way Weft has no words for
  Gone,        // the trainer itself refuses it
};

struct KnownArgument {
  std::string flag;
  ArgumentRole role{};
  bool several = false;   // takes more than one value
  std::string type = {};  // of Read: switch, int, number, word, or empty with choices
  std::vector<std::string> choices = {};
  std::string remark = {};  // why it is refused; what to write instead
};

const std::vector<KnownArgument>& megatron_arguments();
const std::vector<KnownArgument>& deepspeed_keys();
const std::vector<KnownArgument>& torchtitan_fields();
// Why values do not fit an argument's type; empty: they do.
std::string misfit(const KnownArgument& known, const std::vector<std::string>& values);
const KnownArgument* find_megatron_argument(std::string_view flag);

struct Argument {
  std::string flag;
  std::vector<std::string> values = {};
  int line = 0;
};

class Arguments {
 public:
  Arguments() = default;
  // Of a launch command. Errors name the line: unknown, refused, repeated, a value of another type.
  static Result<Arguments> read(const std::vector<LaunchWord>& words, std::string_view file);

  void add(std::string flag) { add(std::move(flag), std::vector<std::string>{}); }
  void add(std::string flag, std::vector<std::string> values);
  void add(std::string flag, std::string value) { add(std::move(flag), std::vector<std::string>{std::move(value)}); }
  void add(std::string flag, std::int64_t value) { add(std::move(flag), std::to_string(value)); }
  const std::vector<Argument>& all() const { return all_; }

  const Argument* find(std::string_view flag) const;
  bool has(std::string_view flag) const { return find(flag) != nullptr; }
  // The value, or the default where the argument is absent. Types were checked when the arguments were read.
  std::int64_t integer(std::string_view flag, std::int64_t otherwise) const;
  double number(std::string_view flag, double otherwise) const;
  std::string word(std::string_view flag, std::string_view otherwise) const;
  // An error at an argument's line.
  Error fail(std::string_view flag, std::string_view message) const;

 private:
  std::string file_;
  std::vector<Argument> all_;
};

}  // namespace weft
