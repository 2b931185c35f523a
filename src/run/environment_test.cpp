#include "run/environment.h"

#include <gtest/gtest.h>

#include <map>

namespace weft {
namespace {

using runtime::RankPlace;

Result<std::optional<RankPlace>> place_among(const std::map<std::string, std::string>& variables) {
  return runtime::place_in([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, SaysWhichRankAProcessIs) {
  EXPECT_EQ(place_among({}).value(), std::nullopt);
  EXPECT_EQ(
      place_among(
          {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "4000"}})
          .value(),
      (RankPlace{3, 8, 1, "node0", 4000}));
  EXPECT_EQ(
      place_among({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}})
          .value(),
      (RankPlace{1, 2, 1, "127.0.0.1", 29500}));
  EXPECT_EQ(place_among({{"SLURM_PROCID", "5"},
                         {"SLURM_NTASKS", "16"},
                         {"SLURM_LOCALID", "5"},
                         {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.7"}})
                .value(),
            (RankPlace{5, 16, 5, "10.0.0.7", 29500}));
  // torchrun inside a Slurm job: torchrun's count.
  EXPECT_EQ(
      place_among({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}).value()->world,
      2);
}

TEST(Environment, NamesTheVariableThatMakesNoSense) {
  EXPECT_EQ(place_among({{"RANK", "two"}, {"WORLD_SIZE", "2"}}).error().message,
            "RANK='two': not a whole number of at least 0");
  EXPECT_EQ(place_among({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error().message,
            "RANK=2 of WORLD_SIZE=2: ranks count from 0");
  EXPECT_EQ(place_among({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}).error().message,
            "MASTER_PORT=70000: a port is at most 65535");
}

}  // namespace
}  // namespace weft
