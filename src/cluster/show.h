// A cluster as text and as JSON: the output of `weft show cluster`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cluster/cluster.h"

namespace weft {

// Headline, one section per kind of node (picture, peaks with their sources), the fabric and its bandwidths.
std::string describe(const Cluster& cluster);

// {devices, nodes, groups: [{preset, title, nodes, devices_per_node, device, ...}], links: [...], fabric:
// {...}}.
nlohmann::json to_json(const Cluster& cluster);

// One line per preset: name, title, devices, scale-up and network bandwidth.
std::string describe_presets();

}  // namespace weft
