// Any bytes as what nvidia-smi topo -m prints: an error or a node type that makes a cluster.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "cluster/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  weft::Result<weft::NodeType> node = weft::parse_smi_topology(text, "fuzz.txt", "v100-32");
  if (!node.ok()) return 0;
  const weft::FabricSpec fabric = node->parts().fabric;
  const auto type = std::make_shared<const weft::NodeType>(std::move(node).value());
  const weft::Result<weft::Cluster> cluster = weft::Cluster::make({{type, 1}}, fabric);
  WEFT_CHECK(cluster.ok(), "{}", cluster.error().message);
  for (weft::DeviceId device : cluster->devices()) (void)cluster->path(weft::DeviceId(0), device);
  return 0;
}
