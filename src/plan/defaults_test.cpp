// The law of defaults: stating any default that a plan lists in its assumptions, alone or with the others, changes
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

// A default that a plan used, read from its assumption "global batch 256: about 32 samples per device
// (--global-batch)": the option that states it, and its value.
struct UsedDefault {
  std::string option;  // "--global-batch", "schedule="
  std::string value;   // "256"
};

// The text after `before` in the sentence, up to a space or colon.
std::string value_after(const std::string& sentence, const std::string& before) {
  const std::size_t from = sentence.find(before);
  if (from == std::string::npos) return "";
  std::string value = sentence.substr(from + before.size());
  value = value.substr(0, value.find_first_of(": "));
  std::erase(value, ',');  // separators of thousands
  return value;
}

std::vector<UsedDefault> used_defaults(const Plan& plan) {
  struct Sentence {
    const char* ends;
    const char* before;
    const char* option;
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
  std::vector<UsedDefault> used;
  for (const std::string& sentence : plan.assumptions)
    for (const Sentence& known : kSentences) {
      if (!sentence.ends_with(known.ends)) continue;
      std::string value = value_after(sentence, known.before);
      if (std::string(known.option) == "sp=") value = "1";
      if (std::string(known.option) == "order=") {
        value = sentence.substr(sentence.find(known.before) + 9);
        value = value.substr(0, value.find(", innermost"));
        std::string joined;
        for (const char c : value)
          if (c != ' ') joined += c == ',' ? '-' : c;
        value = joined;
      }
      if (std::string(known.option) == "dp=" && sentence.rfind("dp=", 0) != 0) continue;
      used.push_back({known.option, value});
      break;
    }
  return used;
}

void state(PlanRequest& request, const UsedDefault& used) {
  if (used.option == "--global-batch") {
    request.global_batch = std::stoll(used.value);
  } else if (used.option == "--micro-batch") {
    request.micro_batch = std::stoll(used.value);
  } else if (used.option == "--seq") {
    request.seq = std::stoll(used.value);
  } else if (used.option == "--dtype") {
    request.dtype = used.value;
  } else if (used.option == "--stack") {
    request.stack = used.value;
  } else {
    request.strategy += fmt::format(",{}{}", used.option, used.value);
  }
}

// The first difference between two plans, apart from their requests; empty: none.
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

// Checks the law for one request; the number of plans made with stated defaults.
int check_law(const PlanRequest& request) {
  const Result<Plan> plan = make_plan(request);
  if (!plan.ok()) return 0;
  const std::vector<UsedDefault> all = used_defaults(*plan);
  PlanRequest with_all = request;
  for (const UsedDefault& used : all) {
    PlanRequest explicit_request = request;
    state(explicit_request, used);
    state(with_all, used);
    const Result<Plan> again = make_plan(explicit_request);
    EXPECT_TRUE(again.ok()) << used.option << " " << used.value << ": " << again.error().message;
    if (again.ok()) {
      EXPECT_EQ(departure(*plan, *again), "") << used.option << " " << used.value;
    }
  }
  const Result<Plan> again = make_plan(with_all);
  EXPECT_TRUE(again.ok()) << again.error().message;
  if (again.ok()) {
    EXPECT_EQ(departure(*plan, *again), "") << "all of them";
    // What remains in the assumptions are no defaults that an option could state.
    EXPECT_TRUE(used_defaults(*again).empty()) << used_defaults(*again).front().option;
  }
  return static_cast<int>(all.size()) + 1;
}

TEST(Defaults, StatingThemChangesNothing) {
  const char* const strategies[] = {
      "tp=1",  "tp=2", "pp=2",      "tp=2,pp=2", "pp=4,schedule=gpipe", "pp=2,vpp=2", "fsdp=4", "h=2",
      "mbs=4", "ga=4", "pp=2,ga=8", "cp=2",      "tp=2,cp=2,zero=1"};
  int stated = 0, plans = 0;
  for (const SmallModel& model : small_families())
    for (const char* cluster : {"dgx-a100:1", "dgx-h100:3", "p100x4:2"})
      for (const char* strategy : strategies) {
        SCOPED_TRACE(fmt::format("{} on {} by {}", model.spec, cluster, strategy));
        const PlanRequest request{.model = model.spec, .cluster = cluster, .strategy = strategy};
        const int these = check_law(request);
        stated += these;
        plans += these > 0 ? 1 : 0;
      }
  EXPECT_GT(plans, 500);
  fmt::print("{} plans, {} times a default stated\n", plans, stated);
}

// An imported model has a number type of its own, and a strategy file a count of micro-batches.
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

// 256 samples on 8 devices are one micro-batch of 32 each; larger batches have the largest micro-batches up to 32 that
// divide them: 250 per replica are 10 of 25, since 8 of 32 would be 256.
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
