// The command line, end to end. Each file of tests/errors and tests/golden has commands and their output:
//
//   $ weft show model lama3-8b
//   weft: model 'lama3-8b': not in the zoo; did you mean …
//   [exit 2]
//
// stdout and stderr are compared together; UPDATE_GOLDEN=1 rewrites the files for review.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "json_schema.h"

namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct Outcome {
  std::string text;
  int exit_code = -1;
};

// Runs "weft …" in the repository root.
Outcome run(const std::string& arguments, bool with_stderr = true) {
  const std::string command = "cd '" + environment("WEFT_SOURCE_DIR") + "' && '" + environment("WEFT_BIN") + "' " +
                              arguments + (with_stderr ? " 2>&1" : " 2>/dev/null") + " < /dev/null";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.text.append(buffer, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string replay(const std::string& text) {
  std::istringstream lines(text);
  std::string result, line;
  while (std::getline(lines, line)) {
    if (line.rfind("# ", 0) == 0) result += line + "\n";
    if (line.rfind("$ weft", 0) != 0) continue;
    const Outcome outcome = run(line.substr(6));
    result += line + "\n" + outcome.text;
    if (!outcome.text.empty() && outcome.text.back() != '\n') result += "\n";
    result += "[exit " + std::to_string(outcome.exit_code) + "]\n\n";
  }
  return result;
}

void check_folder(const std::string& folder) {
  int files = 0;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(environment("WEFT_SOURCE_DIR")) / "tests" / folder)) {
    std::ifstream file(entry.path());
    const std::string expected((std::istreambuf_iterator<char>(file)), {});
    const std::string actual = replay(expected);
    if (!environment("UPDATE_GOLDEN").empty()) std::ofstream(entry.path()) << actual;
    EXPECT_EQ(actual, expected) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST(Cli, ErrorsSayWhatIsWrongAndWhatToDo) { check_folder("errors"); }

// With stdout redirected; the captured text is stderr.
Outcome run_with_stdout(const std::string& arguments, const std::string& redirection) {
  return run(arguments + " 3>&1 1>" + redirection + " 2>&3 3>&-; exit $?; :", true);
}

// A full disk, and a caller that has closed stdout: the answer is lost, which is reported.
TEST(Cli, AnAnswerThatCannotBeWrittenIsAFailure) {
  const std::string plan = "--model gpt2-124m:layers=2 --cluster dgx-a100:1 --strategy dp=8 --global-batch 8 --seq 64";
  const std::string commands[] = {"--help",
                                  "--version",
                                  "show models",
                                  "show model gpt2-124m --json",
                                  "show cluster dgx-a100:1 --json",
                                  "show strategy --json " + plan,
                                  "show program --json " + plan,
                                  "simulate " + plan,
                                  "simulate --json " + plan,
                                  "plan --json --budget 4 --model gpt2-124m:layers=2 --cluster dgx-a100:1 --seq 64"};
  for (const std::string& command : commands) {
    const Outcome full = run_with_stdout(command, "/dev/full");
    EXPECT_EQ(full.text, "weft: stdout: cannot be written: No space left on device\n") << command;
    EXPECT_EQ(full.exit_code, 1) << command;
  }
  const Outcome closed = run_with_stdout("show models", "&-");
  EXPECT_EQ(closed.text, "weft: stdout: cannot be written: Bad file descriptor\n");
  EXPECT_EQ(closed.exit_code, 1);
}

TEST(Cli, AFileThatCannotBeWrittenIsAFailureAndTheAnswerIsPrinted) {
  const std::string plan = "--model gpt2-124m:layers=2 --cluster dgx-a100:1 --strategy dp=8 --global-batch 8 --seq 64";
  const Outcome trace = run("simulate " + plan + " --json --trace /dev/full");
  EXPECT_EQ(trace.exit_code, 1);
  EXPECT_NE(trace.text.find("\"step_time_s\""), std::string::npos);
  EXPECT_NE(trace.text.find("weft: --trace: /dev/full: cannot be written: No space left on device\n"),
            std::string::npos);
  // With stdout closed, the trace file must not get its descriptor: it contains the trace and nothing else.
  const fs::path path = fs::path(::testing::TempDir()) / "weft_cli_closed.json";
  const Outcome closed = run_with_stdout("simulate " + plan + " --trace " + path.string(), "&-");
  EXPECT_EQ(closed.exit_code, 1);
  std::ifstream file(path);
  EXPECT_TRUE(nlohmann::json::parse(file, nullptr, false).is_object());
  fs::remove(path);
  // Reported before the search.
  const fs::path folder = fs::path(::testing::TempDir()) / "weft_cli_out";
  fs::create_directories(folder / "plan.json");
  const Outcome out = run("plan --model gpt2-124m:layers=2 --cluster dgx-a100:1 --seq 64 --out " + folder.string());
  EXPECT_EQ(out.exit_code, 2);
  EXPECT_EQ(out.text, "weft: --out: " + (folder / "plan.json").string() + ": cannot be written: Is a directory\n");
  fs::remove_all(folder);
}

// A name that is not valid UTF-8 does not prevent a model from being shown.
TEST(Cli, JsonOfANameThatIsNoUtf8HasItReplaced) {
  const fs::path path = fs::path(::testing::TempDir()) / "weft_\xff.json";
  std::ofstream(path) << R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256,
                               "n_positions": 128})";
  const Outcome shown = run("show model '" + path.string() + "' --json", false);
  fs::remove(path);
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_TRUE(nlohmann::json::parse(shown.text, nullptr, false).is_object());
}

TEST(Cli, OutputReadsAsRecorded) { check_folder("golden"); }

TEST(Cli, JsonIsOneObjectWithThePromisedKeys) {
  const Outcome model = run("show model gpt2-124m --json", false);
  ASSERT_EQ(model.exit_code, 0);
  const auto json = nlohmann::json::parse(model.text);
  for (const char* key : {"parameters", "active_parameters", "flops_forward", "flops_training", "operators", "tensors"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["parameters"], 124439808);
  const auto cluster = nlohmann::json::parse(run("show cluster dgx-h100:16 --json", false).text);
  EXPECT_EQ(cluster["devices"], 128);
  EXPECT_EQ(cluster["nodes"], 16);
}

TEST(Cli, JsonOfSymbolicCostsIsAsItsSchemaSaysAndAddsUp) {
  std::ifstream file(fs::path(environment("WEFT_SOURCE_DIR")) / "docs/schema/show-costs.schema.json");
  const auto schema = nlohmann::json::parse(file);
  const Outcome outcome =
      run("show strategy --model gpt2-124m:layers=2 --cluster dgx-a100:1 --strategy tp=2,pp=2,dp=2 --costs symbolic "
          "--tiers "
          "dp=8 --json",
          false);
  ASSERT_EQ(outcome.exit_code, 0);
  const auto json = nlohmann::json::parse(outcome.text);
  EXPECT_EQ(weft::departures(json, schema), std::vector<std::string>{});
  ASSERT_EQ(json["ranks"].size(), 2u);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    double flops = 0, bytes = 0;
    for (const auto& each : json["products"])
      flops += each["flops_once"].get<double>() * each["times"][rank].get<double>();
    for (const auto& each : json["communication"])
      bytes += each["bytes_once"].get<double>() * each["times"][rank].get<double>();
    EXPECT_NEAR(json["ranks"][rank]["flops"], flops, 1e-9 * flops);
    EXPECT_NEAR(json["ranks"][rank]["bytes"], bytes, 1e-9 * bytes);
    EXPECT_GT(json["ranks"][rank]["weighted"], json["ranks"][rank]["bytes"]);
  }
}

TEST(Cli, JsonOfPlansIsAsTheirSchemasSay) {
  const std::vector<std::string> plans = {
      "--model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1",
      "--model mixtral-8x7b --cluster dgx-h100:1 --strategy ep=8,recompute=selective",
      "--model resnet50 --cluster dgx-a100:1 --strategy dp=4,h=2",
  };
  for (const std::string what : {"strategy", "program"}) {
    std::ifstream file(fs::path(environment("WEFT_SOURCE_DIR")) / "docs/schema" / ("show-" + what + ".schema.json"));
    const auto schema = nlohmann::json::parse(file);
    for (const std::string& plan : plans) {
      const Outcome outcome = run("show " + what + " " + plan + " --json", false);
      ASSERT_EQ(outcome.exit_code, 0) << plan;
      const auto json = nlohmann::json::parse(outcome.text);
      EXPECT_EQ(weft::departures(json, schema), std::vector<std::string>{}) << plan;
      // The checker can fail: on a missing key, or one of another type.
      nlohmann::json broken = json;
      broken.erase("memory");
      broken["traffic"][0]["group"] = 1;
      EXPECT_EQ(weft::departures(broken, schema).size(), 2u);
    }
  }
}

TEST(Cli, JsonOfSimulationsIsAsItsSchemaSays) {
  std::ifstream file(fs::path(environment("WEFT_SOURCE_DIR")) / "docs/schema/simulate.schema.json");
  const auto schema = nlohmann::json::parse(file);
  const std::vector<std::pair<std::string, int>> plans = {
      {"--model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1,ga=4", 0},
      {"--model mixtral-8x7b --cluster dgx-h100:1 --strategy ep=8,recompute=selective", 1},  // does not fit
      {"--model resnet50 --cluster dgx-a100:1 --strategy dp=4,h=2 --network fifo --no-fold", 0},
  };
  for (const auto& [plan, exit_code] : plans) {
    const Outcome outcome = run("simulate " + plan + " --json", false);
    ASSERT_EQ(outcome.exit_code, exit_code) << plan;
    EXPECT_EQ(outcome.text, run("simulate " + plan + " --json", false).text);  // the same bytes twice
    const auto json = nlohmann::json::parse(outcome.text);
    EXPECT_EQ(weft::departures(json, schema), std::vector<std::string>{}) << plan;
    EXPECT_EQ(json["feasible"], exit_code == 0);
    EXPECT_EQ(json.contains("tokens_per_s"), plan.find("resnet") == std::string::npos);
    double sum = 0, path = 0;
    for (const auto& [part, time] : json["breakdown_s"].items()) sum += time.get<double>();
    for (const auto& stretch : json["critical_path"]) path += stretch["time_s"].get<double>();
    EXPECT_NEAR(sum / json["step_time_s"].get<double>(), 1, 1e-12);
    EXPECT_NEAR(path / json["step_time_s"].get<double>(), 1, 1e-12);
    EXPECT_FALSE(json.contains("timing_s"));
  }
  const auto timed = nlohmann::json::parse(run("simulate " + plans[2].first + " --json --timing", false).text);
  EXPECT_EQ(weft::departures(timed, schema), std::vector<std::string>{});
  EXPECT_TRUE(timed.contains("timing_s"));
}

TEST(Cli, AProfileIsImportedExportedMergedAndPredictedFrom) {
  const fs::path folder = fs::path(::testing::TempDir()) / "weft_cli_test_profile";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto at = [&](const char* name) { return (folder / name).string(); };
  const Outcome imported = run("profile import --db " + at("a.db") + " measurements/h200/operators.csv");
  ASSERT_EQ(imported.exit_code, 0) << imported.text;
  EXPECT_NE(imported.text.find("4,177 rows, 126 skipped"), std::string::npos) << imported.text;
  const std::string table = run("profile export --db " + at("a.db"), false).text;
  std::ofstream(at("a.csv")) << table;
  ASSERT_EQ(run("profile import --db " + at("b.db") + " " + at("a.csv")).exit_code, 0);
  EXPECT_EQ(run("profile export --db " + at("b.db"), false).text, table);
  const Outcome merged = run("profile merge --db " + at("b.db") + " " + at("a.db"));
  EXPECT_NE(merged.text.find("0 new samples"), std::string::npos) << merged.text;
  EXPECT_EQ(nlohmann::json::parse(run("show profile " + at("b.db") + " --json", false).text)["events"], 4051);

  std::ifstream file(fs::path(environment("WEFT_SOURCE_DIR")) / "docs/schema/simulate.schema.json");
  const auto schema = nlohmann::json::parse(file);
  const std::string plan = "simulate --model gpt2-124m --cluster dgx-h200:1 --strategy dp=8 --global-batch 256 ";
  const auto measured = nlohmann::json::parse(run(plan + "--cost measured --db " + at("a.db") + " --json", false).text);
  EXPECT_EQ(weft::departures(measured, schema), std::vector<std::string>{});
  double sum = 0;
  for (const auto& [origin, share] : measured["evidence"]["time_share"].items()) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_GT(measured["evidence"]["time_share"]["measured"].get<double>(), 0);
  EXPECT_GT(measured["evidence"]["uncertainty"].get<double>(), 0);
  const auto symbolic = nlohmann::json::parse(run(plan + "--cost symbolic --json", false).text);
  EXPECT_EQ(weft::departures(symbolic, schema), std::vector<std::string>{});
  EXPECT_EQ(symbolic["units"], "relative");
  const Outcome other =
      run("simulate --model gpt2-124m --cluster dgx-a100:1 --strategy dp=8 --cost measured --db " + at("a.db"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.text.find("no events of a100"), std::string::npos) << other.text;
  fs::remove_all(folder);
}

TEST(Cli, ATraceIsWrittenWholeOrNotAtAll) {
  const std::string plan = "simulate --model gpt2-124m:layers=2 --cluster dgx-a100:1 --strategy pp=2,dp=4,ga=4 ";
  const std::string path = ::testing::TempDir() + "weft_cli_test_trace.json";
  const auto text = [&] {
    std::ifstream file(path);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  ASSERT_EQ(run(plan + "--trace " + path).exit_code, 0);
  const std::string first = text();
  EXPECT_FALSE(nlohmann::json::parse(first)["traceEvents"].empty());
  ASSERT_EQ(run(plan + "--trace " + path).exit_code, 0);
  EXPECT_EQ(text(), first);
  std::remove(path.c_str());
  // An invalid plan leaves no files.
  EXPECT_EQ(run("simulate --model gpt2-124m --cluster dgx-a100:1 --strategy pp=3 --trace " + path).exit_code, 2);
  EXPECT_FALSE(fs::exists(path));
  for (const fs::directory_entry& entry : fs::directory_iterator(::testing::TempDir()))
    EXPECT_EQ(entry.path().string().find("weft_cli_test_trace"), std::string::npos) << entry.path();
}

// The output of --yaml is read back as the same plan.
TEST(Cli, AStrategyFileIsReadBack) {
  const std::string plan = "show strategy --model llama3-8b --cluster dgx-h100:2 ";
  const std::string path = ::testing::TempDir() + "weft_cli_test.yaml";
  std::ofstream(path) << run(plan + "--strategy tp=4,pp=2,dp=2,zero=1 --yaml", false).text;
  auto json = [&](const std::string& strategy) {
    auto found = nlohmann::json::parse(run(plan + "--strategy " + strategy + " --json", false).text);
    found.erase("assumptions");
    return found;
  };
  EXPECT_EQ(json("tp=4,pp=2,dp=2,zero=1"), json(path));
  std::remove(path.c_str());
}

TEST(Cli, TheTextFormOfATrainingStepIsPrinted) {
  const Outcome outcome = run("show model gpt2-124m --form text --training", false);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.text.find("grad layers.0.mlp.down@grad_weight = linear@grad_weight("), std::string::npos);
}

}  // namespace
