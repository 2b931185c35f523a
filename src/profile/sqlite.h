// A thin wrapper of SQLite: connections and statements with RAII, errors as Result with the remedy.
#pragma once

#include <sqlite3.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace weft::sqlite {

struct CloseConnection {
  void operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
};
using Connection = std::unique_ptr<sqlite3, CloseConnection>;

// The error of the last call on the connection, as a message.
Error failure(sqlite3* connection, const std::string& path);
// `flags` as of sqlite3_open_v2; `name` is the path, or a URI.
Result<Connection> open(const std::string& name, int flags, const std::string& path);
Status execute(sqlite3* connection, const char* sql, const std::string& path);

class Statement {
 public:
  static Result<Statement> prepare(sqlite3* connection, std::string_view sql, const std::string& path);

  void bind(int index, std::string_view text);  // from 1; `text` lives until the next reset
  void bind(int index, std::int64_t value) { sqlite3_bind_int64(statement_.get(), index, value); }
  void bind(int index, double value) { sqlite3_bind_double(statement_.get(), index, value); }

  // True if there is a row.
  Result<bool> step();
  void reset() { sqlite3_reset(statement_.get()); }

  std::string text(int column) const;  // from 0
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  double real(int column) const { return sqlite3_column_double(statement_.get(), column); }

 private:
  struct Finish {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Statement(sqlite3_stmt* statement, std::string path) : statement_(statement), path_(std::move(path)) {}

  std::unique_ptr<sqlite3_stmt, Finish> statement_;
  std::string path_;
};

// The result of a query for one number.
Result<std::int64_t> number(sqlite3* connection, const char* sql, const std::string& path);

}  // namespace weft::sqlite
