// Names of a checkpoint's files and directories.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::runtime {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json", kStepPrefix = "step-",
                                  kUnfinishedPrefix = ".partial-";

inline std::string step_name(std::int64_t step) { return fmt::format("{}{:06}", kStepPrefix, step); }
// While it is written.
inline std::string unfinished_name(std::int64_t step) { return std::string(kUnfinishedPrefix) + step_name(step); }
inline std::string file_name(std::size_t file, std::size_t files) {  // as Hugging Face names them, from 1
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, files);
}

// The steps of the whole checkpoints in a directory, ascending.
std::vector<std::int64_t> steps_in(const std::string& directory);

}  // namespace weft::runtime
