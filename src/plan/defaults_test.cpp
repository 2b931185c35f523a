// The law of defaults: every default that a plan tells can be said aloud, alone or with the others, and changes
// nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "plan/plan.h"
#include "small_zoo.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// A default as it is told, "global batch 256: about 32 samples per device (--global-batch)", and the word to say it
// with.
struct Told {
  std::string word;   // "--global-batch", "schedule="
  std::string value;  // "256"
};

// What stands in the sentence after `before`, up to a space or colon.
std::string value_after(const std::string& sentence, const std::string& before) {
  const std::size_t from = sentence.find(before);
  if (from == std::string::npos) return "";
  std::string value = sentence.substr(from + before.size());
  value = value.substr(0, value.find_first_of(": "));
  std::erase(value, ',');  // of thousands
  return value;
}

std::vector<Told> told_by(const Plan& plan) {
  struct Sentence {
    const char* ends;
    const char* before;
    const char* word;
  };
  constexpr Sentence kSentences[] = {{"(--global-batch)", "global batch ", "--global-batch"},
                                     {"(--micro-batch or mbs=)", "micro-batch of ", "--micro-batch"},
                                     {"context, at most 8,192 (--seq)", "sequence of ", "--seq"},
                                     {"the model's (--seq)", "", "--seq"},
                                     {"(--dtype)", "dtype ", "--dtype"},
                                     {"(--stack)", "stack ", "--stack"},
                                     {"(schedule=)", "schedule ", "schedule="},
                                     {"(sp=0 turns it off)", "", "sp="},
                                     {"devices", "dp=", "dp="},
                                     {"innermost first (order=)", "numbered ", "order="}};
  std::vector<Told> told;
  for (const std::string& sentence : plan.assumptions)
    for (const Sentence& known : kSentences) {
      if (!sentence.ends_with(known.ends)) continue;
      std::string value = value_after(sentence, known.before);
      if (std::string(known.word) == "sp=") value = "1";
      if (std::string(known.word) == "order=") {
        value = sentence.substr(sentence.find(known.before) + 9);
        value = value.substr(0, value.find(", innermost"));
        std::string joined;
        for (const char c : value)
          if (c != ' ') joined += c == ',' ? '-' : c;
        value = joined;
      }
      if (std::string(known.word) == "dp=" && sentence.rfind("dp=", 0) != 0) continue;
      told.push_back({known.word, value});
      break;
    }
  return told;
}

void say(PlanRequest& request, const Told& told) {
  if (told.word == "--global-batch") {
    request.global_batch = std::stoll(told.value);
  } else if (told.word == "--micro-batch") {
    request.micro_batch = std::stoll(told.value);
  } else if (told.word == "--seq") {
    request.seq = std::stoll(told.value);
  } else if (told.word == "--dtype") {
    request.dtype = told.value;
  } else if (told.word == "--stack") {
    request.stack = told.value;
  } else {
    request.strategy += fmt::format(",{}{}", told.word, told.value);
  }
}

// Everything about a plan but the words it was asked for in.
std::string departure(const Plan& a, const Plan& b) {
  if (a.batch != b.batch)
    return fmt::format("{} micro-batches of {} instead of {} of {}", b.batch.micro_batches, b.batch.micro_batch,
                       a.batch.micro_batches, a.batch.micro_batch);
  if (a.strategy != b.strategy) return "the strategy";
  if (!(a.graph() == b.graph())) return "the graph";
  if (a.stack().name != b.stack().name || a.job->precision.name != b.job->precision.name) return "stack or precision";
  if (a.model->parameters != b.model->parameters || a.model->vocabulary != b.model->vocabulary) return "parameters";
  if (a.ranks() != b.ranks()) return "ranks";
  return "";
}

// How many defaults were said aloud, one by one and all together.
int check_law(const PlanRequest& request) {
  const Result<Plan> plan = make_plan(request);
  if (!plan.ok()) return 0;
  const std::vector<Told> all = told_by(*plan);
  PlanRequest with_all = request;
  for (const Told& told : all) {
    PlanRequest aloud = request;
    say(aloud, told);
    say(with_all, told);
    const Result<Plan> again = make_plan(aloud);
    EXPECT_TRUE(again.ok()) << told.word << " " << told.value << ": " << again.error().message;
    if (again.ok()) {
      EXPECT_EQ(departure(*plan, *again), "") << told.word << " " << told.value;
    }
  }
  const Result<Plan> again = make_plan(with_all);
  EXPECT_TRUE(again.ok()) << again.error().message;
  if (again.ok()) {
    EXPECT_EQ(departure(*plan, *again), "") << "all of them";
    // What is left is told, but not for want of a word.
    EXPECT_TRUE(told_by(*again).empty()) << told_by(*again).front().word;
  }
  return static_cast<int>(all.size()) + 1;
}

TEST(Defaults, SaidAloudTheyChangeNothing) {
  const char* const strategies[] = {
      "tp=1",  "tp=2", "pp=2",      "tp=2,pp=2", "pp=4,schedule=gpipe", "pp=2,vpp=2", "fsdp=4", "h=2",
      "mbs=4", "ga=4", "pp=2,ga=8", "cp=2",      "tp=2,cp=2,zero=1"};
  int said = 0, plans = 0;
  for (const SmallModel& model : small_families())
    for (const char* cluster : {"dgx-a100:1", "dgx-h100:3", "p100x4:2"})
      for (const char* strategy : strategies) {
        SCOPED_TRACE(fmt::format("{} on {} by {}", model.spec, cluster, strategy));
        const PlanRequest request{.model = model.spec, .cluster = cluster, .strategy = strategy};
        const int these = check_law(request);
        said += these;
        plans += these > 0 ? 1 : 0;
      }
  EXPECT_GT(plans, 500);
  fmt::print("{} plans, {} times a default said aloud\n", plans, said);
}

// A file has a type of its own, and a strategy file a count of micro-batches.
TEST(Defaults, OfFilesToo) {
  const char* const source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  const std::string imported = std::string(source) + "/tests/onnx/bert_base_dynamic.onnx";
  EXPECT_GE(check_law({.model = imported, .cluster = "dgx-a100:1", .strategy = "dp=8"}), 6);
  for (const SmallModel& model :
       {small_model(*find_in_zoo("resnet18").value()), small_model(*find_in_zoo("gpt2-124m").value())}) {
    SCOPED_TRACE(model.spec);
    PlanRequest request{.model = model.spec, .cluster = "dgx-a100:1", .strategy = "dp=4,pp=2,ga=4"};
    request.tree = to_yaml(make_plan(request).value().strategy);
    request.strategy = "found.yaml";
    EXPECT_GE(check_law(request), 4);
  }
}

// 32 samples for each of 8 devices in one micro-batch, whoever asks for 256; more of them in as large ones, as far as
// they divide: 250 per replica in 10 of 25, since 8 of 32 would be 256.
TEST(Defaults, ABatchOfImagesIsCutIntoWhatADeviceTakes) {
  const auto batch = [](std::int64_t global, const char* strategy) {
    PlanRequest request{.model = "resnet50", .cluster = "dgx-a100:1", .strategy = strategy};
    request.global_batch = global;
    return make_plan(request).value().batch;
  };
  EXPECT_EQ(batch(256, "dp=8"), (BatchPlan{8, 32, 1, 32, 256}));
  EXPECT_EQ(batch(8192, "dp=8"), (BatchPlan{8, 32, 32, 32, 8192}));
  EXPECT_EQ(batch(64, "dp=8"), (BatchPlan{8, 8, 1, 8, 64}));
  EXPECT_EQ(batch(2000, "dp=8"), (BatchPlan{8, 25, 10, 25, 2000}));
  EXPECT_EQ(batch(8 * 251, "dp=8"), (BatchPlan{8, 1, 251, 1, 2008}));  // a prime
  EXPECT_EQ(batch(256, "dp=4,pp=2"), (BatchPlan{4, 32, 2, 32, 256}));
  EXPECT_EQ(batch(256, "dp=4,h=2"), (BatchPlan{4, 64, 1, 64, 256}));
}

}  // namespace
}  // namespace weft
