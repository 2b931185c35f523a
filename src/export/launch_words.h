// The words of a launch command, as a shell would pass them: quotes, comments, line continuations, variables and arrays
// that the text itself sets. What a script calls besides (commands in $(...), conditions, loops) is not run: a word
// that depends on it is marked, and only needing it is an error.
//
//   LAYERS=96                        GPT=(--num-layers $LAYERS --swiglu)
//   torchrun --nnodes 16 pretrain_gpt.py ${GPT[@]} --bf16
//
// A text that calls no script, `--num-layers 96 --bf16`, is words alone, on as many lines as one likes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

struct LaunchWord {
  std::string text;
  int line = 0;
  std::string unset = {};  // "$WORLD_SIZE": what the word depends on and the text does not set; empty: nothing
};

struct LaunchCommand {
  std::vector<LaunchWord> launcher;  // before the script: torchrun --nnodes 16
  std::string script;                // "pretrain_gpt.py"; empty: words alone
  std::vector<LaunchWord> arguments;
};

// Cost: linear in the text and in what its variables expand to, at most a million words. Errors name file and line.
Result<LaunchCommand> read_launch_command(std::string_view text, std::string_view file);

// A word as bash reads it back, quoted where it must be.
std::string shell_quoted(std::string_view word);

}  // namespace weft
