#include "run/environment.h"

#include <charconv>
#include <cstring>

namespace weft::runtime {
namespace {

Result<int> number_in(const Environment& environment, const char* name, int least) {
  const char* const text = environment(name);
  if (!text) return error("{} is not set", name);
  int value = 0;
  const auto [end, status] = std::from_chars(text, text + std::strlen(text), value);
  if (status != std::errc() || *end != '\0' || value < least)
    return error("{}='{}': not a whole number of at least {}", name, text, least);
  return value;
}

struct Names {
  const char *rank, *world, *local;
};
constexpr Names kLaunchers[] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};

}  // namespace

Result<std::optional<RankPlace>> place_in(const Environment& environment) {
  for (const Names& names : kLaunchers) {
    if (!environment(names.rank) || !environment(names.world)) continue;
    RankPlace place;
    WEFT_TRY(place.rank, number_in(environment, names.rank, 0));
    WEFT_TRY(place.world, number_in(environment, names.world, 1));
    if (place.rank >= place.world)
      return error("{}={} of {}={}: ranks count from 0", names.rank, place.rank, names.world, place.world);
    if (environment(names.local)) {
      WEFT_TRY(place.local_rank, number_in(environment, names.local, 0));
    }
    if (const char* const host = environment("MASTER_ADDR"))
      place.host = host;
    else if (const char* const launched_from = environment("SLURM_LAUNCH_NODE_IPADDR"))
      place.host = launched_from;
    if (environment("MASTER_PORT")) {
      WEFT_TRY(place.port, number_in(environment, "MASTER_PORT", 1));
      if (place.port > 65535) return error("MASTER_PORT={}: a port is at most 65535", place.port);
    }
    return std::optional(place);
  }
  return std::optional<RankPlace>();
}

}  // namespace weft::runtime
