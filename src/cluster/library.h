// The definitions of a description file: device kinds, link types and node types, by name. The presets are one such
// library, compiled into the binary; a user's file is read on top of it and may use or shadow its names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/yaml_node.h"
#include "cluster/cluster.h"

namespace weft {

inline constexpr YamlFileKind kClusterFile = {"a cluster file", "cluster: dgx-h100:2"};

struct Library {
  std::map<std::string, std::shared_ptr<const DeviceSpec>, std::less<>> devices;
  std::map<std::string, NetworkTraits, std::less<>> networks;
  std::map<std::string, LinkType, std::less<>> links;
  std::map<std::string, std::shared_ptr<const NodeType>, std::less<>> nodes;
  std::map<std::string, std::string, std::less<>> aliases;  // of nodes
};

// The presets, read once per process.
const Library& preset_library();

// Finds a node by name or alias, first in `own`, then among the presets; else an error with the nearest
// names.
Result<std::shared_ptr<const NodeType>> find_node(const Library& own, std::string_view name);
Result<std::shared_ptr<const DeviceSpec>> find_device(const Library& own, std::string_view name);
Result<NetworkTraits> find_network(const Library& own, std::string_view name);

// The slowest host that a file or option may ask for.
inline constexpr double kSlowestHost = 1000;

enum class Sources {
  kRequired,  // presets: every figure is [value, source]
  kOptional,  // user files: a bare value has its own file and line as the source
};

// Reads the sections sources, devices, networks, links and nodes of a file on top of `base` (null: none) into `into`.
Status read_library(const YamlMap& file, const Library* base, Sources sources, Library& into);
// The keys of a file's top level.
const std::vector<std::string>& file_sections();

// The name of a node type that a file describes: the file's own, without folders and ending.
std::string name_of_file(std::string_view path);

// A fabric as in a node's or a cluster's `fabric:`. `sources` expands source keys.
Result<FabricSpec> read_fabric(const YamlNode& node, const std::map<std::string, std::string>& citations,
                               Sources sources);
// The map key → citation of the section `sources`.
Result<std::map<std::string, std::string>> read_citations(const YamlMap& file);

// Sections of to_yaml.
std::string fabric_yaml(const FabricSpec& fabric);

}  // namespace weft
