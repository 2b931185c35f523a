#include "run/pinning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string>

namespace weft::runtime {
namespace {

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  for (std::size_t comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    entries.push_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  entries.push_back(list);
  return entries;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Result<std::vector<int>> numbers_of_ranks(std::string_view option, std::string_view words, int ranks, int least,
                                          int most) {
  const std::vector<std::string_view> entries = entries_of(words);
  std::vector<int> numbers;
  for (std::string_view entry : entries) {
    const std::optional<int> count = number(entry);
    if (!count || *count < least || *count > most)
      return error("{} {}: '{}' is not a number from {} to {}", option, words, entry, least, most);
    numbers.push_back(*count);
  }
  if (numbers.size() == 1) numbers.resize(static_cast<std::size_t>(ranks), numbers[0]);
  if (numbers.size() != static_cast<std::size_t>(ranks))
    return error("{} {}: {} numbers for {} ranks; one for each, or one for all", option, words, numbers.size(), ranks);
  return numbers;
}

Result<std::vector<int>> threads_of_ranks(std::string_view words, int ranks) {
  return numbers_of_ranks("--threads", words, ranks, 1, 1024);
}

Result<std::vector<Cores>> pinned_cores(std::string_view words, const std::vector<int>& threads, const Cores& allowed) {
  std::vector<Cores> pinned(threads.size());
  if (words == "none") return pinned;
  if (words == "auto") {
    const auto all = static_cast<std::size_t>(std::accumulate(threads.begin(), threads.end(), 0));
    if (all > allowed.size()) return pinned;
    std::size_t before = 0;  // threads of earlier ranks
    for (std::size_t rank = 0; rank < threads.size(); ++rank) {
      const std::size_t after = before + static_cast<std::size_t>(threads[rank]);
      pinned[rank].assign(allowed.begin() + static_cast<std::ptrdiff_t>(before * allowed.size() / all),
                          allowed.begin() + static_cast<std::ptrdiff_t>(after * allowed.size() / all));
      before = after;
    }
    return pinned;
  }
  const std::vector<std::string_view> entries = entries_of(words);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t dash = entries[i].find('-');
    const std::optional<int> first = number(entries[i].substr(0, dash)),
                             last = dash == std::string_view::npos ? first : number(entries[i].substr(dash + 1));
    if (!first || !last || *first > *last || *last >= CPU_SETSIZE)
      return error("--pin {}: '{}' is no core and no range of cores; write auto, none, or a list like 0,1,2-3", words,
                   entries[i]);
    if (entries.size() != threads.size())
      return error("--pin {}: {} entries for {} ranks; one for each", words, entries.size(), threads.size());
    for (int core = *first; core <= *last; ++core) {
      if (!std::binary_search(allowed.begin(), allowed.end(), core))
        return error("--pin {}: core {} is not one that this process may use ({} of them, from {} to {})", words, core,
                     allowed.size(), allowed.front(), allowed.back());
      pinned[i].push_back(core);
    }
  }
  return pinned;
}

Cores allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  Cores cores;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

cpu_set_t as_set(const Cores& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  return set;
}

}  // namespace weft::runtime
