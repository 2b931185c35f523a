// Compiled programs, run for real on libtorch with every rank a thread: they train as one device does.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "program_cases.h"
#include "random_plans.h"
#include "run_ranks.h"

namespace weft {
namespace {

struct NamedCase {
  const char* model;
  const char* strategy;
};

std::string problem_of(const NamedCase& each, const std::vector<reference::StepNumbers>& steps = {{}}) {
  const ProgramCase made = program_case(each.model, each.strategy);
  return run_differs_from_one_device(made.training, made.program, made.schedule, steps);
}

TEST(Run, StrategiesOfLanguageModelsTrainAsOneDevice) {
  for (const char* model : {kSmallGpt, kSmallLlama})
    for (const char* strategy : {"dp=1", "dp=2", "tp=2,sp=0", "tp=2", "pp=2,ga=4", "dp=2,zero=1", "dp=2,zero=2,ga=2",
                                 "dp=2,zero=3,ga=2", "tp=2,pp=2,ga=2", "dp=2,tp=2,zero=1,ga=2", "cp=2"})
      EXPECT_EQ(problem_of({model, strategy}), "") << model << " " << strategy;
}

TEST(Run, StepsFollowOneAnother) {
  EXPECT_EQ(problem_of({kSmallLlama, "dp=2,tp=2,zero=1,ga=2"}, {{.step = 1}, {.step = 2, .learning_rate = 0.02}}), "");
}

// WEFT_RANDOM_RUNS sets how many; the generator is that of the compiler's proof (compiled_random_test.cpp).
TEST(Run, RandomStrategiesTrainAsOneDevice) {
  const char* const wanted = std::getenv("WEFT_RANDOM_RUNS");
  const int plans = wanted ? std::atoi(wanted) : 160;
  const std::vector<RandomlySplit> models = randomly_split_models();
  std::vector<std::string> problems(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0, mismatches = 0, collectives = 0, transfers = 0;
  const auto run = [&] {
    for (int i = next++; i < plans && mismatches < 3; i = next++) {
      const RandomlySplit& model = models[static_cast<std::size_t>(i) % models.size()];
      Rng rng = Rng(99).split(static_cast<std::uint64_t>(i));
      const ShardedPlan plan = random_plan(model.training, rng, i / 8 % 2 == 1);
      std::string& problem = problems[static_cast<std::size_t>(i)];
      if (const Result<Program> program = compiled(model.training, plan); program.ok()) {
        transfers += static_cast<int>(program->transfers.size());
        for (const Instruction& each : program->instructions)
          collectives += std::holds_alternative<Communicate>(each.what);
        problem = run_differs_from_one_device(model.training, *program, plan.schedule);
      } else {
        problem = program.error().message;
      }
      mismatches += problem.empty() ? 0 : 1;
    }
  };
  // Ranks mostly wait for each other to be connected.
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < problems.size(); ++i)
    EXPECT_EQ(problems[i], "") << models[i % models.size()].name << " plan " << i;
  fmt::print("{} random strategies run, {} collectives and {} transfers in them, {} mismatches\n", plans,
             collectives.load(), transfers.load(), mismatches.load());
}

// What runs are checked against stands on the reference itself.
TEST(Run, UnshardedTrainsAsTheReference) {
  const std::vector<RandomlySplit> models = randomly_split_models();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const TrainingGraph& training = models[i].training;
    Rng rng = Rng(99).split(i);
    const ShardedPlan plan = random_plan(training, rng, false);
    const Program program = compiled(training, plan).value();
    const Bundle bundle{.model = "test",
                        .strategy = "test",
                        .numbers = Numbers::Float64,
                        .graph = training.graph,
                        .program = program,
                        .schedule = plan.schedule};
    reference::OneDevice one(training, plan.schedule.micro_batches, reference::shards_of(program, training.graph));
    runtime::Unsharded unsharded(bundle, values_of(one, training.graph));
    for (double step : {1.0, 2.0}) {
      one.begin({.step = step});
      const Status played = unsharded.step({step, 0.01, 1});
      ASSERT_TRUE(played.ok()) << played.error().message;
      one.play();
      for (const auto& [parameter, gradient] : training.accumulated) {
        const std::string name = std::string(models[i].name) + " " + training.graph.name(parameter);
        EXPECT_LE(difference(unsharded.value(gradient), one.values()[gradient].values()), 1e-9) << name;
        EXPECT_LE(difference(unsharded.value(parameter), one.kept(parameter).values()), 1e-9) << name;
      }
    }
  }
}

}  // namespace
}  // namespace weft
