// weft plan, end to end, as text and as JSON; its error messages are in tests/errors/plan.txt.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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
  ASSERT_EQ(run(kSmall + "--out '" + folder.string() + "/deeper'").exit_code, 0);
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

}  // namespace
}  // namespace weft
