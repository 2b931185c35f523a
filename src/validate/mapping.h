// From a measured row to the plan that was run.
//
// A row with the command line's options is that plan, but for rules that name its set, which may respell its node, its
// stack or items of its strategy. For a row as publications print it, rules as data override its
// cells with what the source's own pages state (tools/published_runs.yaml has those of the published tables):
// the model is the zoo's by its name, or its family's with the row's shapes; the cluster is a node preset by the name
// of the device; degrees, batch and type are the cells'; the stack is the row's `stack` column, else that of its
// source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "validate/measured.h"

namespace weft {

enum class MemoryKind : std::uint8_t { Allocated, Reserved, Device };
std::string_view name_of(MemoryKind kind);

struct MappedRow {
  PlanRequest request;
  MemoryKind memory = MemoryKind::Device;
  std::string set = {};                // rows of several files that are scored together; empty: none
  bool timed = true;                   // its time is scored; otherwise only its scaling from one device
  bool fitted = true;                  // constants may be fitted to it
  std::vector<std::string> overrides;  // "vocab 51200 → 50257: STACKS 0: …": rules that contradict a cell
};

// Empty by default: rows with the command line's options need none.
class MappingRules {
 public:
  // The node preset of the row's devices; empty: none is known.
  std::string node_of(const MeasuredRow& row) const;
  // The last matching rule wins. `stack` overrides rows and rules, unless empty.
  Result<MappedRow> map(const MeasuredRow& row, const std::string& stack = {}) const;

 private:
  friend Result<MappingRules> parse_mapping_rules(std::string_view text, std::string_view file);
  friend class RuleReader;

  struct Condition {
    std::string column;
    std::vector<std::string> words, not_words;  // in lower case
    std::int64_t least = 0, most = 0;           // range of a number
    bool is_number = false;

    bool holds(const MeasuredRow& row) const;
  };
  using Items = std::vector<std::pair<std::string, std::string>>;  // key = value
  struct Rule {
    std::vector<Condition> conditions;
    std::string node, trays, stack, base, fill_dtype, memory, seq, set, score, fit, why;
    Items model, fill_model, strategy, fill_strategy;

    bool fits(const MeasuredRow& row) const;
    bool names_set() const;
  };
  static void respell(const Rule& rule, MappedRow& row);
  std::vector<Rule> rules_;
};

// Reads a file in the form of tools/published_runs.yaml.
Result<MappingRules> parse_mapping_rules(std::string_view text, std::string_view file);
Result<MappingRules> read_mapping_rules(const std::string& path);

// The value of --dtype for "fp16 (AMP)", "amp_bf16", "FP8-MX"; empty for an empty cell.
Result<std::string> dtype_option(std::string_view cell);
// The zoo model of a name in any spelling: "Llama 3.1 405B" is llama3.1-405b. Empty: none.
std::string zoo_model_named(std::string_view name);

}  // namespace weft
