#include "profile/database.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"
#include "profile/sqlite.h"

namespace weft {
namespace {

using sqlite::Connection;
using sqlite::Statement;

constexpr std::int64_t kApplication = 0x57656674;  // "Weft", in the file's header

// Step i makes schema i + 1 of schema i; a new file takes them all.
constexpr std::array<const char*, kProfileSchema> kSteps = {
    // 1: events and their samples
    R"(CREATE TABLE event(
         id INTEGER PRIMARY KEY,
         device TEXT NOT NULL, stack TEXT NOT NULL, operator TEXT NOT NULL, variant TEXT NOT NULL, cache TEXT NOT NULL,
         attributes TEXT NOT NULL, shapes TEXT NOT NULL, dtype TEXT NOT NULL, direction TEXT NOT NULL,
         bytes INTEGER NOT NULL, members INTEGER NOT NULL, nodes INTEGER NOT NULL, most_per_node INTEGER NOT NULL,
         UNIQUE(device, stack, operator, variant, cache, attributes, shapes, dtype, direction, bytes, members, nodes,
                most_per_node)) STRICT;
       CREATE TABLE sample(
         event INTEGER NOT NULL REFERENCES event(id),
         mean_s REAL NOT NULL, spread_s REAL NOT NULL, count INTEGER NOT NULL, date TEXT NOT NULL,
         UNIQUE(event, date, mean_s, spread_s, count)) STRICT;)",
    // 2: where a sample came from
    "ALTER TABLE sample ADD COLUMN source TEXT NOT NULL DEFAULT '';",
};

Status migrate(sqlite3* connection, int from, int to, const std::string& path) {
  WEFT_TRY_OK(sqlite::execute(connection, "BEGIN IMMEDIATE", path));
  Status done = Ok{};
  for (int step = from; step < to && done.ok(); ++step)
    done = sqlite::execute(connection, kSteps[static_cast<std::size_t>(step)], path);
  const std::string mark =
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT", kApplication, to);
  if (done.ok()) done = sqlite::execute(connection, mark.c_str(), path);
  if (!done.ok()) sqlite3_exec(connection, "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

// The schema of a file that is a profile; 0: it is empty.
Result<int> schema_of(sqlite3* connection, const std::string& path) {
  WEFT_TRY(const std::int64_t version, sqlite::number(connection, "PRAGMA user_version", path));
  WEFT_TRY(const std::int64_t application, sqlite::number(connection, "PRAGMA application_id", path));
  if (application != kApplication) {
    WEFT_TRY(const std::int64_t tables, sqlite::number(connection, "SELECT count(*) FROM sqlite_master", path));
    if (application == 0 && version == 0 && tables == 0) return 0;
    return error("an SQLite database, but no profile of Weft's; choose another name").at(path);
  }
  if (version > kProfileSchema || version < 1)
    return error("schema {}, but this Weft knows up to {}; use a newer Weft", version, kProfileSchema).at(path);
  return static_cast<int>(version);
}

Status check_pages(sqlite3* connection, const std::string& path) {
  WEFT_TRY(Statement statement, Statement::prepare(connection, "PRAGMA quick_check(1)", path));
  WEFT_TRY(const bool found, statement.step());
  const std::string verdict = found ? statement.text(0) : "";
  if (verdict != "ok")
    return error("damaged ({}); restore it from a copy or import its tables again", verdict).at(path);
  return Ok{};
}

// A percent-encoded URI.
std::string immutable_uri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
                       c == '.' || c == '-' || c == '_';
    uri += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return uri + "?immutable=1";
}

bool exists(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0;
}

// Read-only. In a read-only folder the log's index cannot be made; without a log it is not needed.
Result<Connection> open_to_read(const std::string& path) {
  if (!exists(path)) return error("no such file; weft profile import --db {} makes one", path).at(path);
  WEFT_TRY(Connection connection, sqlite::open(path, SQLITE_OPEN_READONLY, path));
  const Result<std::int64_t> looked = sqlite::number(connection.get(), "PRAGMA schema_version", path);
  if (looked.ok()) return connection;
  const int code = sqlite3_errcode(connection.get());
  if ((code != SQLITE_CANTOPEN && code != SQLITE_READONLY) || exists(path + "-wal")) return looked.error();
  return sqlite::open(immutable_uri(path), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, path);
}

// A copy in memory, upgraded to the current schema.
Result<Connection> updated_copy(sqlite3* old, int schema, const std::string& path) {
  WEFT_TRY(Connection copy,
           sqlite::open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY, path));
  sqlite3_backup* backup = sqlite3_backup_init(copy.get(), "main", old, "main");
  if (!backup) return sqlite::failure(copy.get(), path);
  sqlite3_backup_step(backup, -1);
  if (sqlite3_backup_finish(backup) != SQLITE_OK) return sqlite::failure(copy.get(), path);
  WEFT_TRY_OK(migrate(copy.get(), schema, kProfileSchema, path));
  return copy;
}

// Columns of `event` after its id, in the order of the struct's members.
void bind_event(Statement& statement, const Event& event) {
  int column = 0;
  for (const std::string* text : {&event.device, &event.stack, &event.op, &event.variant, &event.cache,
                                  &event.attributes, &event.shapes, &event.dtype, &event.direction})
    statement.bind(++column, *text);
  for (const std::int64_t value : {event.bytes, event.members, event.nodes, event.most_per_node})
    statement.bind(++column, value);
}

Event read_event(const Statement& statement) {
  Event event;
  int column = 0;
  for (std::string* text : {&event.device, &event.stack, &event.op, &event.variant, &event.cache, &event.attributes,
                            &event.shapes, &event.dtype, &event.direction})
    *text = statement.text(column++);
  for (std::int64_t* value : {&event.bytes, &event.members, &event.nodes, &event.most_per_node})
    *value = statement.integer(column++);
  return event;
}

constexpr std::string_view kEventColumns =
    "device, stack, operator, variant, cache, attributes, shapes, dtype, direction, bytes, members, nodes, "
    "most_per_node";

Result<std::int64_t> add_all(sqlite3* connection, std::span<const MeasuredEvent> events, const std::string& path) {
  WEFT_TRY(Statement known, Statement::prepare(connection,
                                               "SELECT id FROM event WHERE device=? AND stack=? AND operator=? AND "
                                               "variant=? AND cache=? AND attributes=? AND shapes=? AND dtype=? AND "
                                               "direction=? AND bytes=? AND members=? AND nodes=? AND most_per_node=?",
                                               path));
  WEFT_TRY(
      Statement event,
      Statement::prepare(connection,
                         fmt::format("INSERT INTO event({}) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)", kEventColumns), path));
  WEFT_TRY(Statement sample,
           Statement::prepare(
               connection,
               "INSERT OR IGNORE INTO sample(event, mean_s, spread_s, count, date, source) VALUES(?,?,?,?,?,?)", path));
  std::int64_t added = 0;
  for (const MeasuredEvent& measured : events) {
    bind_event(known, measured.event);
    WEFT_TRY(const bool found, known.step());
    std::int64_t id = found ? known.integer(0) : 0;
    known.reset();
    if (!found) {
      bind_event(event, measured.event);
      WEFT_TRY([[maybe_unused]] const bool row, event.step());
      event.reset();
      id = sqlite3_last_insert_rowid(connection);
    }
    for (const Sample& each : measured.samples) {
      sample.bind(1, id);
      sample.bind(2, each.mean_s);
      sample.bind(3, each.spread_s);
      sample.bind(4, each.count);
      sample.bind(5, std::string_view(each.date));
      sample.bind(6, std::string_view(each.source));
      WEFT_TRY([[maybe_unused]] const bool row, sample.step());
      sample.reset();
      added += sqlite3_changes(connection);
    }
  }
  return added;
}

}  // namespace

void ProfileDatabase::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }

Result<ProfileDatabase> ProfileDatabase::to_write(const std::string& path) { return to_write_as(path, kProfileSchema); }

Result<ProfileDatabase> ProfileDatabase::to_write_as(const std::string& path, int schema) {
  WEFT_CHECK(schema >= 1 && schema <= kProfileSchema, "schema {}", schema);
  WEFT_TRY(Connection connection, sqlite::open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, path));
  WEFT_TRY(const int found, schema_of(connection.get(), path));
  if (sqlite3_db_readonly(connection.get(), "main") == 1) return error("may only be read; write to a copy").at(path);
  WEFT_TRY_OK(check_pages(connection.get(), path));
  WEFT_TRY_OK(sqlite::execute(connection.get(), "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", path));
  if (found < schema) WEFT_TRY_OK(migrate(connection.get(), found, schema, path));
  return ProfileDatabase(path, std::unique_ptr<sqlite3, Close>(connection.release()));
}

Result<std::int64_t> ProfileDatabase::add(std::span<const MeasuredEvent> events) {
  sqlite3* connection = connection_.get();
  WEFT_TRY_OK(sqlite::execute(connection, "BEGIN IMMEDIATE", path_));
  Result<std::int64_t> added = add_all(connection, events, path_);
  if (added.ok())
    if (const Status committed = sqlite::execute(connection, "COMMIT", path_); !committed.ok())
      added = committed.error();
  if (!added.ok()) sqlite3_exec(connection, "ROLLBACK", nullptr, nullptr, nullptr);
  return added;
}

Result<std::vector<MeasuredEvent>> read_profile(const std::string& path) {
  WEFT_TRY(Connection connection, open_to_read(path));
  WEFT_TRY(const int schema, schema_of(connection.get(), path));
  if (schema == 0) return error("empty: no profile; weft profile import --db {} fills it", path).at(path);
  WEFT_TRY_OK(check_pages(connection.get(), path));
  if (schema < kProfileSchema) {
    WEFT_TRY(connection, updated_copy(connection.get(), schema, path));
  }
  WEFT_TRY(Statement rows,
           Statement::prepare(connection.get(),
                              fmt::format("SELECT {}, mean_s, spread_s, count, date, source FROM sample "
                                          "JOIN event ON event.id = sample.event",
                                          kEventColumns),
                              path));
  std::map<Event, std::vector<Sample>> found;
  for (;;) {
    WEFT_TRY(const bool more, rows.step());
    if (!more) break;
    found[read_event(rows)].push_back({rows.real(13), rows.real(14), rows.integer(15), rows.text(16), rows.text(17)});
  }
  std::vector<MeasuredEvent> events;
  for (auto& [event, samples] : found) {
    std::sort(samples.begin(), samples.end());
    for (const Sample& sample : samples)
      if (const Status fine = check(sample); !fine.ok()) return error("damaged: {}", fine.error().message).at(path);
    events.push_back({event, std::move(samples)});
  }
  return events;
}

Result<std::int64_t> merge_profile(ProfileDatabase& into, const std::string& from) {
  WEFT_TRY(const std::vector<MeasuredEvent> events, read_profile(from));
  return into.add(events);
}

}  // namespace weft
