// Checkpoints of `weft run`: saved by one strategy and gone on from by another, killed and taken up again, and broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "run_process.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class RunCheckpoints : public testing::Test {
 protected:
  RunCheckpoints() {
    std::string path = (fs::temp_directory_path() / "weft-checkpoints-XXXXXX").string();
    directory_ = ::mkdtemp(path.data());
  }
  ~RunCheckpoints() override { fs::remove_all(directory_); }

  fs::path at(const std::string& name) const { return directory_ / name; }

 private:
  fs::path directory_;
};

// Losses by step.
using Losses = std::map<int, double>;

Losses losses(const std::string& strategy, int ranks, Words more, const std::string& dtype = "fp64") {
  more.insert(more.end(), {"--global-batch", "8", "--dtype", dtype, "--json"});
  Process process(words(strategy, ranks, more));
  EXPECT_EQ(process.wait(), 0) << process.text();
  Losses list;
  const nlohmann::json json = nlohmann::json::parse(process.text(), nullptr, false);
  if (json.is_discarded()) return list;
  for (const auto& step : json["steps"]) list[step["step"]] = step["loss"];
  for (const auto& check : json.value("check", nlohmann::json::array())) EXPECT_TRUE(check["ok"]) << check;
  return list;
}

bool is_partial(const fs::path& path) { return path.filename().string().starts_with(".partial"); }

// As Python's standard library reads it: a line for every tensor.
std::string read_by_python(const fs::path& checkpoint) {
  const std::string script = std::string(std::getenv("WEFT_SOURCE_DIR")) + "/tests/check_checkpoint.py";
  Process process({script, checkpoint}, {}, "/usr/bin/python3");
  EXPECT_EQ(process.wait(), 0) << process.text();
  return process.text();
}

void expect_told(const Words& list, const std::string& message) {
  Process process(list);
  EXPECT_EQ(process.wait(), 2) << process.text();
  const std::string text = process.text();
  EXPECT_THAT(text, HasSubstr(message));
  const std::size_t first = text.find("weft: ");
  EXPECT_EQ(text.find("weft: ", first + 1), std::string::npos) << "told twice:\n" << text;
}

TEST_F(RunCheckpoints, AnotherStrategyGoesOnAsIfNothingHadHappened) {
  const Losses straight = losses("dp=1", 1, {"--steps", "4"});
  struct Pair {
    const char* saved;
    int savers;
    const char* loaded;
    int loaders;
  };
  int pairs = 0;
  for (const Pair& each : {Pair{"tp=2", 2, "pp=2", 2},
                           {"pp=2,dp=2", 4, "dp=2,zero=3", 2},
                           {"dp=2,zero=3", 2, "tp=2", 2},
                           {"dp=2,zero=1", 2, "dp=1", 1},
                           {"dp=1", 1, "tp=2,dp=2,zero=1", 4}}) {
    const std::string to = at(std::to_string(pairs++));
    losses(each.saved, each.savers, {"--steps", "2", "--save", to});
    const Losses after = losses(each.loaded, each.loaders, {"--steps", "4", "--load", to, "--check"});
    ASSERT_EQ(after.size(), 2U) << each.saved << " -> " << each.loaded;
    for (const auto& [step, loss] : after)
      EXPECT_NEAR(loss, straight.at(step), 1e-9) << each.saved << " -> " << each.loaded << " step " << step;
  }
}

TEST_F(RunCheckpoints, SinglePrecisionGoesOnToItsRounding) {
  const Losses straight = losses("dp=1", 1, {"--steps", "4"}, "fp32");
  losses("tp=2", 2, {"--steps", "2", "--save", at("saved")}, "fp32");
  for (const auto& [step, loss] : losses("dp=2,zero=3", 2, {"--steps", "4", "--load", at("saved"), "--check"}, "fp32"))
    EXPECT_NEAR(loss, straight.at(step), 1e-5 * straight.at(step)) << step;
}

// Weights of 16 bits, their masters and moments of 32 bits: nothing is lost on the way, so that on one device every bit
// of the loss is the same; on two it is to what that type's sums come to.
TEST_F(RunCheckpoints, MasterWeightsAreSavedToo) {
  const Losses straight = losses("dp=1", 1, {"--steps", "3"}, "bf16");
  losses("dp=1", 1, {"--steps", "2", "--save", at("one")}, "bf16");
  EXPECT_EQ(losses("dp=1", 1, {"--steps", "3", "--load", at("one")}, "bf16").at(3), straight.at(3));
  losses("dp=2,zero=1", 2, {"--steps", "2", "--save", at("two")}, "bf16");
  EXPECT_NEAR(losses("tp=2", 2, {"--steps", "3", "--load", at("two")}, "bf16").at(3), straight.at(3), 5e-2);
  const std::string tensors = read_by_python(at("two") / "latest");
  EXPECT_THAT(tensors, HasSubstr(" BF16 "));
  EXPECT_THAT(tensors, HasSubstr("_master F32 "));
}

// Names, types and shapes are those of the model, whoever saved it; sums differ by rounding alone.
TEST_F(RunCheckpoints, AnyReaderOfTheFormatReadsThem) {
  losses("dp=1", 1, {"--steps", "1", "--save", at("one")});
  losses("tp=2,pp=2", 4, {"--steps", "1", "--save", at("four")});
  std::istringstream one(read_by_python(at("one") / "step-000001")), four(read_by_python(at("four") / "step-000001"));
  std::string left, right;
  int tensors = 0;
  while (std::getline(one, left)) {
    ASSERT_TRUE(std::getline(four, right));
    const std::size_t sum = left.rfind(' ');
    EXPECT_EQ(left.substr(0, sum), right.substr(0, right.rfind(' ')));
    EXPECT_NEAR(std::stod(left.substr(sum)), std::stod(right.substr(right.rfind(' '))), 1e-6) << left;
    ++tensors;
  }
  EXPECT_GT(tensors, 60);  // 2 layers of 12, embeddings and a norm, each with two moments
}

TEST_F(RunCheckpoints, TheDataGoesOnWhereItWas) {
  {
    std::ofstream file(at("tokens"), std::ios::binary);
    for (int i = 0; i < 1000; ++i) {
      const auto token = static_cast<std::uint16_t>(i * i % 251);
      file.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
  const Losses straight = losses("dp=1", 1, {"--steps", "4", "--data", at("tokens")});
  losses("dp=2", 2, {"--steps", "2", "--data", at("tokens"), "--save", at("saved")});
  const Losses after = losses("tp=2", 2, {"--steps", "4", "--data", at("tokens"), "--load", at("saved")});
  EXPECT_NEAR(after.at(3), straight.at(3), 1e-9);
  EXPECT_NEAR(after.at(4), straight.at(4), 1e-9);
}

TEST_F(RunCheckpoints, StepsAreLoggedLineByLine) {
  losses("dp=2", 2, {"--steps", "2", "--log", at("log"), "--save", at("saved")});
  losses("dp=2", 2, {"--steps", "3", "--log", at("log"), "--save", at("saved"), "--resume"});
  std::ifstream file(at("log"));
  std::string line;
  int steps = 0;
  while (std::getline(file, line)) {
    const nlohmann::json json = nlohmann::json::parse(line);
    EXPECT_EQ(json["step"], ++steps);
    EXPECT_GT(json["loss"].get<double>(), 0);
    EXPECT_GT(json["time_s"].get<double>(), 0);
    EXPECT_EQ(json["samples"], 8);
    EXPECT_EQ(json["tokens"], 8 * 16);
  }
  EXPECT_EQ(steps, 3);
}

// A rank is killed, or all at once with their launcher while a checkpoint is half written: what is there is whole, and
// the same command goes on to the loss of a run that was never interrupted.
TEST_F(RunCheckpoints, ARunThatWasKilledIsTakenUpAgain) {
  const Losses straight = losses("dp=1", 1, {"--steps", "40"});
  const std::string saved = at("saved");
  const Words more = {"--steps", "40",  "--global-batch", "8", "--dtype", "fp64", "--json",
                      "--save",  saved, "--save-every",   "1", "--resume"};
  const auto steps_there = [&] {
    std::set<fs::path> steps;
    if (fs::exists(saved))
      for (const auto& entry : fs::directory_iterator(saved))
        if (entry.path().filename().string().starts_with("step-")) steps.insert(entry.path());
    return steps;
  };
  {
    Process process(words("tp=2", 2, more));
    ASSERT_TRUE(Process::eventually([&] { return steps_there().size() >= 3; })) << process.text();
    ::kill(process.children().back(), SIGKILL);
    EXPECT_EQ(process.wait(), 1);
    EXPECT_THAT(process.text(), HasSubstr("was ended by signal 9"));
  }
  for (const fs::path& step : steps_there()) read_by_python(step);
  {
    Process process(words("dp=2,zero=3", 2, more));
    const std::size_t before = steps_there().size();
    const auto half_written = [&] {
      std::error_code ignored;
      for (const auto& entry : fs::directory_iterator(saved, ignored))
        if (is_partial(entry.path()) && steps_there().size() > before) return true;
      return false;
    };
    for (int i = 0; i < 100000 && !half_written(); ++i) std::this_thread::sleep_for(std::chrono::microseconds(200));
    ::kill(process.pid(), SIGKILL);
    EXPECT_EQ(process.wait(), 128 + SIGKILL);
  }
  for (const fs::path& step : steps_there()) read_by_python(step);
  const std::size_t done = steps_there().size();
  EXPECT_LT(done, 40U);
  const Losses rest = losses("pp=2", 2, {"--steps", "40", "--save", saved, "--resume"});
  ASSERT_EQ(rest.size(), 40 - done);
  for (const auto& [step, loss] : rest) EXPECT_NEAR(loss, straight.at(step), 1e-9) << step;
  EXPECT_EQ(fs::read_symlink(saved + "/latest"), "step-000040");
  for (const auto& entry : fs::directory_iterator(saved)) EXPECT_FALSE(is_partial(entry.path())) << entry.path();
  // All is done: nothing more happens.
  EXPECT_EQ(losses("pp=2", 2, {"--steps", "40", "--save", saved, "--resume"}).size(), 0U);
}

TEST_F(RunCheckpoints, WhatCannotBeLoadedIsToldOnce) {
  const auto load = [&](const fs::path& from, Words more = {}) {
    more.insert(more.end(), {"--dtype", "fp64", "--global-batch", "8", "--load", from});
    return words("tp=2", 2, more);
  };
  losses("tp=2", 2, {"--steps", "2", "--save", at("good")});
  const fs::path good = at("good") / "step-000002";
  const auto broken = [&](const char* name) {
    fs::create_directories(at(name));
    fs::copy(good, at(name) / "step-000002", fs::copy_options::recursive);
    return at(name);
  };
  const auto content = [](const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const char* const first = "step-000002/model-00001-of-00002.safetensors";

  expect_told(load(at("nowhere")), "there is no checkpoint");
  expect_told(load(at("good"), {"--steps", "2"}), "--steps 2:");
  expect_told(load(at("good"), {"--seed", "7"}), "was trained with --seed 1");
  expect_told(load(at("good"), {"--model", "gpt2-124m:layers=2,hidden=64,heads=4,vocab=256,dropout=0.1"}),
              "is a checkpoint of gpt2-124m:layers=2,hidden=32");
  expect_told(words("tp=2", 2, {"--dtype", "fp32", "--load", at("good")}), "is F64, and this run keeps it as F32");

  fs::path path = broken("truncated") / first;
  fs::resize_file(path, fs::file_size(path) - 100);
  expect_told(load(at("truncated")), "model-00001-of-00002.safetensors: its tensors take");
  path = broken("missing") / "step-000002";
  fs::remove(path / "model-00002-of-00002.safetensors");
  expect_told(load(at("missing")), "model-00002-of-00002.safetensors: No such file");
  path = broken("overlapping") / first;
  std::string text = content(path);
  text.replace(text.find("\"data_offsets\":[0,"), 18, "\"data_offsets\":[8,");
  std::ofstream(path, std::ios::binary) << text;
  expect_told(load(at("overlapping")), "do not fit the bytes from 8 to");
  path = broken("mixed") / first;
  text = content(path);
  text.replace(text.find("\"step\":\"2\""), 10, "\"step\":\"3\"");
  std::ofstream(path, std::ios::binary) << text;
  expect_told(load(at("mixed")), "belongs to another checkpoint than its index");
  path = broken("no-json") / "step-000002/model.safetensors.index.json";
  std::ofstream(path) << "{\"metadata\": {";
  expect_told(load(at("no-json")), "model.safetensors.index.json: byte 14");
  path = broken("foreign") / "step-000002/model.safetensors.index.json";
  std::ofstream(path) << R"({"metadata": {"total_size": 1}, "weight_map": {}})";
  expect_told(load(at("foreign")), "no checkpoint of weft run --save");
}

TEST_F(RunCheckpoints, WhatCannotBeSavedIsToldOnce) {
  expect_told(words("tp=2", 2, {"--save", "/dev/null/there"}), "--save /dev/null/there: cannot be made");
  expect_told(words("tp=2", 2, {"--resume"}), "--resume: --save DIR says where");
  expect_told(words("tp=2", 2, {"--save", at("a"), "--resume", "--load", at("b")}), "leave --load out");
  expect_told(words("tp=2", 2, {"--log", "/dev/null/log"}), "--log /dev/null/log: cannot be written");
  losses("tp=2", 2, {"--steps", "1", "--save", at("there")});
  expect_told(words("tp=2", 2, {"--save", at("there")}), "has step-000001 already; --resume goes on from it");
}

// Files may not grow beyond half a MiB, as if the disk were full then; what ranks read is smaller.
TEST_F(RunCheckpoints, AFullDiskLeavesTheCheckpointsBeforeWhole) {
  const Words more = {"--model",        "gpt2-124m:layers=1,hidden=32,heads=4,vocab=4096,dropout=0.1",
                      "--global-batch", "8",
                      "--dtype",        "fp64",
                      "--save",         at("saved"),
                      "--resume"};
  const auto until = [&](const char* steps) {
    Words list = more;
    list.insert(list.end(), {"--steps", steps});
    return words("dp=2", 2, list);
  };
  Process first(until("1"));
  EXPECT_EQ(first.wait(), 0) << first.text();
  const std::string before = read_by_python(at("saved") / "latest");
  struct rlimit limit {};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const struct rlimit small { 512 << 10, limit.rlim_max };
  ::setrlimit(RLIMIT_FSIZE, &small);  // processes inherit it
  expect_told(until("2"), "cannot be written: File too large");
  ::setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_FALSE(fs::exists(at("saved") / "step-000002"));
  for (const auto& entry : fs::directory_iterator(at("saved"))) EXPECT_FALSE(is_partial(entry.path())) << entry.path();
  EXPECT_EQ(fs::read_symlink(at("saved") / "latest"), "step-000001");
  EXPECT_EQ(read_by_python(at("saved") / "latest"), before);
  Process again(until("2"));
  EXPECT_EQ(again.wait(), 0) << again.text();
}

}  // namespace
}  // namespace weft
