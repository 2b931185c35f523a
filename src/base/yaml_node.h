// A YAML value that knows its file and line, for error messages. yaml-cpp is used behind this header only: its
// exceptions are caught in yaml_node.cpp.
#pragma once

#include <yaml-cpp/yaml.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft {

class YamlMap;

// What a file is, for error messages about the file as a whole.
struct YamlFileKind {
  std::string_view name;     // "a cluster file"
  std::string_view example;  // the shortest valid one: "cluster: dgx-h100:2"
};

class YamlNode {
 public:
  // Files describe hardware and plans, not data: a larger one is refused before it is read into memory.
  static constexpr std::size_t kMostBytes = std::size_t{512} * 1024;

  static Result<YamlNode> load(std::string_view text, std::string_view file, const YamlFileKind& kind);

  bool is_scalar() const { return node_.IsScalar(); }
  bool is_list() const { return node_.IsSequence(); }
  bool is_map() const { return node_.IsMap(); }
  int line() const { return line_; }
  std::string place() const { return fmt::format("{}:{}", *file_, line_); }

  // The scalar's text; `what` names the value in the error.
  Result<std::string> text(std::string_view what) const;
  Result<std::int64_t> integer(std::string_view what, std::int64_t least, std::int64_t most) const;
  Result<double> number(std::string_view what) const;
  Result<bool> boolean(std::string_view what) const;
  Result<std::vector<YamlNode>> list(std::string_view what) const;
  // A map with any keys, or with the `known` ones only (the error for a misspelt key suggests the nearest). Keys are
  // unique scalars.
  Result<YamlMap> map(std::string_view what) const;
  Result<YamlMap> map(std::string_view what, std::span<const std::string> known) const;

  template <class... Args>
  Error fail(fmt::format_string<Args...> format, Args&&... args) const {
    return error(format, std::forward<Args>(args)...).at(*file_, line_);
  }
  Error fail(const Error& error) const { return error.at(*file_, line_); }

 private:
  YamlNode(const YAML::Node& node, std::shared_ptr<const std::string> file, int line);

  YAML::Node node_;
  std::shared_ptr<const std::string> file_;
  int line_;
};

class YamlMap {
 public:
  struct Entry {
    std::string key;
    YamlNode key_node, value;
  };

  explicit YamlMap(YamlNode self, std::string what) : self_(std::move(self)), what_(std::move(what)) {}

  const std::vector<Entry>& entries() const { return entries_; }
  const YamlNode* find(std::string_view key) const;
  Result<YamlNode> require(std::string_view key) const;
  const YamlNode& self() const { return self_; }

 private:
  friend class YamlNode;
  YamlNode self_;
  std::string what_;
  std::vector<Entry> entries_;
};

// Text that YAML reads back as the same string, quoted where needed.
std::string yaml_quoted(std::string_view text);

}  // namespace weft
