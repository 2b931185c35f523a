#include <algorithm>

#include "base/embedded.h"
#include "cluster/library.h"

namespace weft {

std::span<const EmbeddedFile> cluster_presets();  // written by cmake/embed.cmake

const Library& preset_library() {
  static const Library library = [] {
    Library presets;
    // The build lists devices and links before nodes. A preset that does not parse is a bug in Weft.
    for (const EmbeddedFile& file : cluster_presets()) {
      const Result<YamlNode> root = YamlNode::load(file.text, file.path, kClusterFile);
      WEFT_CHECK(root.ok(), "{}", root.error().message);
      const Result<YamlMap> sections = root->map("file", file_sections());
      WEFT_CHECK(sections.ok(), "{}", sections.error().message);
      const Status status = read_library(*sections, nullptr, Sources::kRequired, presets);
      WEFT_CHECK(status.ok(), "{}", status.error().message);
    }
    return presets;
  }();
  return library;
}

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : preset_library().nodes) names.push_back(name);
  return names;
}

std::vector<std::string> device_preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, unused] : preset_library().devices) names.push_back(name);
  return names;
}

}  // namespace weft
