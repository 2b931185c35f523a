// Any bytes as a cluster file: an error or a cluster whose paths exist and whose text parses back to itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "cluster/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const weft::Result<weft::Cluster> cluster = weft::parse_cluster_yaml(text, "fuzz.yaml");
  if (!cluster.ok()) return 0;
  const auto last = static_cast<std::size_t>(cluster->device_count() - 1);
  for (weft::LinkId link : cluster->path(weft::DeviceId(0), weft::DeviceId(last)))
    WEFT_CHECK(cluster->link(link).bandwidth.value > 0);
  const weft::Result<weft::Cluster> again = weft::parse_cluster_yaml(weft::to_yaml(*cluster), "again.yaml");
  // A printed file spells out what ranges abbreviate, so only it may be over the size limit.
  WEFT_CHECK(!again.ok() || *again == *cluster);
  return 0;
}
