// The profile database: measured events in an SQLite file. Start here.
//
//   ProfileDatabase::to_write(path)    makes the file where there is none; `add` commits before it returns
//   read_profile(path)                 every event with its samples, for cost models and tables
//
// What is committed survives a killed process (write-ahead log); readers and one writer go side by side. A file of an
// older schema is brought up to date when it is opened to write, in one transaction; when it is only read, a copy in
// memory is, and the file stays as it is. A file that is locked, damaged, of a newer schema or no profile at all is an
// error that says so, and is not touched.
//
// Not here: what events cost a plan (src/cost/measured.h), tables in text (table.h).
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
  // The schema version to make a new file with; what older versions of Weft wrote.
  static Result<ProfileDatabase> to_write_as(const std::string& path, int schema);

  // All of it or, on an error, nothing. A sample that is there already (same event, date, mean, spread and count) is
  // not added again. Returns how many were new. Events and samples are checked by the caller (event.h).
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

// Adds everything that another database has. Returns how many samples were new.
Result<std::int64_t> merge_profile(ProfileDatabase& into, const std::string& from);

}  // namespace weft
