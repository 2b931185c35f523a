// Names of ONNX nodes and initializers as module paths.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace weft {

struct PlacedName {
  std::string module;  // dotted; "" is the root
  std::string name;

  bool operator==(const PlacedName&) const = default;
};

// "/layer1/layer1.0/conv1/Conv" → layer1.0.conv1, Conv: torch repeats a Sequential's path in the names of its
// children.
PlacedName place_node(std::string_view name);
// "layer1.0.conv1.weight" → layer1.0.conv1, weight.
PlacedName place_initializer(std::string_view name);

// Names taken within modules.
class TakenNames {
 public:
  // `name`, or the first of name_2, name_3, … that is free in the module.
  std::string take(const std::string& module, std::string name);

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> next_;
};

}  // namespace weft
