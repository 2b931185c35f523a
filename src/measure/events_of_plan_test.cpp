// The events of plans: each once, and all that the measured cost model is asked for.
#include "measure/events_of_plan.h"

#include <gtest/gtest.h>

#include <set>

#include "cluster/cluster.h"
#include "cost/measured.h"
#include "forecast/evidence.h"
#include "measure/machine.h"

namespace weft {
namespace {

const char* const kGpt = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=64,dropout=0.1";
const char* const kLlama = "llama3-8b:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=64";

Plan plan_of(const char* model, const char* strategy, std::int64_t ranks, std::int64_t batch = 4,
             std::optional<std::int64_t> seq = 16) {
  Result<Plan> plan = make_plan({.model = model,
                                 .cluster = "cpu-node:1",
                                 .strategy = strategy,
                                 .global_batch = batch,
                                 .seq = seq,
                                 .dtype = "fp32",
                                 .device_count = ranks,
                                 .stack = "weft"});
  WEFT_CHECK(plan.ok(), "{} {}: {}", model, strategy, plan.error().message);
  return std::move(plan).value();
}

// As if every event had been measured, each with a time of its own.
std::vector<MeasuredEvent> all_measured(const std::vector<EventUse>& events) {
  std::vector<MeasuredEvent> profile;
  for (const EventUse& use : events) {
    MeasuredEvent measured{use.event, {Sample{1e-5 * static_cast<double>(profile.size() + 1), 1e-7, 10}}};
    measured.event.device = "cpu-core";
    measured.event.stack = measured.event.variant = kWeftVariant;
    profile.push_back(std::move(measured));
  }
  return profile;
}

struct Case {
  const char* model;
  const char* strategy;
  std::int64_t ranks = 2;
  std::optional<std::int64_t> seq = 16;
};

TEST(EventsOfPlan, AreUniqueAndAllThatASimulationAsksFor) {
  for (const Case& each : std::vector<Case>{
           {kGpt, "dp=1", 1},
           {kGpt, "dp=2"},
           {kGpt, "tp=2"},
           {kGpt, "tp=2,sp=0"},
           {kGpt, "pp=2,ga=2"},
           {kGpt, "cp=2"},
           {kLlama, "dp=2,zero=1"},
           {kLlama, "dp=2,zero=3"},
           {kLlama, "dp=2,tp=2,recompute=full", 4},
           {"mixtral-8x7b:layers=2,hidden=32,heads=4,kv_heads=2,ffn=32,vocab=64,experts=4,capacity_factor=2",
            "dp=2,ep=2"},
           {"lenet", "dp=2", 2, {}},
           {"rnnlm:hidden=16,vocab=32", "dp=2", 2, 4},
           {"dlrm:rows=64,tables=4", "dp=2,tables=1", 2, {}},
       }) {
    SCOPED_TRACE(std::string(each.model) + " " + each.strategy);
    const Plan plan = plan_of(each.model, each.strategy, each.ranks, 4, each.seq);
    const Result<std::vector<EventUse>> events = events_of(plan);
    ASSERT_TRUE(events.ok()) << events.error().message;
    std::set<Event> distinct;
    for (const EventUse& use : *events) {
      EXPECT_TRUE(distinct.insert(use.event).second) << use.event.op << " " << use.event.shapes;
      EXPECT_GE(use.instructions, 1);
    }
    const std::vector<MeasuredEvent> profile = all_measured(*events);
    for (const MeasuredEvent& measured : profile) {
      const Status good = check(measured.event);
      EXPECT_TRUE(good.ok()) << measured.event.op << " " << measured.event.shapes << ": " << good.error().message;
    }
    const auto cost = MeasuredCost::make(profile, "test.db", plan.cluster(), plan.stack(), plan.job->tuning);
    ASSERT_TRUE(cost.ok()) << cost.error().message;
    const Result<PlayedPlan> played = play_plan(plan, **cost, {.record = true});
    ASSERT_TRUE(played.ok()) << played.error().message;
    const StepEvidence evidence = evidence_of(plan, *played, **cost);
    EXPECT_EQ(evidence.shares[static_cast<std::size_t>(Origin::Model)], 0);
    EXPECT_EQ(evidence.shares[static_cast<std::size_t>(Origin::Interpolated)], 0);
    EXPECT_GT(evidence.shares[static_cast<std::size_t>(Origin::Measured)], 0.9);  // masks of parts are scaled
  }
}

TEST(EventsOfPlan, LayersAndMicroBatchesAddNone) {
  const auto count = [](const char* model, const char* strategy) {
    return events_of(plan_of(model, strategy, 2, 8)).value().size();
  };
  const char* const deep = "gpt2-124m:layers=6,hidden=32,heads=4,vocab=64,dropout=0.1";
  EXPECT_EQ(count(deep, "tp=2,mbs=1"), count(kGpt, "tp=2,mbs=1"));
  EXPECT_EQ(count(kGpt, "dp=2,mbs=1,ga=4"), count(kGpt, "dp=2,mbs=1,ga=4"));
}

TEST(EventsOfPlan, OfSeveralPlansEachCountsOnce) {
  const std::vector<EventUse> one = events_of(plan_of(kGpt, "dp=2", 2)).value();
  const std::vector<EventUse> twice = merged({one, one});
  ASSERT_EQ(twice.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(twice[i].instructions, 2 * one[i].instructions);
  EXPECT_EQ(merged({twice, one}).size(), one.size());
}

TEST(EventsOfPlan, WhatIsMeasuredIsLeftOut) {
  std::vector<EventUse> events = events_of(plan_of(kGpt, "tp=2", 2)).value();
  std::vector<MeasuredEvent> profile = all_measured(events);
  const EventUse first = events.front();
  profile.front().samples.front().count = 2;  // too few
  std::vector<EventUse> elsewhere = events;
  drop_measured(elsewhere, profile, "another", kWeftVariant, 7);
  EXPECT_EQ(elsewhere, events);
  drop_measured(events, profile, "cpu-core", kWeftVariant, 7);
  EXPECT_EQ(events, std::vector{first});
}

// Steps of a device that take 1 us for every instruction, 3 us in the first two steps.
runtime::RankTimeline timeline_of(const Program& program, DeviceId device, int steps) {
  runtime::RankTimeline timeline;
  for (int step = 0; step < steps; ++step) {
    runtime::RecordedStep& recorded = timeline.steps.emplace_back();
    runtime::Nanoseconds now = 0;
    for (InstructionId id : program.instructions.ids())
      if (program.meshes[program.instructions[id].mesh].position_of(device) >= 0) {
        const runtime::Nanoseconds took = step < 2 ? 3000 : 1000;
        recorded.issued.push_back({id, 0, now, now + took, now + took, {}});
        now += took;
      }
  }
  return timeline;
}

TEST(PlayedEvents, AreThePlansComputationsWithTheTimesOfLaterSteps) {
  const Plan plan = plan_of(kGpt, "pp=2,ga=2", 2);
  const CompiledStrategy compiled = compile_plan(plan).value();
  std::vector<EventUse> left = events_of(plan).value();
  EXPECT_TRUE(has_computation_of(left, left));
  std::vector<MeasuredEvent> all;
  for (const std::int64_t rank : {0, 1}) {
    const DeviceId device = plan.ranks()[static_cast<std::size_t>(rank)];
    const std::vector<MeasuredEvent> played =
        played_events(plan, compiled, device, timeline_of(compiled.program, device, 5));
    ASSERT_FALSE(played.empty());
    for (const MeasuredEvent& each : played) {
      EXPECT_FALSE(is_communication(each.event));
      EXPECT_DOUBLE_EQ(each.samples.front().mean_s, 1e-6);
      EXPECT_EQ(each.samples.front().count, 3);
    }
    all.insert(all.end(), played.begin(), played.end());
  }
  drop_measured(left, all, "", "", 1);
  for (const EventUse& use : left) EXPECT_TRUE(is_communication(use.event)) << use.event.op;
  EXPECT_FALSE(has_computation_of(left, left));
}

TEST(Machine, ProfilesOfTheNearestLoadAreKept) {
  const auto profile = [] {
    std::vector<MeasuredEvent> events;
    for (const auto& [op, ranks] : {std::pair{"gelu", 1}, {"gelu", 4}, {"gelu", 16}, {"relu", 1}})
      events.push_back({Event{.stack = measuring_stack(ranks), .op = op}, {Sample{1e-6, 0, 7}}});
    events.push_back({Event{.stack = "torch 2.11", .op = "gelu"}, {Sample{1e-6, 0, 7}}});
    return events;
  };
  const auto kept = [&](std::int64_t ranks) {
    std::vector<MeasuredEvent> events = profile();
    keep_nearest_load(events, ranks);
    std::vector<std::string> stacks;
    for (const MeasuredEvent& each : events) stacks.push_back(each.event.stack);
    return stacks;
  };
  using Stacks = std::vector<std::string>;
  EXPECT_EQ(kept(1), (Stacks{measuring_stack(1), measuring_stack(1), "torch 2.11"}));
  EXPECT_EQ(kept(3), (Stacks{measuring_stack(4), measuring_stack(1), "torch 2.11"}));
  EXPECT_EQ(kept(64), (Stacks{measuring_stack(16), measuring_stack(1), "torch 2.11"}));
}

TEST(Machine, IsWrittenAsAClusterFileThatReadsBack) {
  Machine machine{.name = "somecpu-core", .title = "Some CPU, 1 thread", .cores = 4, .memory = Bytes{1LL << 34}};
  std::vector<MeasuredEvent> profile;
  for (const Event& probe : machine_probes(2)) {
    profile.push_back({probe, {Sample{1e-3 + 1e-9 * static_cast<double>(probe.bytes), 1e-6, 10}}});
    profile.back().event.device = machine.name;
    profile.back().event.stack = measuring_stack(2);
    profile.back().event.variant = kWeftVariant;
  }
  const Result<std::string> text = cluster_file(machine, 2, profile);
  ASSERT_TRUE(text.ok()) << text.error().message;
  const Result<Cluster> cluster = parse_cluster_yaml(*text, "here.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(cluster->device_count(), 4);
  const DeviceSpec& device = cluster->spec(DeviceId(0));
  EXPECT_EQ(device.name, machine.name);
  EXPECT_NEAR(device.peak(Arithmetic::kFp32)->value.value, 2.0 * 1024 * 1024 * 1024 / 1e-3, 1e6);
  EXPECT_EQ(device.memory.value, Bytes{1LL << 32});
  profile.erase(profile.begin());
  EXPECT_FALSE(cluster_file(machine, 2, profile).ok());
}

}  // namespace
}  // namespace weft
