// Rank classes: which ranks execute the same instructions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/rank_classes.h"
#include "program_cases.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::vector<DeviceId> devices(std::initializer_list<std::size_t> numbers) {
  std::vector<DeviceId> list;
  for (std::size_t number : numbers) list.emplace_back(number);
  return list;
}

TEST(RankClasses, StagesOfAPipelineAreClasses) {
  const ProgramCase each =
      program_case("gpt2-124m:layers=4,hidden=8,heads=2,vocab=16,dropout=0", "pp=2,vpp=2,dp=2,ga=4");
  const std::vector<RankClass> classes = rank_classes(each.program, each.schedule).value();
  // Stages 0 and 2 on rank 0, 1 and 3 on rank 1; each stage has a mesh, and the world is the last.
  const std::vector<RankClass> expected = {
      {devices({0, 1}), 0, {0, 2}, {MeshId(0), MeshId(2), MeshId(4)}},
      {devices({2, 3}), 1, {1, 3}, {MeshId(1), MeshId(3), MeshId(4)}},
  };
  EXPECT_EQ(classes, expected);
}

// Operators on meshes that overlap in part: classes are their intersections.
TEST(RankClasses, OverlappingMeshesAreToldApartByMembership) {
  Program program;
  for (const auto& members : {devices({0, 1, 2, 3}), devices({3, 0}), devices({5})})
    program.meshes.push_back(Mesh::make({{"x", static_cast<int>(members.size())}}, members).value());
  program.meshes.push_back(Mesh::make({{"x", 2}}, devices({1, 7})).value());  // executes nothing
  program.world = MeshId(0);
  program.stages.resize(1);
  for (std::size_t mesh : {0, 1, 2})
    program.stages[0].forward.push_back(program.instructions.push_back({.mesh = MeshId(mesh), .what = Free{}}));
  const std::vector<RankClass> classes = rank_classes(program, make_schedule({"gpipe", 1, 1, 0}).value()).value();
  const std::vector<RankClass> expected = {
      {devices({0, 3}), 0, {0}, {MeshId(0), MeshId(1)}},
      {devices({1, 2}), 0, {0}, {MeshId(0)}},
      {devices({5}), 0, {0}, {MeshId(2)}},
  };
  EXPECT_EQ(classes, expected);
}

TEST(RankClasses, ADeviceOfTwoPipelineRanksIsAnError) {
  ProgramCase each = program_case(kSmallGpt, "pp=2,ga=2");
  each.program.instructions[each.program.stages[0].forward[0]].mesh = each.program.world;
  const auto classes = rank_classes(each.program, each.schedule);
  ASSERT_FALSE(classes.ok());
  EXPECT_THAT(classes.error().message, HasSubstr("device 1 plays for pipeline ranks"));
}

// Classes follow from membership, so 16,384 devices cost what their meshes' lists do.
TEST(RankClasses, SixteenThousandDevicesInSixteenStagesAreSixteenClasses) {
  Program program;
  std::vector<DeviceId> all;
  for (std::size_t stage = 0; stage < 16; ++stage) {
    std::vector<DeviceId> members;
    for (std::size_t i = 0; i < 1024; ++i) members.emplace_back(stage * 1024 + i);
    all.insert(all.end(), members.begin(), members.end());
    program.meshes.push_back(Mesh::make({{"dp", 128}, {"tp", 8}}, members).value());
    program.stages.emplace_back();
    for (int i = 0; i < 5000; ++i)
      program.stages.back().forward.push_back(program.instructions.push_back({.mesh = MeshId(stage), .what = Free{}}));
  }
  program.world = program.meshes.push_back(Mesh::make({{"world", 16384}}, all).value());
  program.step.push_back(program.instructions.push_back({.mesh = program.world, .what = Free{}}));
  const std::vector<RankClass> classes = rank_classes(program, make_schedule({"1f1b", 16, 32, 0}).value()).value();
  ASSERT_EQ(classes.size(), 16u);
  for (std::size_t stage = 0; stage < 16; ++stage) {
    EXPECT_EQ(classes[stage].devices.size(), 1024u);
    EXPECT_EQ(classes[stage].stages, std::vector{static_cast<std::int32_t>(stage)});
  }
}

}  // namespace
}  // namespace weft
