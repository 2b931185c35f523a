#include "profile/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/random.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Database : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("weft_profile_{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
};

Event product(std::int64_t rows) {
  return {.device = "NVIDIA H200",
          .stack = "torch 2",
          .op = "linear",
          .variant = "cublas",
          .cache = "cold",
          .attributes = "{transposed=1}",
          .shapes = fmt::format("bf16[{},1024] bf16[4096,1024]", rows),
          .dtype = "bf16",
          .direction = "forward"};
}

MeasuredEvent measured(Event event, double mean, std::string date = "2026-11-15") {
  return {std::move(event), {{mean, mean / 100, 10, std::move(date), "test"}}};
}

void execute(const std::string& path, const char* sql) {
  sqlite3* connection = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &connection), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(connection, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(connection);
  sqlite3_close(connection);
}

TEST_F(Database, WhatIsAddedIsReadBackInTheOrderOfEvents) {
  const Event reduce{.device = "NVIDIA H200", .op = "all-reduce", .bytes = 1 << 20, .members = 8, .most_per_node = 8};
  const std::vector<MeasuredEvent> events = {measured(product(512), 1e-5), measured(product(1024), 2e-5),
                                             measured(reduce, 3e-5)};
  {
    Result<ProfileDatabase> database = ProfileDatabase::to_write(path("a.db"));
    ASSERT_TRUE(database.ok()) << database.error().message;
    EXPECT_EQ(database->add(events).value(), 3);
    EXPECT_EQ(database->add(events).value(), 0);  // the same samples
  }
  const auto read = read_profile(path("a.db"));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, (std::vector{events[2], events[1], events[0]}));  // all-reduce < linear, "bf16[1024" < "bf16[512"
}

TEST_F(Database, SamplesOfOneEventAddUp) {
  Result<ProfileDatabase> database = ProfileDatabase::to_write(path("a.db"));
  EXPECT_EQ(
      database->add(std::vector{measured(product(512), 1e-5, "2026-01-01"), measured(product(512), 3e-5, "2026-01-02")})
          .value(),
      2);
  const auto read = read_profile(path("a.db"));  // while the writer is still open
  ASSERT_EQ(read->size(), 1u);
  const Sample all = pooled(read->front().samples);
  EXPECT_EQ(all.count, 20);
  EXPECT_DOUBLE_EQ(all.mean_s, 2e-5);
  // sqrt((0.01² + 1² + 0.03² + 1²) / 2) of 1e-5: within and between.
  EXPECT_NEAR(all.spread_s, std::sqrt((0.0001 + 1 + 0.0009 + 1) / 2) * 1e-5, 1e-15);
  EXPECT_EQ(all.date, "2026-01-02");
}

TEST_F(Database, MergingIsAUnionInWhateverOrderAndHoweverOften) {
  Rng rng(1);
  for (int round = 0; round < 4; ++round) {
    const auto name = [&](const char* which) { return path(fmt::format("{}{}.db", which, round)); };
    for (const char* which : {"a", "b"}) {
      std::vector<MeasuredEvent> events;
      for (std::uint64_t left = rng.below(8); left > 0; --left) {
        const auto i = static_cast<int>(rng.below(6));
        events.push_back(measured(product(64 << (i / 2)), 1e-5 * (i + 1), i % 2 ? "2026-01-01" : "2026-01-02"));
      }
      Result<ProfileDatabase> database = ProfileDatabase::to_write(name(which));
      ASSERT_TRUE(database->add(events).ok());
    }
    for (const auto& order : {std::vector{"ab", "a", "b", "a"}, {"ba", "b", "a"}}) {
      Result<ProfileDatabase> into = ProfileDatabase::to_write(name(order[0]));
      for (std::size_t i = 1; i < order.size(); ++i) ASSERT_TRUE(merge_profile(*into, name(order[i])).ok());
    }
    EXPECT_EQ(read_profile(name("ab")).value(), read_profile(name("ba")).value());
  }
}

TEST_F(Database, AnOlderSchemaIsReadWithoutTouchingItAndBroughtUpToDateWhenWritten) {
  {
    Result<ProfileDatabase> old = ProfileDatabase::to_write_as(path("old.db"), 1);
    ASSERT_TRUE(old.ok()) << old.error().message;
  }
  execute(path("old.db"),
          "INSERT INTO event VALUES(1,'NVIDIA H200','torch 2','linear','cublas','cold','','bf16[8,8] bf16[8,8]','bf16',"
          "'forward',0,1,1,1); INSERT INTO sample VALUES(1, 1e-5, 1e-7, 10, '2026-01-01'); PRAGMA wal_checkpoint;");
  const std::string before = contents(path("old.db"));
  const auto read = read_profile(path("old.db"));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->front().samples, (std::vector<Sample>{{1e-5, 1e-7, 10, "2026-01-01", ""}}));
  EXPECT_EQ(contents(path("old.db")), before);
  {
    Result<ProfileDatabase> now = ProfileDatabase::to_write(path("old.db"));
    ASSERT_TRUE(now.ok()) << now.error().message;
    EXPECT_EQ(now->add(std::vector{measured(product(512), 1e-5)}).value(), 1);
  }
  const auto after = read_profile(path("old.db"));
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->size(), 2u);
}

TEST_F(Database, FilesThatCannotBeUsedAreNamedAndLeftAlone) {
  const auto refuses = [&](const std::string& name, const std::string& why) {
    const std::string before = contents(path(name));
    const auto read = read_profile(path(name));
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_THAT(read.error().message, HasSubstr(why));
    EXPECT_THAT(read.error().message, HasSubstr(name));
    const auto written = ProfileDatabase::to_write(path(name));
    ASSERT_FALSE(written.ok()) << name;
    EXPECT_THAT(written.error().message, HasSubstr(why));
    EXPECT_EQ(contents(path(name)), before) << name;
  };
  { ASSERT_TRUE(ProfileDatabase::to_write(path("newer.db")).ok()); }
  execute(path("newer.db"), "PRAGMA user_version = 99; PRAGMA wal_checkpoint;");
  refuses("newer.db", "schema 99, but this Weft knows up to 2; use a newer Weft");

  execute(path("other.db"), "CREATE TABLE songs(name TEXT)");
  refuses("other.db", "no profile of Weft's");

  std::ofstream(path("text.db")) << std::string(5000, 'x');
  refuses("text.db", "no SQLite database");

  {
    Result<ProfileDatabase> database = ProfileDatabase::to_write(path("torn.db"));
    std::vector<MeasuredEvent> many;
    for (int i = 1; i < 500; ++i) many.push_back(measured(product(i), 1e-5));
    ASSERT_TRUE(database->add(many).ok());
  }
  {
    std::fstream file(path("torn.db"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8192);
    file << std::string(20000, '\x5a');
  }
  refuses("torn.db", "damaged");

  EXPECT_THAT(read_profile(path("none.db")).error().message, HasSubstr("no such file"));
  EXPECT_FALSE(fs::exists(path("none.db")));
  EXPECT_THAT(ProfileDatabase::to_write(path("no/folder.db")).error().message, HasSubstr("cannot be opened"));
}

TEST_F(Database, ALockedFileSaysSo) {
  {
    Result<ProfileDatabase> database = ProfileDatabase::to_write(path("a.db"));
    ASSERT_TRUE(database->add(std::vector{measured(product(512), 1e-5)}).ok());
  }
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path("a.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  Result<ProfileDatabase> writer = ProfileDatabase::to_write(path("a.db"));
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_THAT(writer->add(std::vector{measured(product(1024), 1e-5)}).error().message,
              HasSubstr("locked by another process"));
  EXPECT_EQ(read_profile(path("a.db")).value().size(), 1u);  // readers can work during a write
  sqlite3_close(other);
}

TEST_F(Database, AFileThatMayOnlyBeReadIsReadAndNotWritten) {
  {
    Result<ProfileDatabase> database = ProfileDatabase::to_write(path("a.db"));
    ASSERT_TRUE(database->add(std::vector{measured(product(512), 1e-5)}).ok());
  }
  fs::permissions(path("a.db"), fs::perms::owner_read | fs::perms::others_read);
  fs::permissions(folder_,
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  // As another user, as permissions do not apply to root.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(1);
    const auto read = read_profile(path("a.db"));
    if (!read.ok() || read->size() != 1) ::_exit(2);
    const auto writer = ProfileDatabase::to_write(path("a.db"));
    ::_exit(!writer.ok() && writer.error().message.find("may only be read") != std::string::npos ? 0 : 3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

TEST_F(Database, AKilledWriterLosesAtMostTheSampleItWasWriting) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const std::string file = path("a.db");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(pipe_ends[0]);
    Result<ProfileDatabase> database = ProfileDatabase::to_write(file);
    if (!database.ok()) ::_exit(1);
    for (int i = 1;; ++i) {
      if (!database->add(std::vector{measured(product(i), 1e-6 * i)}).ok()) ::_exit(2);
      if (::write(pipe_ends[1], &i, sizeof i) != sizeof i) ::_exit(3);  // after the commit
    }
  }
  ::close(pipe_ends[1]);
  int committed = 0, count = 0;
  while (count < 60 && ::read(pipe_ends[0], &committed, sizeof committed) == sizeof committed) ++count;
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  for (int more = 0; ::read(pipe_ends[0], &more, sizeof more) == sizeof more;) committed = more;
  ::close(pipe_ends[0]);
  const auto read = read_profile(file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_GE(read->size(), static_cast<std::size_t>(committed));
  EXPECT_LE(read->size(), static_cast<std::size_t>(committed) + 1);
  Result<ProfileDatabase> again = ProfileDatabase::to_write(file);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->add(std::vector{measured(product(1 << 20), 1e-3)}).value(), 1);
}

}  // namespace
}  // namespace weft
