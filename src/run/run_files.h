// The files that a run leaves and goes on from: asked for on weft's command line, told to ranks on theirs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::runtime {

struct RunFiles {
  std::string save;             // a directory for checkpoints; empty: none are made
  std::int64_t save_every = 0;  // steps; 0: after the last one alone
  bool resume = false;          // goes on from the last checkpoint in `save`, if there is one
  std::string load;             // a checkpoint, or a directory of them, to go on from
  std::string log;              // of steps, a JSON object a line

  // As words of weft-rank's command line.
  std::vector<std::string> words() const {
    std::vector<std::string> list;
    const auto add = [&](const char* word, const std::string& value) {
      if (!value.empty()) list.insert(list.end(), {word, value});
    };
    add("--save", save);
    if (save_every > 0) add("--save-every", std::to_string(save_every));
    if (resume) list.emplace_back("--resume");
    add("--load", load);
    add("--log", log);
    return list;
  }
};

}  // namespace weft::runtime
