// How far the analytic model is from measured operators.
//
//   cost_check [--device h200] [--tuning FILE.yaml] [--half even|odd] [--cache cold|warm] [--rows] FILE.csv…
//
// Reads rows of tools/measure_gpu.py, asks the model for the same operator on the same device, and prints predicted /
// measured by family, or with --rows one line per row. --tuning lays constants over the built-in ones; --half keeps
// every other row (by a hash of what it measures), so that one half is fitted to and the other only looked at.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "cluster/library.h"
#include "cost/analytic.h"
#include "graph/operators.h"

namespace weft {
namespace {

using Row = std::map<std::string, std::string, std::less<>>;

// One record of a CSV file; quoted fields may hold commas, no line breaks.
std::vector<std::string> split_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      fields.back() += line[++i];  // a doubled quote stands for one
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  return fields;
}

Result<std::vector<Row>> read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return error("{}: cannot be read", path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> columns = split_fields(line);
  std::vector<Row> rows;
  for (int number = 2; std::getline(file, line); ++number) {
    const std::vector<std::string> fields = split_fields(line);
    if (fields.size() != columns.size())
      return error("{} fields where the header has {}", fields.size(), columns.size()).at(path, number);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < fields.size(); ++i) row.emplace(columns[i], fields[i]);
  }
  return rows;
}

// Operators whose inputs from the second on are parameters.
bool has_weights(OpKind kind) {
  switch (kind) {
    case OpKind::Linear:
    case OpKind::ExpertLinear:
    case OpKind::Conv2d:
    case OpKind::LayerNorm:
    case OpKind::RmsNorm:
    case OpKind::BatchNorm:
    case OpKind::Embedding:
    case OpKind::Bias:
      return true;
    default:
      return false;
  }
}

std::optional<Arithmetic> arithmetic_of(std::string_view dtype) {
  if (dtype == "tf32") return Arithmetic::kTf32;
  if (dtype == "fp8") return Arithmetic::kFp8;
  return std::nullopt;  // the operands' own
}

Result<Signature> signature_of(const Row& row) {
  const std::optional<OpKind> kind = op_kind_named(row.at("operator"));
  if (!kind) return error("no operator of Weft: {}", row.at("operator"));
  WEFT_TRY(const Attrs attrs, parse_attrs(row.at("attributes")));
  std::vector<TensorType> inputs;
  std::istringstream words(row.at("shapes"));
  for (std::string word; words >> word;) {
    WEFT_TRY(TensorType type, parse_tensor_type(word));
    type.weight = !inputs.empty() && has_weights(*kind);
    inputs.push_back(std::move(type));
  }
  WEFT_TRY(Signature forward, make_signature(*kind, attrs, inputs));
  const std::string& direction = row.at("direction");
  if (direction == "forward") return forward;
  for (const Gradient& gradient : gradients_of(forward))
    if (gradient.name == direction) return gradient_signature(forward, gradient);
  return error("{} has no gradient {}", row.at("operator"), direction);
}

// Which kernels are one, as the row's variant says; eager PyTorch fuses no biases and activations.
SoftwareStack stack_of(std::string_view variant, const SoftwareStack& base) {
  SoftwareStack stack = base;
  const bool fused = !variant.starts_with("unfused");
  stack.fused_attention.value = stack.fused_norm.value = stack.fused_cross_entropy.value = fused;
  stack.fused_bias_activation.value = false;
  stack.fused_optimizer.value = variant.starts_with("fused");
  return stack;
}

double measured_calls(std::string_view variant) { return variant == "cudnn_32_steps" ? 32 : 1; }

// FNV-1a of what the row measures.
bool in_even_half(const Row& row) {
  std::uint64_t hash = 14695981039346656037u;
  for (std::string_view column : {"operator", "attributes", "shapes", "dtype", "direction", "variant"})
    for (char c : row.find(column)->second) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return (hash >> 32 & 1) == 0;
}

struct Errors {
  std::vector<double> ratios;  // predicted / measured

  void print(std::string_view name) {
    std::vector<double> wrong;
    for (double ratio : ratios) wrong.push_back(std::abs(ratio - 1));
    double sum = 0;
    for (double w : wrong) sum += w;
    std::sort(ratios.begin(), ratios.end());
    std::sort(wrong.begin(), wrong.end());
    const auto at = [](const std::vector<double>& sorted, double share) {
      return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
    };
    fmt::print("{:<56} {:>5} {:>7.3f} {:>7.3f} {:>7.3f} {:>8.1f} {:>8.1f}\n", name, ratios.size(), at(ratios, 0.1),
               at(ratios, 0.5), at(ratios, 0.9), 100 * at(wrong, 0.5), 100 * sum / static_cast<double>(wrong.size()));
  }
};

struct Options {
  std::string device = "h200", tuning, half, cache = "cold";
  bool rows = false;
  std::vector<std::string> files;
};

Status run(const Options& options) {
  WEFT_TRY(const std::shared_ptr<const DeviceSpec> device, find_device(Library{}, options.device));
  WEFT_TRY(const SoftwareStack base, find_stack("megatron-lm"));
  std::optional<Tuning> own;
  if (!options.tuning.empty()) {
    std::ifstream file(options.tuning);
    if (!file) return error("{}: cannot be read", options.tuning);
    std::stringstream text;
    text << file.rdbuf();
    WEFT_TRY(own, parse_tuning(text.str(), options.tuning));
  }
  const Tuning& tuning = own ? *own : built_in_tuning();

  std::map<std::string, Errors> families, details;
  std::map<std::string, int> skipped;
  for (const std::string& path : options.files) {
    WEFT_TRY(const std::vector<Row> rows, read_rows(path));
    for (const Row& row : rows) {
      // Slowed on purpose, or not an operator alone.
      if (row.contains("beside") && row.at("beside") != "none") continue;
      if (row.at("cache") != options.cache && row.at("family") != "sustained") continue;
      if (!options.half.empty() && in_even_half(row) != (options.half == "even")) continue;
      const Result<Signature> signature = signature_of(row);
      if (!signature.ok()) {
        ++skipped[signature.error().message];
        continue;
      }
      const std::string& variant = row.at("variant");
      const AnalyticCost model(stack_of(variant, base), tuning);
      const ComputeCost cost = model.compute(
          {.signature = &*signature, .device = device.get(), .arithmetic = arithmetic_of(row.at("dtype"))});
      if (cost.time == 0) {
        ++skipped[fmt::format("{} takes no time: a view, or part of its neighbour", row.at("operator"))];
        continue;
      }
      const double predicted = static_cast<double>(cost.time) / 1e6 * measured_calls(variant);
      const double measured = std::stod(row.at("us_median")), ratio = predicted / measured;
      const std::string& direction = row.at("direction");
      families[row.at("family")].ratios.push_back(ratio);
      details[fmt::format("{} {} {} {} {}", row.at("family"), row.at("operator"), direction, row.at("dtype"), variant)]
          .ratios.push_back(ratio);
      if (options.rows)
        fmt::print("{:.4f} {:.2f} {:.2f} {} {} {} {} {} {} {:.4e} {}\n", ratio, predicted, measured, row.at("family"),
                   row.at("operator"), row.at("attributes").empty() ? "{}" : row.at("attributes"), direction,
                   row.at("dtype"), variant, cost.flops, row.at("shapes"));
    }
  }
  if (options.rows) return Ok{};
  fmt::print("{:<56} {:>5} {:>7} {:>7} {:>7} {:>8} {:>8}\n", "predicted / measured", "rows", "p10", "median", "p90",
             "median %", "mean %");
  for (auto& [name, errors] : details) errors.print(name);
  fmt::print("\n");
  Errors all;
  for (auto& [name, errors] : families) {
    all.ratios.insert(all.ratios.end(), errors.ratios.begin(), errors.ratios.end());
    errors.print(name);
  }
  if (!all.ratios.empty()) all.print("all");
  for (const auto& [reason, count] : skipped) fmt::print("skipped {}: {}\n", count, reason);
  return Ok{};
}

int start(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const bool more = i + 1 < count;
    if (word == "--rows")
      options.rows = true;
    else if (word == "--device" && more)
      options.device = words[++i];
    else if (word == "--tuning" && more)
      options.tuning = words[++i];
    else if (word == "--half" && more)
      options.half = words[++i];
    else if (word == "--cache" && more)
      options.cache = words[++i];
    else
      options.files.emplace_back(word);
  }
  const Status status = options.files.empty()
                            ? Status(error("usage: cost_check [--device h200] [--tuning FILE] [--half "
                                           "even|odd] [--cache cold|warm] [--rows] FILE.csv…"))
                            : run(options);
  if (status.ok()) return 0;
  std::cerr << status.error().message << "\n";
  return 1;
}

}  // namespace
}  // namespace weft

int main(int count, char** words) { return weft::start(count, words); }
