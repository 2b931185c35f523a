#include "base/whole_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace weft {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WholeFile, AppearsWholeOrNotAtAll) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("weft_whole_file_{}", ::getpid());
  fs::create_directory(folder);
  const auto path = [&](const char* name) { return (folder / name).string(); };
  const auto files = [&] { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); };
  {
    WholeFile file = WholeFile::create(path("a.json")).value();
    file.write("half of ");
    EXPECT_FALSE(fs::exists(path("a.json")));
  }
  EXPECT_EQ(files(), 0);  // abandoned: no file is left
  std::ofstream(path("b.json")) << "before";
  {
    WholeFile file = WholeFile::create(path("b.json")).value();
    file.write("after");
    EXPECT_EQ(read(path("b.json")), "before");
    EXPECT_TRUE(file.finish().ok());
  }
  EXPECT_EQ(read(path("b.json")), "after");
  EXPECT_EQ(files(), 1);
  EXPECT_FALSE(WholeFile::create(path("no/such/folder.json")).ok());
  EXPECT_FALSE(WholeFile::create(folder.string()).ok());
  EXPECT_FALSE(WholeFile::create("").ok());
  fs::remove_all(folder);
}

TEST(WholeFile, AFullDiskIsAnErrorWhenItIsFinished) {
  WholeFile full = WholeFile::create("/dev/full").value();  // a device: written directly
  full.write(std::string(1 << 20, 'x'));
  const Status finished = full.finish();
  ASSERT_FALSE(finished.ok());
  EXPECT_EQ(finished.error().message, "/dev/full: cannot be written: No space left on device");
}

}  // namespace
}  // namespace weft
