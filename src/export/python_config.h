// A Python module that fills in a configuration, read without running it: imports, one function of no arguments,
// assignments to fields, return. Anything else is an error at its line.
//
//   def plan():
//       config = llama3_8b()
//       parallelism, training = config.parallelism, config.training
//       parallelism.tensor_parallel_degree, training.steps = 2, 8 * 4
//       return config
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

struct PythonValue {
  enum class Kind : std::uint8_t { Integer, Number, Text, Boolean, None, List, Name, Call };

  Kind kind = Kind::None;
  std::int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  std::string text = {};                   // Text; Name and Call: the dotted name
  std::vector<PythonValue> items = {};     // List; Call: arguments
  std::vector<std::string> keywords = {};  // Call: the name of each argument; empty: by position
  int line = 0;
};

struct PythonField {
  std::string path;  // "parallelism.tensor_parallel_degree"
  PythonValue value;
  int line = 0;
};

struct PythonConfig {
  std::string base;  // the function that makes the configuration: "llama3_8b"
  int base_line = 0;
  std::string module;               // where it is imported from
  std::vector<PythonField> fields;  // in order
};

// Errors name file and line. Cost: linear in the text, whose lists nest at most 20 deep.
Result<PythonConfig> read_python_config(std::string_view text, std::string_view file);

}  // namespace weft
