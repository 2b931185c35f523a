// What every step came to, a JSON object a line: {"step":3,"loss":2.71,"time_s":0.052,"samples":8,"tokens":128}.
// Each line is there when its step is done.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/result.h"

namespace weft::runtime {

class StepLog {
 public:
  // A run that goes on adds to what is there.
  static Result<StepLog> open(const std::string& path, bool adds) {
    StepLog log;
    log.path_ = path;
    log.file_ = std::fopen(path.c_str(), adds ? "ae" : "we");
    if (!log.file_) return error("--log {}: cannot be written: {}", path, std::strerror(errno));
    return log;
  }
  StepLog(StepLog&& other) noexcept : path_(std::move(other.path_)), file_(std::exchange(other.file_, nullptr)) {}
  StepLog& operator=(StepLog&&) = delete;
  ~StepLog() {
    if (file_) std::fclose(file_);
  }

  Status add(std::int64_t step, double loss, double seconds, std::int64_t samples, std::int64_t tokens) {
    const std::string number = std::isfinite(loss) ? fmt::format("{}", loss) : "null";  // JSON has no NaN
    fmt::print(file_, "{{\"step\":{},\"loss\":{},\"time_s\":{},\"samples\":{},\"tokens\":{}}}\n", step, number, seconds,
               samples, tokens);
    if (std::fflush(file_) != 0) return error("--log {}: cannot be written: {}", path_, std::strerror(errno));
    return Ok{};
  }

 private:
  StepLog() = default;

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace weft::runtime
