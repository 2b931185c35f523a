#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr FileKind kNotes{"a file of notes", 4096};

class ReadFile : public ::testing::Test {
 protected:
  ReadFile() : folder_(fs::temp_directory_path() / fmt::format("weft_read_file_{}", ::getpid())) {
    fs::create_directory(folder_);
  }
  ~ReadFile() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string written(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  static std::string fault(const std::string& path) { return read_file(path, kNotes).error().message; }

  const fs::path folder_;
};

TEST_F(ReadFile, ReadsEveryByteUpToTheMostThatTheKindHas) {
  for (const std::size_t size : {0, 1, 4095, 4096}) {
    const std::string text(size, '\0');
    EXPECT_EQ(read_file(written("notes", text), kNotes).value(), text);
  }
  EXPECT_EQ(fault(written("notes", std::string(4097, 'x'))),
            path("notes") + ": a file of more than 4 KiB; name a file of notes");
  EXPECT_EQ(read_file("/dev/null", kNotes).value(), "");
}

TEST_F(ReadFile, WhatIsNoFileIsToldByName) {
  EXPECT_EQ(fault("/"), "/: is a directory; name a file of notes");
  EXPECT_EQ(fault("/dev/zero"), "/dev/zero: a device of more than 4 KiB; name a file of notes");
  EXPECT_EQ(fault(""), "'': cannot be read: No such file or directory; name a file of notes");
  EXPECT_EQ(fault(written("notes", "") + "/x"),
            path("notes") + "/x: cannot be read: Not a directory; name a file of notes");
  fs::create_symlink(path("loop"), path("loop"));
  EXPECT_EQ(fault(path("loop")),
            path("loop") + ": cannot be read: Too many levels of symbolic links; name a file of notes");
}

TEST_F(ReadFile, APipeIsReadUpToTheSameBound) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const auto through_pipe = [&](std::size_t size) {
    std::thread writer([&] { std::ofstream(path("pipe"), std::ios::binary) << std::string(size, 'x'); });
    Result<std::string> read = read_file(path("pipe"), kNotes);
    writer.join();
    return read;
  };
  EXPECT_EQ(through_pipe(4096).value(), std::string(4096, 'x'));
  EXPECT_EQ(through_pipe(4097).error().message, path("pipe") + ": a pipe of more than 4 KiB; name a file of notes");
}

TEST_F(ReadFile, AFileThatMayNotBeReadIsAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string secret = written("secret", "x");
  fs::permissions(secret, fs::perms::none);
  EXPECT_EQ(fault(secret), secret + ": cannot be read: Permission denied; name a file of notes");
}

TEST_F(ReadFile, LibrariesThatOpenByNameAreGivenRegularFilesAlone) {
  EXPECT_TRUE(check_regular_file(written("notes", "x"), "notes").ok());
  EXPECT_TRUE(check_regular_file(path("none"), "notes").ok());  // the library may create it
  EXPECT_EQ(check_regular_file(folder_.string(), "notes").error().message,
            folder_.string() + ": is a directory; name notes");
  EXPECT_EQ(check_regular_file("/dev/zero", "notes").error().message, "/dev/zero: is a device; name notes");
}

}  // namespace
}  // namespace weft
