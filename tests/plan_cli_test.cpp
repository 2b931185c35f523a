// weft plan, end to end, as text and as JSON; its error messages are in tests/errors/plan.txt.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"
#include "report/plan_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

struct Outcome {
  std::string text;
  int exit_code = -1;
};

Outcome run(const std::string& arguments) {
  const std::string command = "'" + environment("WEFT_BIN") + "' " + arguments + " 2>/dev/null < /dev/null";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Json schema(const char* name) {
  return Json::parse(text_of(fs::path(environment("WEFT_SOURCE_DIR")) / "docs/schema" / name));
}

const std::string kSmall = "plan --model gpt2-124m --cluster dgx-a100:1 --global-batch 64 ";

// A plan for devices of two kinds is a tree: what is written simulates as it was found, and tells what each kind does.
TEST(PlanCli, PlansOfSeveralKindsSimulateAsTheyWereFound) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("weft_mixed_{}", ::getpid());
  const Outcome found =
      run("plan --model gpt2-124m --cluster dgx-h100:1+dgx-a100:1 --global-batch 64 --json --out " + folder.string());
  ASSERT_EQ(found.exit_code, 0);
  const Json json = Json::parse(found.text);
  EXPECT_EQ(departures(json, schema("plan.schema.json")), std::vector<std::string>{});
  ASSERT_EQ(json["kinds"].size(), 2u);
  EXPECT_EQ(json["kinds"][0]["kind"], "h100-sxm");
  EXPECT_TRUE(json["baselines"].contains("8 h100-sxm alone"));
  EXPECT_TRUE(json["baselines"].contains("8 a100-80-sxm alone"));
  for (const Json& kind : json["kinds"])
    EXPECT_EQ(kind["why_left_out"] == "", kind["used"] == kind["devices"]) << kind.dump();
  const Outcome again = run("simulate " + (folder / "plan.json").string() + " --json");
  EXPECT_EQ(Json::parse(again.text)["step_time_s"], json["best"]["step_time_s"]);
  const Outcome by_tree =
      run("simulate --model gpt2-124m --cluster dgx-h100:1+dgx-a100:1 --global-batch 64 --strategy " +
          (folder / "strategy.yaml").string() + " --json");
  EXPECT_EQ(Json::parse(by_tree.text)["step_time_s"], json["best"]["step_time_s"]);
  fs::remove_all(folder);
}

TEST(PlanCli, JsonIsAsItsSchemaSays) {
  const Json plan = schema("plan.schema.json"), simulation = schema("simulate.schema.json");
  for (const std::string& words :
       {kSmall + "--tokens 10B", std::string("plan --model resnet50 --cluster dgx-a100:1 --budget 6"),
        std::string("plan --model llama3-70b --cluster dgx-a100:1 --global-batch 8")}) {
    const Outcome outcome = run(words + " --json");
    const Json json = Json::parse(outcome.text);
    EXPECT_EQ(departures(json, plan), std::vector<std::string>{}) << words;
    EXPECT_EQ(outcome.exit_code, json["feasible"] ? 0 : 1);
    if (!json["feasible"]) {
      EXPECT_GT(json["closest"]["overshoot_bytes"], 0);
      continue;
    }
    EXPECT_EQ(departures(json["best"], simulation), std::vector<std::string>{}) << words;
    EXPECT_EQ(json["best"]["step_time_s"], json["candidates"][0]["step_time_s"]);
    for (const auto& [name, baseline] : json["baselines"].items())
      EXPECT_TRUE(!baseline["feasible"] || json["best"]["step_time_s"] <= baseline["step_time_s"]) << name;
    EXPECT_FALSE(json.contains("timing_s"));
  }
}

TEST(PlanCli, PrintsTheSameOnAnyNumberOfThreads) {
  const std::string once = run(kSmall + "--json --threads 1").text;
  EXPECT_EQ(once, run(kSmall + "--json --threads 2").text);
  EXPECT_EQ(run(kSmall).text, run(kSmall).text);
  EXPECT_NE(run(kSmall + "--timing").text.find(" simulated) in "), std::string::npos);
}

TEST(PlanCli, WritesAPlanThatIsStableAndCompilesToTheSameProgram) {
  const fs::path folder = fs::path(::testing::TempDir()) / "weft_plan_test";
  fs::remove_all(folder);
  ASSERT_EQ(run(kSmall + "--trace --out '" + folder.string() + "/deeper'").exit_code, 0);
  const fs::path inside = folder / "deeper";
  const std::string text = text_of(inside / "plan.json");
  EXPECT_EQ(departures(Json::parse(text), schema("plan-file.schema.json")), std::vector<std::string>{});
  EXPECT_FALSE(Json::parse(text_of(inside / "trace.json"))["traceEvents"].empty());

  const Result<PlanFile> file = read_plan_file(inside / "plan.json");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(print(*file), text);
  const Result<Plan> plan = make_plan(file->request());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const Result<CompiledStrategy> compiled = compile_plan(*plan);
  ASSERT_TRUE(compiled.ok());
  EXPECT_EQ(fingerprint(compiled->program, plan->training().graph), file->program);

  // The tree alone gives the same plan.
  const Json again =
      Json::parse(run("simulate --model gpt2-124m --cluster dgx-a100:1 --global-batch 64 --json --strategy '" +
                      (inside / "strategy.yaml").string() + "'")
                      .text);
  EXPECT_EQ(again["step_time_s"], file->prediction["step_time_s"]);
  for (const fs::directory_entry& entry : fs::directory_iterator(inside))
    EXPECT_TRUE(entry.path().extension() == ".json" || entry.path().extension() == ".yaml") << entry.path();
  fs::remove_all(folder);
}

// A decision for every operator: never slower than data parallelism, and the file is simulated in the time printed.
TEST(PlanCli, SearchesOperatorGraphs) {
  const fs::path folder = fs::temp_directory_path() / "weft_plan_cli_test_soap";
  for (const char* search : {"exact", "symbolic", "mcmc"}) {
    fs::remove_all(folder);
    const std::string words = "--model lenet --cluster p100x4:1 --global-batch 256 --json ";
    const Outcome outcome =
        run("plan " + words + "--budget 50 --search " + search + " --out '" + folder.string() + "'");
    ASSERT_EQ(outcome.exit_code, 0) << search;
    const Json json = Json::parse(outcome.text);
    EXPECT_EQ(departures(json, schema("plan.schema.json")), std::vector<std::string>{}) << search;
    EXPECT_EQ(json["search"], search);
    EXPECT_LE(json["best"]["step_time_s"], json["baselines"]["data parallel"]["step_time_s"]) << search;
    EXPECT_GE(json["best"]["step_time_s"], json["lower_bound_s"]) << search;
    if (json["shorthand"] == (folder / "strategy.yaml").string()) {
      EXPECT_EQ(Json::parse(run("simulate " + words + "--strategy '" + (folder / "strategy.yaml").string() + "'")
                                .text)["step_time_s"],
                json["best"]["step_time_s"]);
    }
  }
  fs::remove_all(folder);
  // Without --out the tree is printed, by runs of operators.
  const Outcome printed = run("plan --model lenet --cluster p100x4:1 --global-batch 256 --budget 50 --search mcmc");
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_NE(printed.text.find("a decision for every operator (mcmc)"), std::string::npos) << printed.text;
}

// Models without equal layers get both searches: the result is never worse than either.
TEST(PlanCli, AutoSearchesOperatorsOfModelsWithoutAlikeLayers) {
  const std::string words = "plan --model alexnet --cluster p100x4:1 --global-batch 128 --budget 200 --json --search ";
  const Json both = Json::parse(run(words + "auto").text), hybrid = Json::parse(run(words + "enumerate").text);
  EXPECT_EQ(departures(both, schema("plan.schema.json")), std::vector<std::string>{});
  EXPECT_EQ(both["search"], "enumerate and mcmc");
  EXPECT_LT(both["best"]["step_time_s"], hybrid["best"]["step_time_s"]);  // its fully connected layers
  EXPECT_GT(both["lower_bound_s"], 0);
  EXPECT_LE(both["lower_bound_s"], both["best"]["step_time_s"]);
  EXPECT_EQ(both["shorthand"], nullptr);
  EXPECT_NE(both["tree"].get<std::string>().find("classifier.fc1"), std::string::npos);
  EXPECT_EQ(run(words + "auto --threads 1").text, run(words + "auto --threads 2").text);
}

// A plan file alone reproduces the prediction to the picosecond: hybrid plans and trees.
TEST(PlanCli, SimulatesWhatAPlanFileHolds) {
  const fs::path folder = fs::path(::testing::TempDir()) / "weft_plan_file_test";
  for (const std::string& words :
       {kSmall + "--headroom 10",
        std::string("plan --model alexnet --cluster p100x4:1 --global-batch 128 --budget 200")}) {
    fs::remove_all(folder);
    ASSERT_EQ(run(words + " --out '" + folder.string() + "'").exit_code, 0) << words;
    EXPECT_EQ(departures(Json::parse(text_of(folder / "plan.json")), schema("plan-file.schema.json")),
              std::vector<std::string>{});
    fs::remove(folder / "strategy.yaml");  // the file has all of it
    const std::string file = "'" + (folder / "plan.json").string() + "'";
    const Outcome again = run("simulate " + file + " --json");
    EXPECT_EQ(again.exit_code, 0);
    const Json json = Json::parse(again.text);
    EXPECT_EQ(departures(json, schema("simulate.schema.json")), std::vector<std::string>{});
    EXPECT_EQ(json["plan_file"]["same_program"], true);
    const Json prediction = Json::parse(text_of(folder / "plan.json"))["prediction"];
    for (const auto& [key, value] : prediction.items()) EXPECT_EQ(json[key], value) << words << ": " << key;
    EXPECT_EQ(run("simulate --plan " + file + " --json").text, again.text);
    EXPECT_EQ(run("simulate " + file + " --seq 512").exit_code, 2) << "the file says it";
  }
  fs::remove_all(folder);
}

TEST(PlanCli, APlanFileThatIsNoneIsTold) {
  EXPECT_EQ(parse_plan_file("[1]", "x.json").error().message, "x.json: not a JSON object; is it a plan.json?");
  EXPECT_EQ(parse_plan_file("{}", "x.json").error().message,
            "x.json: 'weft_plan' is missing; is it a plan.json of weft plan --out?");
  EXPECT_EQ(parse_plan_file(R"({"weft_plan": 2})", "x.json").error().message,
            "x.json: a plan of version 2; this weft reads version 1");
  EXPECT_EQ(parse_plan_file(R"({"weft_plan": 1, "model": 3})", "x.json").error().message,
            "x.json: 'model' is of another type");
  EXPECT_EQ(parse_plan_file(R"({"weft_plan": 1e300})", "x.json").error().message,
            "x.json: 'weft_plan' is not a whole number");
}

TEST(PlanCli, ExplainsWhyAndWhatIf) {
  const std::string text = run(kSmall + "--explain").text;
  for (const char* part : {"why ", " takes ", "memory of the winner", "its tree", "bandwidth × 2", "memory × 2",
                           "batch × 2", "time against memory"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

// Without --trace the folder has no trace, which may be large.
TEST(PlanCli, WritesNoTraceUnasked) {
  const fs::path folder = fs::path(::testing::TempDir()) / "weft_plan_untraced";
  fs::remove_all(folder);
  ASSERT_EQ(run(kSmall + "--budget 4 --out '" + folder.string() + "'").exit_code, 0);
  EXPECT_TRUE(fs::exists(folder / "plan.json") && fs::exists(folder / "strategy.yaml"));
  EXPECT_FALSE(fs::exists(folder / "trace.json"));
  fs::remove_all(folder);
}

TEST(PlanCli, ObeysWhatIsDemanded) {
  const Json json = Json::parse(
      run(kSmall + "--json --budget 12 --fix tp=2 --limit mbs=4 --without zero1,recompute=full --max-memory 30GiB")
          .text);
  ASSERT_TRUE(json["feasible"]);
  EXPECT_EQ(json["constraints"],
            Json({"--fix tp=2", "--limit mbs=4", "--without zero1", "--without recompute=full", "--max-memory 30GiB"}));
  EXPECT_GT(json["counts"]["pruned"]["not allowed"], 0);
  for (const Json& plan : json["candidates"]) {
    const std::string words = plan["strategy"];
    EXPECT_NE(words.find("tp=2,"), std::string::npos) << words;
    EXPECT_EQ(words.find("zero=1"), std::string::npos) << words;
    EXPECT_EQ(words.find("recompute=full"), std::string::npos) << words;
    EXPECT_LE(plan["device_bytes"], std::int64_t{30} << 30);
  }
  // A named stack limits plans to what it can run; --any-stack does not.
  const std::string ddp = kSmall + "--json --budget 12 --stack pytorch-ddp ";
  for (const Json& plan : Json::parse(run(ddp).text)["candidates"])
    EXPECT_EQ(plan["strategy"].get<std::string>().find("tp=1,pp=1"), 0U) << plan["strategy"];
  EXPECT_EQ(run(ddp + "--fix tp=4").exit_code, 2);
  // (DDP pads no vocabulary, so four parts need one that they divide.)
  EXPECT_EQ(run("plan --model gpt2-124m:vocab=50304 --cluster dgx-a100:1 --global-batch 64 --json --budget 12 "
                "--stack pytorch-ddp --fix tp=4 --any-stack")
                .exit_code,
            0);
}

// Rows of the table, with spaces, and counted stages are strategies as they stand.
TEST(PlanCli, ReadsBackWhatItPrints) {
  const Json json = Json::parse(run("plan --model gpt2-124m:layers=10 --cluster dgx-a100:1 --global-batch 64 --json "
                                    "--budget 8 --fix pp=4 --top 3")
                                    .text);
  ASSERT_FALSE(json["candidates"].empty());
  for (const Json& plan : json["candidates"]) {
    std::string row = plan["strategy"];
    std::replace(row.begin(), row.end(), ',', ' ');
    const Json again = Json::parse(run("simulate --model gpt2-124m:layers=10 --cluster dgx-a100:1 --global-batch 64 "
                                       "--json --strategy '" +
                                       row + "'")
                                       .text);
    EXPECT_EQ(again["step_time_s"], plan["step_time_s"]) << row;
  }
  const std::string words =
      "simulate --model gpt2-124m:layers=10 --cluster dgx-a100:1 --global-batch 64 --json --strategy ";
  const Json counted = Json::parse(run(words + "pp=8,stages=2+6x1+2").text);
  EXPECT_EQ(counted["step_time_s"], Json::parse(run(words + "pp=8,stages=2+1+1+1+1+1+1+2").text)["step_time_s"]);
  EXPECT_EQ(counted["step_time_s"], Json::parse(run(words + "pp=8,stages=2+6×1+2").text)["step_time_s"]);
}

TEST(PlanCli, PlansOddSequences) {
  const Outcome odd = run("plan --model gpt2-124m --cluster dgx-a100:1 --global-batch 64 --seq 1001 --budget 4 --json");
  ASSERT_EQ(odd.exit_code, 0);
  EXPECT_EQ(Json::parse(odd.text)["seq"], 1001);
  EXPECT_EQ(
      Json::parse(
          run("plan --model gpt2-124m --cluster dgx-a100:1 --global-batch 64 --seq 1k --budget 4 --json").text)["seq"],
      1024);
}

// The default batch has divisors in common with the devices: 500 of about 512 samples for 1,000 devices would be less
// than one each, so 72 devices (9 nodes) take 576 = 72 · 8.
TEST(PlanCli, ChoosesABatchThatTheDevicesDivide) {
  const Json json =
      Json::parse(run("plan --model llama3-8b:layers=2 --cluster dgx-h100:9 --seq 8k --budget 2 --json").text);
  EXPECT_EQ(json["global_batch"], 576);
}

// Momentum has one state of a parameter, AdamW two, in bf16 half the bytes; gradients reduced in another type.
TEST(PlanCli, OptimizersHaveTheirStates) {
  const std::string words = "simulate --model gpt2-124m --cluster dgx-a100:1 --strategy dp=8 --global-batch 64 --json ";
  const auto states = [&](const std::string& more) {
    return Json::parse(run(words + more).text)["memory"][0]["optimizer"].get<double>();
  };
  const double adamw = states(""), bf16 = states("--optimizer adamw:moments=bf16"),
               momentum = states("--optimizer momentum"), sgd = states("--optimizer sgd");
  const double moment = adamw - momentum;  // 4 bytes per parameter
  EXPECT_NEAR(moment, 4 * 124.5e6, 0.01 * moment);
  EXPECT_NEAR(adamw - bf16, moment, 0.01 * moment);  // twice two bytes less
  EXPECT_NEAR(momentum - sgd, moment, 0.01 * moment);
  const auto sent = [&](const std::string& more) {
    return Json::parse(run(words + more).text)["breakdown_s"]["exposed_data"].get<double>();
  };
  EXPECT_LT(sent("--reduce-dtype bf16"), sent("--reduce-dtype fp32"));
}

TEST(PlanCli, SweepsSizesAndNamesTheCheapest) {
  const std::string words =
      "plan --model gpt2-124m --cluster dgx-a100:1 --global-batch 64 --budget 4 --sweep nodes=1..4 --price 2 --tokens "
      "10B ";
  const Outcome outcome = run(words + "--json");
  ASSERT_EQ(outcome.exit_code, 0);
  const Json json = Json::parse(outcome.text);
  EXPECT_EQ(departures(json, schema("sweep.schema.json")), std::vector<std::string>{});
  ASSERT_EQ(json["points"].size(), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& point = json["points"][i];
    EXPECT_EQ(point["devices"], 8 << i);
    EXPECT_EQ(point["global_batch"], 64);  // strong scaling
    // 2 dollars an hour for every device.
    EXPECT_NEAR(point["dollars_per_step"].get<double>(), 2 * (8 << i) * point["step_time_s"].get<double>() / 3600,
                1e-9);
  }
  EXPECT_EQ(json["points"][0]["efficiency"], 1);
  EXPECT_LT(json["points"][2]["efficiency"], 1);
  EXPECT_EQ(json["cheapest"], 0);
  // The point is the plan that the same question finds alone.
  const Json alone =
      Json::parse(run("plan --model gpt2-124m --cluster dgx-a100:2 --global-batch 64 --budget 4 --json").text);
  EXPECT_EQ(json["points"][1]["step_time_s"], alone["best"]["step_time_s"]);
  const Json weak = Json::parse(run(words + "--json --weak").text);
  EXPECT_EQ(weak["points"][2]["global_batch"], 256);
  const std::string text = run(words).text;
  EXPECT_NE(text.find("cheapest: nodes=1"), std::string::npos) << text;
  EXPECT_NE(text.find("█"), std::string::npos) << text;
}

TEST(PlanCli, ComparesPlansByWhatDiffers) {
  const std::string words = "compare --model gpt2-124m --cluster dgx-a100:1 --global-batch 64 ";
  const Outcome outcome = run(words + "tp=2,dp=4 pp=2,dp=4,mbs=2 --json");
  ASSERT_EQ(outcome.exit_code, 0);
  const Json json = Json::parse(outcome.text);
  EXPECT_EQ(departures(json, schema("compare.schema.json")), std::vector<std::string>{});
  EXPECT_EQ(departures(json["a"], schema("simulate.schema.json")), std::vector<std::string>{});
  std::vector<std::string> keys;
  for (const Json& each : json["differs"]) keys.push_back(each["what"]);
  EXPECT_EQ(keys, (std::vector<std::string>{"tp", "pp", "sp", "mbs"}));
  // The parts of the time sum to the step.
  for (const char* side : {"a", "b"}) {
    double sum = 0;
    for (const auto& [key, row] : json["time_s"].items()) sum += row[side].get<double>();
    EXPECT_NEAR(sum, json[side]["step_time_s"].get<double>(), 1e-9);
  }
  EXPECT_NE(run(words + "tp=2,dp=4 tp=2,dp=4").text.find("nothing differs"), std::string::npos);
  EXPECT_EQ(run("compare tp=2,dp=4 tp=4,dp=2").exit_code, 2);
}

// The first of four stages has one layer: it waits more than it works, and says nothing of where the time goes.
TEST(PlanCli, NeverExplainsAStepByAnIdleStage) {
  const Json json = Json::parse(run("simulate --model gpt2-124m --cluster dgx-a100:1 --global-batch 64 --json "
                                    "--strategy pp=4,dp=2,stages=1+5+5+1,mbs=2")
                                    .text);
  for (const Json& rank : json["last_ranks"]) EXPECT_GE(rank, 2);  // the first stage has ranks 0 and 1
  double sum = 0;
  for (const auto& [part, time] : json["breakdown_s"].items()) sum += time.get<double>();
  EXPECT_NEAR(sum, json["step_time_s"].get<double>(), 1e-9);
  EXPECT_GT(json["breakdown_s"]["compute"].get<double>(), 0.5 * json["step_time_s"].get<double>());
  // Equal stages with a small vocabulary are nearly balanced.
  const Json even =
      Json::parse(run("simulate --model gpt2-124m:vocab=1000 --cluster dgx-a100:1 --global-batch 64 --json "
                      "--strategy pp=4,dp=2,stages=3+3+3+3,mbs=2")
                      .text);
  EXPECT_LT(even["breakdown_s"]["imbalance"].get<double>(), 0.1 * even["step_time_s"].get<double>());
}

}  // namespace
}  // namespace weft
