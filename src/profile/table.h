// Profiles as tables of comma-separated values.
//
// Two forms are read, distinguished by their columns:
//   Weft's own     the columns of an event and its sample, as `profile_csv` writes them
//   measure_gpu    tools/measure_gpu.py: medians and deciles in microseconds. The median is taken as the mean (delays
//                  of the host make single runs long), the deciles' distance over 2.563 as the standard deviation (that
//                  of a normal distribution). Copies to and from the host become communications.
//
// A row that cannot be used is skipped, with its line and the reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/csv.h"
#include "profile/event.h"

namespace weft {

struct SkippedEvent {
  int line = 0;
  std::string reason;

  bool operator==(const SkippedEvent&) const = default;
};

struct ProfileTable {
  std::vector<MeasuredEvent> events;  // in the order of rows
  std::vector<SkippedEvent> skipped;
};

struct ProfileTableOptions {
  std::string date = {};    // of rows that have none
  std::string source = {};  // of rows that name none: the file
};

// An error if the columns are of neither form.
Result<ProfileTable> profile_rows(const CsvTable& table, std::string_view file, const ProfileTableOptions& options);

// One line per sample; profile_rows reads it back unchanged.
std::string profile_csv(const std::vector<MeasuredEvent>& events);

}  // namespace weft
