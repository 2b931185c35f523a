#include "cost_check_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/random.h"
#include "cost/analytic.h"

namespace weft {
namespace {

using Rows = std::vector<const MeasuredOperator*>;

constexpr int kAgain = 6;
constexpr double kInertia = 0.0005;  // decrease of the mean |log| required to move a constant by a factor of e

struct Group {
  std::vector<std::string> constants;
  std::vector<std::string> families;  // of the rows used; empty: all
};

bool is_optional(std::string_view name) {
  return name == "grouped_start" || name.ends_with(".elements") || name.ends_with(".units") ||
         name.ends_with(".start") || name.ends_with(".least");
}
double most_of(std::string_view name) {
  if (name.ends_with(".elements") || name.ends_with(".units")) return 1e15;
  if (name.ends_with(".start") || name.ends_with(".least") || name == "kernel" || name == "grouped_start" ||
      name == "load_delay")
    return 1e-1;
  if (name.starts_with("tile_overhead")) return 4096;
  if (name.starts_with("attention_ramp")) return 65536;
  if (name == "attention_tail" || name == "winograd" || name.starts_with("convolution.")) return 2;
  return 1;
}
double first_guess(std::string_view name) {
  if (name.ends_with(".elements")) return 5e11;
  if (name.ends_with(".units")) return 2e10;
  if (name.ends_with(".start") || name.ends_with(".least") || name == "grouped_start") return 1e-6;
  return 0.5;
}

std::vector<Group> groups() {
  const std::vector<std::string> gemms = {"gemm", "gemm_batched", "linear", "bmm", "matmul"};
  std::vector<Group> all = {{{"stream"}, {"pointwise", "add", "mul", "relu"}}, {{"kernel"}, {"pointwise"}}};
  for (Arithmetic arithmetic : kArithmetics) {
    if (arithmetic == Arithmetic::kFp16) continue;  // as bf16
    Group group{{}, gemms};
    for (std::string_view what :
         {"sustained", "tile_overhead", "wave_quantisation", "misaligned", "half_aligned", "turned"})
      group.constants.push_back(fmt::format("{}.{}", what, name(arithmetic)));
    for (int tile = 1; tile < 9; ++tile) group.constants.push_back(fmt::format("tiles.{}.{}", name(arithmetic), tile));
    all.push_back(group);
  }
  all.push_back({{"load_clock", "load_delay"}, {"gemm", "sustained", "matmul"}});
  all.push_back({{"accumulating"}, gemms});
  all.push_back({{"grouped", "grouped_start"}, {"grouped", "group_matmul"}});
  for (std::size_t i = 0; i < kPasses; ++i) {
    const auto pass = static_cast<Pass>(i);
    if (pass == Pass::Transform || pass == Pass::TransformWindows) continue;  // fitted with convolutions
    const std::string_view n = name_of(pass);
    std::vector<std::string> families = {"pointwise", "norm",      "softmax", "batch_norm", "pool",
                                         "embedding", "optimizer", "gelu",    "ln"};
    if (pass == Pass::LstmGates || pass == Pass::PlainLstmGates) families = {"lstm"};
    if (pass == Pass::Turn) families = {"convolution", "conv"};
    Group group{{fmt::format("{}.share", n), fmt::format("{}.elements", n), fmt::format("{}.units", n),
                 fmt::format("{}.start", n), fmt::format("{}.least", n)},
                families};
    // Measured on single tensors; an optimizer updates many in one launch, so only the share is fitted.
    if (pass == Pass::Optimizer || pass == Pass::PlainOptimizer) group.constants.resize(1);
    if (pass == Pass::Turn)
      group.constants.insert(group.constants.end(),
                             {"convolution.bf16", "convolution.tf32", "convolution.fp32", "convolution_thin",
                              "winograd", "transform.share", "transform_windows.share"});
    all.push_back(group);
  }
  const std::vector<std::string> attention = {"attention", "sdp_fwd", "sdp_bwd"};
  all.push_back({{"attention_forward", "attention_backward", "attention_narrow", "attention_ramp_forward",
                  "attention_ramp_backward", "attention_tail", "attention_flash2"},
                 attention});
  return all;
}

class Fit {
 public:
  Fit(const std::vector<MeasuredOperator>& rows, const Tuning& start, std::string_view entry)
      : tuning_(start), name_(entry) {
    for (const MeasuredOperator& row : rows)
      if (!row.held_out && tuning_.of(*row.device).name == entry) rows_.push_back(&row);
    for (DeviceTuning& device : tuning_.devices)
      if (device.name == entry) device_ = &device;
  }

  bool has_rows() const { return !rows_.empty(); }

  void run(Group group) {
    const Rows rows = rows_of(group);
    if (rows.size() < 3) return;
    // Where the shortest measurable time exceeds launch times, these cannot be fitted.
    if (std::any_of(rows.begin(), rows.end(), [](const MeasuredOperator* row) { return row->least > 0; }))
      std::erase_if(group.constants, [](const std::string& name) {
        return name.ends_with(".start") || name.ends_with(".least") || name == "kernel";
      });
    if (group.constants.empty()) return;
    for (const std::string& name : group.constants) {
      double* value = constant(*device_, name);
      if (value && *value == 0) *value = first_guess(name);
    }
    start_ = *device_;
    group_ = &group;
    double best = descend(rows, group);
    // Restarts from nearby points, against local minima.
    Rng rng(1);
    for (int again = 0; again < kAgain; ++again) {
      const DeviceTuning kept = *device_;
      for (const std::string& name : group.constants)
        if (double* value = constant(*device_, name))
          *value = std::min(most_of(name), *value * std::exp(2 * rng.uniform() - 1));
      const double found = descend(rows, group);
      if (found < best)
        best = found;
      else
        *device_ = kept;
    }
    for (const std::string& name : group.constants) {
      double* value = constant(*device_, name);
      if (!value) continue;
      if (is_optional(name)) {
        const double kept = *value;
        *value = 0;
        const double without = loss(rows);
        if (without > best + 0.002)
          *value = kept;
        else
          best = without;
      }
      *value = std::stod(fmt::format("{:.3g}", *value));
      if (*value == 0) continue;
      // A constant that moved without improving the loss is reset.
      const double moved = *value;
      best = loss(rows);
      *value = *constant(start_, name);
      if (loss(rows) > best + 1e-4) *value = moved;
    }
    best = loss(rows);
    std::cerr << fmt::format("{:<40} {:>5} rows, mean |log| {:.4f}\n", group.constants.front(), rows.size(), best);
    for (const std::string& name : group.constants)
      if (const double* value = constant(*device_, name); value && *value != *constant(start_, name))
        touched_.push_back(name);
    if (group.constants.front() == "sustained.bf16") {
      device_->products[static_cast<std::size_t>(Arithmetic::kFp16)] =
          device_->products[static_cast<std::size_t>(Arithmetic::kBf16)];
      for (std::string name : group.constants)
        if (std::find(touched_.begin(), touched_.end(), name) != touched_.end())
          touched_.push_back(name.replace(name.find("bf16"), 4, "fp16"));
    }
  }

  FittedDevice result(std::string_view source) && {
    std::string yaml = lines(source);
    return {std::move(tuning_), std::move(yaml)};
  }

 private:
  Rows rows_of(const Group& group) {
    const DeviceTuning kept = *device_;
    std::vector<double> before;
    Rows candidates, found;
    for (const MeasuredOperator* row : rows_)
      if (group.families.empty() ||
          std::find(group.families.begin(), group.families.end(), row->family) != group.families.end())
        candidates.push_back(row);
    for (const MeasuredOperator* row : candidates) before.push_back(predicted_seconds(*row, tuning_));
    // Optional constants of passes that were not measured are not changed: only the share takes effect.
    for (const std::string& name : group.constants)
      if (double* value = constant(*device_, name); value && !is_optional(name)) *value = *value * 0.37 + 1e-4;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (std::abs(predicted_seconds(*candidates[i], tuning_) / before[i] - 1) > 1e-9) found.push_back(candidates[i]);
    *device_ = kept;
    return found;
  }

  double descend(const Rows& rows, const Group& group) {
    // First a loose limit on a row's loss, then a tight one, against outliers.
    most_ = 4;
    double best = loss(rows);
    static constexpr double kSteps[] = {4, 2, 1.4, 1.2, 1.1, 1.05, 1.02, 1.4, 1.2, 1.1, 1.05, 1.02, 1.01};
    for (double step : kSteps) {
      if (step < 1.5 && most_ > 1) {
        most_ = 1;
        best = loss(rows);
      }
      bool better = true;
      for (int sweep = 0; better && sweep < 8; ++sweep) {
        better = false;
        for (const std::string& name : group.constants) better |= move(rows, name, step, best);
      }
    }
    return best;
  }

  bool move(const Rows& rows, const std::string& name, double step, double& best) {
    double* value = constant(*device_, name);
    if (!value || *value == 0) return false;
    const double kept = *value;
    for (double next : {kept * step, kept / step}) {
      if (next > most_of(name)) next = most_of(name);
      if (next < 1e-9 || next == kept) continue;
      *value = next;
      const double found = loss(rows);
      if (found < best - 1e-7) {
        best = found;
        return true;
      }
    }
    *value = kept;
    return false;
  }

  double loss(const Rows& rows) const {
    double sum = 0;
    for (const MeasuredOperator* row : rows)
      sum += std::min(most_, std::abs(std::log(predicted_seconds(*row, tuning_) / row->seconds)));
    return sum / static_cast<double>(rows.size()) + drift();
  }

  // A pull to the initial values, for constants that the rows hardly determine.
  double drift() const {
    double sum = 0;
    DeviceTuning &now = *device_, &then = const_cast<DeviceTuning&>(start_);
    for (const std::string& name : group_->constants) {
      const double *value = constant(now, name), *before = constant(then, name);
      if (value && *value > 0 && *before > 0) sum += std::abs(std::log(*value / *before));
    }
    return kInertia * sum;
  }

  std::string lines(std::string_view source) {
    std::string text;
    const auto touched = [&](std::string_view prefix) {
      return std::any_of(touched_.begin(), touched_.end(), [&](const std::string& n) { return n.starts_with(prefix); });
    };
    for (std::string_view what : {"sustained", "tile_overhead", "wave_quantisation", "misaligned", "half_aligned",
                                  "turned", "convolution", "tiles"}) {
      std::string inner;
      for (Arithmetic arithmetic : kArithmetics) {
        const std::string key = fmt::format("{}.{}", what, name(arithmetic));
        if (!touched(key)) continue;
        std::string value;
        if (what == "tiles") {
          for (const Tile& tile : device_->products[static_cast<std::size_t>(arithmetic)].tiles.value)
            value += fmt::format("{}[{}, {}, {:.3g}]", value.empty() ? "" : ", ", tile.m, tile.n, tile.efficiency);
          value = "[" + value + "]";
        } else {
          value = fmt::format("{:.3g}", *constant(*device_, key));
        }
        inner += fmt::format("{}{}: [{}, {}]", inner.empty() ? "" : ", ", name(arithmetic), value, source);
      }
      if (!inner.empty()) text += fmt::format("    {}: {{{}}}\n", what, inner);
    }
    std::vector<std::string> plain;
    for (const std::string& n : touched_)
      if (n.find('.') == std::string::npos && std::find(plain.begin(), plain.end(), n) == plain.end())
        plain.push_back(n);
    for (const std::string& n : plain) {
      const double value = *constant(*device_, n);
      text += n == "kernel" || n == "grouped_start" || n == "load_delay"
                  ? fmt::format("    {}: [{:.3g}us, {}]\n", n, value * 1e6, source)
                  : fmt::format("    {}: [{:.3g}, {}]\n", n, value, source);
    }
    std::string passes;
    for (std::size_t i = 0; i < kPasses; ++i) {
      const std::string_view n = name_of(static_cast<Pass>(i));
      if (!touched(fmt::format("{}.", n))) continue;
      const PassTuning& pass = device_->passes[i].value;
      std::string fields = fmt::format("share: {:.3g}", pass.share);
      if (pass.elements > 0) fields += fmt::format(", elements: {:.3g}", pass.elements);
      if (pass.units > 0) fields += fmt::format(", units: {:.3g}", pass.units);
      if (pass.start.value > 0) fields += fmt::format(", start: {:.3g}us", pass.start.value * 1e6);
      if (pass.least.value > 0) fields += fmt::format(", least: {:.3g}us", pass.least.value * 1e6);
      passes += fmt::format("      {}: [{{{}}}, {}]\n", n, fields, source);
    }
    if (!passes.empty()) text += "    passes:\n" + passes;
    return text;
  }

  Tuning tuning_;
  std::string name_;
  DeviceTuning* device_ = nullptr;
  DeviceTuning start_;
  const Group* group_ = nullptr;
  Rows rows_;
  std::vector<std::string> touched_;
  double most_ = 1;
};

}  // namespace

double predicted_seconds(const MeasuredOperator& op, const Tuning& tuning) {
  const double kernels = static_cast<double>(operator_cost(op.query(), tuning, op.kernels).time) * 1e-12;
  return std::max(op.least, kernels * op.calls + op.overhead);
}

namespace {

struct Loads {
  Interference law;
  DeviceLoad computing, communicating;
};

Loads loads_of(const MeasuredInterference& row, const Tuning& tuning) {
  const DeviceSpec& device = *row.alone.device;
  const ComputeCost cost = operator_cost(row.alone.query(), tuning, row.alone.kernels);
  const auto part = [](double value) { return static_cast<std::int64_t>(value * static_cast<double>(kOne)); };
  return {AnalyticCost(SoftwareStack{}, tuning).interference(device),
          {cost.sm_share, cost.memory_share, cost.waves},
          {part(row.units / compute_units(device).count), part(row.bytes_per_second / memory_rate(device).peak.value)}};
}

}  // namespace

double predicted_slowdown(const MeasuredInterference& row, const Tuning& tuning) {
  const Loads loads = loads_of(row, tuning);
  return static_cast<double>(kOne) / compute_speed(loads.law, loads.computing, loads.communicating);
}
double predicted_slowdown_of_other(const MeasuredInterference& row, const Tuning& tuning) {
  const Loads loads = loads_of(row, tuning);
  return static_cast<double>(kOne) / communication_speed(loads.law, loads.computing, loads.communicating);
}

Result<FittedDevice> fit_interference(const std::vector<MeasuredInterference>& rows, const Tuning& start,
                                      std::string_view entry, std::string_view source) {
  FittedDevice fitted{start, {}};
  DeviceTuning* device = nullptr;
  for (DeviceTuning& each : fitted.tuning.devices)
    if (each.name == entry) device = &each;
  if (!device) return error("no entry '{}' in presets/cost/devices.yaml", entry);
  const auto loss = [&] {
    double sum = 0;
    for (const MeasuredInterference& row : rows) {
      if (row.alone.held_out) continue;
      sum += std::abs(std::log(predicted_slowdown(row, fitted.tuning) / row.slowdown));
      if (row.slowdown_of_other > 0)
        sum += std::abs(std::log(predicted_slowdown_of_other(row, fitted.tuning) / row.slowdown_of_other));
    }
    return sum;
  };
  const char* names[] = {"compute_per_sm", "wave_loss", "wave_weight", "memory_weight", "communication_weight"};
  double best = loss();
  for (double step : {0.2, 0.1, 0.05, 0.02, 0.01, 0.1, 0.05, 0.02, 0.01})
    for (bool better = true; better;) {
      better = false;
      for (const char* name : names) {
        double& value = *constant(*device, name);
        for (double next : {value + step, value - step}) {
          if (next < 0 || next > (std::string_view(name) == "wave_loss" ? 0.9 : name[0] == 'w' ? 1 : 4)) continue;
          const double kept = value;
          value = next;
          if (const double found = loss(); found < best - 1e-9) {
            best = found;
            better = true;
          } else {
            value = kept;
          }
        }
      }
    }
  for (const char* name : names)
    fitted.yaml += fmt::format("    {}: [{:.3g}, {}]\n", name, *constant(*device, name), source);
  return fitted;
}

Result<FittedDevice> fit_device(const std::vector<MeasuredOperator>& rows, const Tuning& start, std::string_view entry,
                                std::string_view only, std::string_view source) {
  const auto found = std::find_if(start.devices.begin(), start.devices.end(),
                                  [&](const DeviceTuning& device) { return device.name == entry; });
  if (found == start.devices.end()) return error("no entry '{}' in presets/cost/devices.yaml", entry);
  Fit fit(rows, start, entry);
  if (!fit.has_rows()) return error("no measured operator is of a device that '{}' describes", entry);
  // Twice, since groups depend on each other.
  for (int round = 0; round < 2; ++round)
    for (const Group& group : groups())
      if (group.constants.front().find(only) != std::string::npos) fit.run(group);
  return std::move(fit).result(source);
}

}  // namespace weft
