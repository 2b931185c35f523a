// Globs over dotted names: `layers.*.attn.qkv`, `encoder.**`, `layers.*.fc1@grad_weight`.
//
// `*` stands for any part of one component, `**` for any number of whole components. A glob names a node of the module
// tree and, with it, everything below: `layers.*` covers layers.3.attn.qkv. Backward products are covered only by globs
// with an `@`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// "layers.3.attn" → {"layers", "3", "attn"}; the root, "", has none.
std::vector<std::string_view> components(std::string_view name);

class Glob {
 public:
  explicit Glob(std::string_view pattern);

  // The number of leading components of the name that form the node that the glob names, the shallowest such node; none
  // if the glob does not cover the name. `**` names the root: 0. Cost: components of the name × those of the glob.
  std::optional<int> covers(const std::vector<std::string_view>& name) const;
  std::optional<int> covers(std::string_view name) const { return covers(components(name)); }

  // Components without a wildcard: of two globs that name the same node, the one with more is the more specific.
  int literals() const { return literals_; }
  bool literal() const { return literals_ == static_cast<int>(parts_.size()); }

 private:
  std::vector<std::string> parts_;
  int literals_ = 0;
  bool backward_ = false;
};

// The glob that covers a name and its counterparts in other layers: components that are numbers become `*`.
std::string layer_glob(std::string_view name);

}  // namespace weft
