// weft export, weft simulate --from and weft plan --against, end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "json_schema.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

struct Outcome {
  std::string text;  // stdout and stderr
  int exit_code = -1;
};

class ExportCli : public testing::Test {
 protected:
  ExportCli() : folder_(fs::temp_directory_path() / ("weft-export-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~ExportCli() override { fs::remove_all(folder_); }

  Outcome run(const std::string& arguments, const char* errors = "2>&1") const {
    const std::string command = "cd '" + folder_.string() + "' && '" + std::getenv("WEFT_BIN") + "' " + arguments +
                                " " + errors + " < /dev/null";
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    char buffer[4096];
    for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.text.append(buffer, n);
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
  }
  Json json(const std::string& arguments) const { return Json::parse(run(arguments + " --json", "2>/dev/null").text); }
  void write(const char* name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  fs::path folder_;
};

const std::string kPlan =
    "--model gpt3-1.3b --cluster dgx-a100:1 --strategy tp=2,pp=2,dp=2,zero=1,mbs=2 --global-batch 32";

TEST_F(ExportCli, WhatIsExportedForMegatronIsSimulatedToTheSameTime) {
  ASSERT_EQ(run("export " + kPlan + " --to megatron --out train.sh").exit_code, 0);
  const Json direct = json("simulate " + kPlan), back = json("simulate --from megatron train.sh --cluster dgx-a100:1");
  EXPECT_EQ(direct["step_time_s"], back["step_time_s"]);
  EXPECT_EQ(direct["memory"], back["memory"]);
}

TEST_F(ExportCli, APresentRunIsComparedAndTheNewCommandLineReadsBack) {
  // Every layer recomputed where there is room: any search does better.
  ASSERT_EQ(run("export --model gpt3-1.3b --cluster dgx-a100:1 --strategy tp=2,pp=2,zero=1,recompute=full "
                "--global-batch 32 --to megatron "
                "--out train.sh")
                .exit_code,
            0);
  const Json found = json("plan --against train.sh --cluster dgx-a100:1 --budget 4");
  const std::string schema = std::string(std::getenv("WEFT_SOURCE_DIR")) + "/docs/schema/plan.schema.json";
  EXPECT_THAT(departures(found, Json::parse(std::ifstream(schema))), testing::IsEmpty());
  const Json& present = found["present"];
  EXPECT_EQ(present["trainer"], "megatron");
  ASSERT_TRUE(present["configuration"].is_string());
  write("better.sh", present["configuration"]);
  const Json better = json("simulate --from megatron better.sh --cluster dgx-a100:1");
  EXPECT_LT(better["step_time_s"].get<double>(), present["step_time_s"].get<double>());
  EXPECT_EQ(better["step_time_s"], found["best"]["step_time_s"]);
  // The user's own arguments are kept.
  EXPECT_THAT(present["configuration"].get<std::string>(), HasSubstr("--tokenizer-type NullTokenizer"));
}

TEST_F(ExportCli, BadInputIsNamedAndEndsWithTwo) {
  const auto refused = [&](const std::string& arguments, const char* why) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr(why)) << arguments;
  };
  refused("export " + kPlan + " --to megatorn", "target 'megatorn': unknown; there are megatron");
  refused("export --model gpt3-1.3b --cluster dgx-a100:1 --strategy dp=8,recompute=op --to megatron",
          "the nearest plan that megatron can express");
  refused("export --to megatron", "--model is required");
  write("plan.json", "{\"weft_plan\": 99}");
  refused("export plan.json --to megatron", "plan.json: a plan of version 99; this weft reads version 1");
  write("args.txt", "--num-layers 4\n--hidden-sise 64\n");
  refused("simulate --from megatron args.txt --cluster dgx-a100:1",
          "args.txt:2: --hidden-sise: no argument of Megatron-LM core 0.20.0");
  refused("plan --against args.txt --cluster dgx-a100:1", "args.txt:2: --hidden-sise");
  refused("simulate --from megatron missing.txt --cluster dgx-a100:1", "missing.txt");
  write("ds.json", "{\"train_micro_batch_size_per_gpu\": 1, \"fp16\": {\"enabled\": true}}");
  refused("simulate --from deepspeed ds.json --cluster dgx-a100:1",
          "--model is required: ds.json does not say what is trained");
  refused("simulate --from megatron ds.json --cluster dgx-a100:1", "ds.json:1: ");
  refused("simulate --from pytorch ds.json --cluster dgx-a100:1", "scripts for pytorch are written, not read");
}

}  // namespace
}  // namespace weft
