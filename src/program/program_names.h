// How a program's text names tensors and operators, inside the folder.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

// Names of tensors, or of operators, in a graph, in both directions. Those that share a name are written as "@number".
template <class I>
class NameTable {
 public:
  template <class Column>
  NameTable(const Graph& graph, const Column& column) : names_(column.size()) {
    ids_.reserve(column.size());
    for (I id : column.ids()) {
      names_[id] = graph.name(id);
      if (const auto [known, added] = ids_.try_emplace(names_[id], id); !added) known->second = I();
    }
  }

  // Its name in the text.
  std::string written(I id) const { return ids_.at(names_[id]) == id ? names_[id] : "@" + std::to_string(id.index()); }
  Result<I> find(std::string_view text) const {
    if (text.starts_with('@')) {
      std::size_t index = 0;
      const auto [end, status] = std::from_chars(text.data() + 1, text.data() + text.size(), index);
      if (status != std::errc() || end != text.data() + text.size() || index >= names_.size())
        return error("'{}' is not in the graph, which has @0 to @{}", shown(text), names_.size() - 1);
      return I(index);
    }
    const auto found = ids_.find(std::string(text));
    if (found == ids_.end()) return error("'{}' is not in the graph", shown(text));
    if (!found->second.valid()) return error("'{}' is the name of several; write @number", shown(text));
    return found->second;
  }

 private:
  static std::string shown(std::string_view text) {
    std::string printable(text.substr(0, 64));
    for (char& c : printable)
      if (c < ' ') c = '?';
    return printable;
  }

  IdVec<I, std::string> names_;
  std::unordered_map<std::string, I> ids_;
};

}  // namespace weft
