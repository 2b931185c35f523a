// The profile database: measured events in an SQLite file. Start here.
//
//   ProfileDatabase::to_write(path)    makes the file if there is none; `add` commits before it returns
//   read_profile(path)                 every event with its samples, for cost models and tables
//
// Commits survive a killed process (write-ahead log); readers and one writer can work concurrently. A file of an older
// schema is upgraded when it is opened to write, in one transaction; when it is only read, a copy in memory is upgraded
// and the file is unchanged. A file that is locked, damaged, of a newer schema or not a profile is an error, and is not
// changed.
//
// Not here: predictions from events (cost/measured.h), tables in text (table.h).
// Cost: reading is linear in the samples, about a microsecond each; adding ends with one write to disk.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "profile/event.h"

struct sqlite3;

namespace weft {

inline constexpr int kProfileSchema = 2;

class ProfileDatabase {
 public:
  static Result<ProfileDatabase> to_write(const std::string& path);
  // With an older schema version for a new file, as older versions of Weft wrote it.
  static Result<ProfileDatabase> to_write_as(const std::string& path, int schema);

  // Adds all events or, on an error, none. An existing sample (same event, date, mean, spread and count) is not added
  // again. Returns the number of new samples. The caller has checked events and samples (event.h).
  Result<std::int64_t> add(std::span<const MeasuredEvent> events);

 private:
  struct Close {
    void operator()(sqlite3* connection) const;
  };
  ProfileDatabase(std::string path, std::unique_ptr<sqlite3, Close> connection)
      : path_(std::move(path)), connection_(std::move(connection)) {}

  std::string path_;
  std::unique_ptr<sqlite3, Close> connection_;
};

// In the order of events.
Result<std::vector<MeasuredEvent>> read_profile(const std::string& path);

// Adds all samples of another database. Returns the number of new ones.
Result<std::int64_t> merge_profile(ProfileDatabase& into, const std::string& from);

}  // namespace weft
