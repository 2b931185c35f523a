// Compiled programs, run for real on libtorch with every rank a thread: they train as one device does.
#include <gtest/gtest.h>

#include "program_cases.h"
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

}  // namespace
}  // namespace weft
