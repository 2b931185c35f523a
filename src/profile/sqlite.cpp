#include "profile/sqlite.h"

#include "base/read_file.h"

namespace weft::sqlite {

Error failure(sqlite3* connection, const std::string& path) {
  switch (sqlite3_errcode(connection)) {
    case SQLITE_NOTADB:
      return error("no SQLite database; weft profile import --db makes one").at(path);
    case SQLITE_CORRUPT:
      return error("damaged ({}); restore it from a copy or import its tables again", sqlite3_errmsg(connection))
          .at(path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return error("locked by another process; try again when it is done").at(path);
    case SQLITE_READONLY:
      return error("may only be read; write to a copy").at(path);
    case SQLITE_CANTOPEN:
      return error("cannot be opened: no such file, or no right to it").at(path);
    case SQLITE_FULL:
      return error("the disk is full; nothing was written").at(path);
    default:
      return error("{}", sqlite3_errmsg(connection)).at(path);
  }
}

Result<Connection> open(const std::string& name, int flags, const std::string& path) {
  // SQLite would block on a pipe and treat a directory as a missing file.
  WEFT_TRY_OK(check_regular_file(path, "a profile database; weft profile import --db makes one"));
  sqlite3* raw = nullptr;
  const int status = sqlite3_open_v2(name.c_str(), &raw, flags, nullptr);
  Connection connection(raw);
  if (!raw) return error("out of memory").at(path);
  if (status != SQLITE_OK) return failure(raw, path);
  sqlite3_busy_timeout(raw, 2000);  // a writer's commit takes milliseconds
  return connection;
}

Status execute(sqlite3* connection, const char* sql, const std::string& path) {
  if (sqlite3_exec(connection, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return failure(connection, path);
  return Ok{};
}

Result<Statement> Statement::prepare(sqlite3* connection, std::string_view sql, const std::string& path) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(connection, sql.data(), static_cast<int>(sql.size()), &raw, nullptr) != SQLITE_OK)
    return failure(connection, path);
  return Statement(raw, path);
}

void Statement::bind(int index, std::string_view text) {
  // An empty view may have a null pointer, which SQLite would bind as NULL.
  sqlite3_bind_text(statement_.get(), index, text.empty() ? "" : text.data(), static_cast<int>(text.size()),
                    SQLITE_STATIC);
}

Result<bool> Statement::step() {
  const int status = sqlite3_step(statement_.get());
  if (status == SQLITE_ROW) return true;
  if (status == SQLITE_DONE) return false;
  return failure(sqlite3_db_handle(statement_.get()), path_);
}

std::string Statement::text(int column) const {
  const unsigned char* start = sqlite3_column_text(statement_.get(), column);
  return start ? std::string(reinterpret_cast<const char*>(start),
                             static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)))
               : std::string();
}

Result<std::int64_t> number(sqlite3* connection, const char* sql, const std::string& path) {
  WEFT_TRY(Statement statement, Statement::prepare(connection, sql, path));
  WEFT_TRY(const bool found, statement.step());
  return found ? statement.integer(0) : 0;
}

}  // namespace weft::sqlite
