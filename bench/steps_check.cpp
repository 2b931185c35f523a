// Whole training steps on one device: the analytic and the measured cost model beside measured steps.
//
//   steps_check --db h200.db [--cluster dgx-h200:1] [--kinds MODEL] [STEPS.csv]
//   steps_check --db h200.db --held-out
//
// STEPS.csv: rows of tools/measure_steps.py (measurements/h200/steps.csv). Compared is the time of all kernels, and for
// the step as a whole where the host keeps up. Without it, a list of models that were not run: the two models side by
// side. --kinds prints one row's time by sort of operator. --held-out predicts a tenth of the profile's cold operators
// from the others.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <map>

#include "base/csv.h"
#include "cost/measured.h"
#include "forecast/evidence.h"
#include "profile/database.h"

namespace weft {
namespace {

struct Case {
  std::string name, model = {}, dtype = {}, stack = {};
  std::int64_t batch = 0, seq = 0;
  bool channels_last = true;
  double kernel_ms = 0, step_ms = 0, host_ms = 0;
};

Result<double> milliseconds(const std::string& cell) {
  char* end = nullptr;
  const double value = std::strtod(cell.c_str(), &end);
  if (cell.empty() || *end != 0) return error("'{}': not a number", cell);
  return value;
}

Result<std::vector<Case>> measured_cases(const std::string& path) {
  static const std::map<std::string, std::string> kModels = {
      {"llama-1b", "llama3.2-1b"}, {"llama-7b-8-layers", "llama2-7b:layers=8"}, {"vit-b-16", "vit-b"}};
  WEFT_TRY(const CsvTable table, read_csv(path));
  std::map<std::string, std::size_t> column;
  for (std::size_t i = 0; i < table.columns.size(); ++i) column[table.columns[i]] = i;
  for (const char* name : {"model", "batch", "sequence", "precision", "layout", "step_ms", "host_ms", "kernel_ms"})
    if (!column.contains(name)) return error("{}: no column {}", path, name);
  std::vector<Case> cases;
  for (const CsvRow& row : table.rows) {
    const auto cell = [&](const char* name) { return row.cells[column.at(name)]; };
    Case made{.name = cell("model")};
    const auto known = kModels.find(made.name);
    made.model = known == kModels.end() ? made.name : known->second;
    const std::string precision = cell("precision");
    made.dtype = precision == "amp" ? "amp-bf16" : precision;
    made.stack = precision == "bf16" ? "pytorch-bf16" : "pytorch-ddp";
    made.channels_last = cell("layout") == "nhwc" || precision == "bf16";
    WEFT_TRY(const double batch, milliseconds(cell("batch")));
    made.batch = static_cast<std::int64_t>(batch);
    if (!cell("sequence").empty() && made.name != "vit-b-16") {
      WEFT_TRY(const double seq, milliseconds(cell("sequence")));
      made.seq = static_cast<std::int64_t>(seq);
    }
    WEFT_TRY(made.kernel_ms, milliseconds(cell("kernel_ms")));
    WEFT_TRY(made.step_ms, milliseconds(cell("step_ms")));
    WEFT_TRY(made.host_ms, milliseconds(cell("host_ms")));
    cases.push_back(std::move(made));
  }
  return cases;
}

std::vector<Case> other_cases() {
  std::vector<Case> cases;
  for (const auto& [model, batch, seq] :
       std::vector<std::tuple<const char*, int, int>>{{"gpt2-774m", 8, 1024},
                                                      {"gpt2-1.5b", 4, 1024},
                                                      {"gpt3-1.3b", 4, 2048},
                                                      {"llama3-8b:layers=4", 1, 8192},
                                                      {"qwen2.5-0.5b", 4, 4096},
                                                      {"mistral-7b:layers=6", 2, 4096},
                                                      {"bert-base", 64, 512},
                                                      {"t5-base", 32, 512},
                                                      {"vit-l", 64, 0},
                                                      {"resnet101", 128, 0},
                                                      {"inception-v3", 128, 0},
                                                      {"alexnet", 256, 0}})
    cases.push_back({model, model, "bf16", "pytorch-bf16", batch, seq});
  return cases;
}

struct Predicted {
  double ms = 0, host_ms = 0;
  StepEvidence evidence;
  std::map<std::string, double> sorts;
};

Result<Predicted> predict(const Plan& plan, const CostModel& cost) {
  Predicted made;
  WEFT_TRY(const PlayedPlan played, play_plan(plan, cost, {.record = true, .host = false}));
  made.ms = static_cast<double>(played.run.makespan) * 1e-9;
  made.evidence = evidence_of(plan, played, cost);
  for (const PathShare& share : judge(plan, played, {.record = true}).critical_path) {
    const double ms = static_cast<double>(share.time) * 1e-9;
    // What the steps of tools/measure_steps.py do not have: they are of one micro-batch and clip no gradients.
    if (share.what == "accumulate" || share.what == "sum_squares" || share.what == "clip_coefficient")
      made.ms -= ms;
    else
      made.sorts[share.what] = ms;
  }
  return made;
}

// FNV-1a of what was measured: which tenth it is in.
std::uint64_t tenth_of(const Event& event) {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::string* part : {&event.op, &event.attributes, &event.shapes, &event.dtype, &event.direction})
    for (char c : *part) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return (hash >> 32) % 10;
}

Status hold_out(const std::string& database, const std::string& cluster_name) {
  WEFT_TRY(const std::vector<MeasuredEvent> profile, read_profile(database));
  WEFT_TRY(const Cluster cluster, parse_cluster(cluster_name));
  WEFT_TRY(const SoftwareStack stack, find_stack("pytorch-bf16"));
  std::vector<MeasuredEvent> known, held_out;
  for (const MeasuredEvent& event : profile) {
    if (event.event.variant == "back_to_back") continue;  // what is held out is of single calls
    (tenth_of(event.event) == 0 ? held_out : known).push_back(event);
  }
  WEFT_TRY(const std::unique_ptr<MeasuredCost> measured, MeasuredCost::make(known, database, cluster, stack));
  const AnalyticCost analytic(stack);
  std::map<std::string, std::array<std::vector<double>, 2>> wrong;
  std::vector<double> within;  // errors over the uncertainty that was told
  for (const MeasuredEvent& event : held_out) {
    // Kernels that the stack runs; the others answer another question.
    const std::string& variant = event.event.variant;
    if (event.event.cache != "cold" || variant.starts_with("foreach") || variant == "loop" || variant == "bmm" ||
        variant == "grouped_mm_skewed" || variant == "flash" || variant == "default" || variant == "unfused_f32_copy" ||
        variant == "cublas_fast_accumulation" || variant.find("nchw") != std::string::npos ||
        (variant == "unfused" && (event.event.op == "attention" || event.event.op == "rms_norm")))
      continue;
    const Result<Signature> signature = signature_of(event.event);
    if (!signature.ok()) continue;
    ComputeQuery query{.signature = &*signature, .device = &cluster.spec(DeviceId(0))};
    if (event.event.dtype == "tf32") query.arithmetic = Arithmetic::kTf32;
    if (event.event.dtype == "fp8") query.arithmetic = Arithmetic::kFp8;
    const ComputeCost a = analytic.compute(query), m = measured->compute(query);
    if (a.time == 0) continue;
    const double truth = pooled(event.samples).mean_s * 1e12;
    for (const std::string& group :
         {event.event.op, std::string("all, ") + std::string(name_of(m.evidence.origin)), std::string("all")}) {
      wrong[group][0].push_back(100 * std::abs(static_cast<double>(a.time) / truth - 1));
      wrong[group][1].push_back(100 * std::abs(static_cast<double>(m.time) / truth - 1));
    }
    within.push_back(std::abs(static_cast<double>(m.time) / truth - 1) / static_cast<double>(m.evidence.spread));
  }
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
  };
  fmt::print("{:<24}{:>6}{:>22}{:>10}\n", "held-out tenth", "events", "median %: analytic", "measured");
  for (const auto& [group, errors] : wrong)
    fmt::print("{:<24}{:>6}{:>22.1f}{:>10.1f}\n", group, errors[0].size(), median(errors[0]), median(errors[1]));
  const auto inside = std::count_if(within.begin(), within.end(), [](double off) { return off <= 1; });
  fmt::print("{} of {} within the uncertainty told\n", inside, within.size());
  return Ok{};
}

Status run(const std::string& database, const std::string& cluster, const std::string& kinds,
           const std::string& steps) {
  WEFT_TRY(const std::vector<MeasuredEvent> profile, read_profile(database));
  std::vector<Case> cases = other_cases();
  if (!steps.empty()) {
    WEFT_TRY(cases, measured_cases(steps));
  }
  fmt::print("{:<22}{:>6} {:<9}{:>9}{:>9}{:>9}{:>7}{:>9}{:>7}   {}\n", "one device, ms", "batch", "dtype", "step",
             "kernels", "analytic", "%", "measured", "%", "measured/interpolated/scaled/model, uncertain by");
  double analytic_wrong = 0, measured_wrong = 0;
  int counted = 0;
  for (const Case& each : cases) {
    PlanRequest request{.model = each.model, .cluster = cluster, .strategy = "dp=1", .dtype = each.dtype};
    request.stack = each.stack;
    request.global_batch = request.micro_batch = each.batch;
    if (each.seq > 0) request.seq = each.seq;
    request.devices = {0};
    WEFT_TRY(Plan plan, make_plan(request));
    SoftwareStack stack = plan.stack();
    stack.channels_last.value = each.channels_last;
    stack.attention_generation.value = 3;  // PyTorch 2.11 takes cuDNN's on Hopper (steps_kernels.csv)
    // Products add the biases of linear layers themselves (addmm); convolutions do not. One knob says so of biases and
    // of gated activations, which eager PyTorch runs as two kernels: models have the ones or the others.
    stack.fused_bias_activation.value =
        each.model.starts_with("gpt") || each.model.starts_with("bert") || each.model.starts_with("vit");
    plan = with_stack(std::move(plan), std::move(stack));
    const AnalyticCost analytic(plan.stack());
    WEFT_TRY(const std::unique_ptr<MeasuredCost> measured,
             MeasuredCost::make(profile, database, plan.cluster(), plan.stack()));
    WEFT_TRY(const Predicted a, predict(plan, analytic));
    WEFT_TRY(const Predicted m, predict(plan, *measured));
    const auto percent = [&](double predicted) { return 100 * (predicted / each.kernel_ms - 1); };
    const auto share = [&](Origin origin) { return 100 * m.evidence.shares[static_cast<std::size_t>(origin)]; };
    const bool known = each.kernel_ms > 0;
    fmt::print("{:<22}{:>6} {:<9}{:>9}{:>9}{:>9.2f}{:>7}{:>9.2f}{:>7}   {:.0f}/{:.0f}/{:.0f}/{:.0f} ± {:.0f} %\n",
               each.name, each.batch, each.dtype, known ? fmt::format("{:.2f}", each.step_ms) : "",
               known ? fmt::format("{:.2f}", each.kernel_ms) : "", a.ms,
               known ? fmt::format("{:+.1f}", percent(a.ms)) : fmt::format("{:+.1f}", 100 * (a.ms / m.ms - 1)), m.ms,
               known ? fmt::format("{:+.1f}", percent(m.ms)) : "", share(Origin::Measured), share(Origin::Interpolated),
               share(Origin::Scaled), share(Origin::Model), 100 * m.evidence.uncertainty);
    if (known) {
      ++counted;
      analytic_wrong += std::abs(percent(a.ms));
      measured_wrong += std::abs(percent(m.ms));
    }
    if (each.name == kinds)
      for (const auto& [sort, time] : m.sorts) {
        const auto found = a.sorts.find(sort);
        fmt::print("    {:<30}{:>9.2f} analytic {:>9.2f} measured\n", sort, found == a.sorts.end() ? 0 : found->second,
                   time);
      }
  }
  if (counted > 0)
    fmt::print("mean error over {} steps: analytic {:.1f} %, measured {:.1f} %\n", counted, analytic_wrong / counted,
               measured_wrong / counted);
  return Ok{};
}

int start(int count, char** words) {
  std::string database, cluster = "dgx-h200:1", kinds, steps;
  bool held_out = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--db" && i + 1 < count)
      database = words[++i];
    else if (word == "--cluster" && i + 1 < count)
      cluster = words[++i];
    else if (word == "--kinds" && i + 1 < count)
      kinds = words[++i];
    else if (word == "--held-out")
      held_out = true;
    else
      steps = word;
  }
  const Status status =
      database.empty()
          ? Status(error("usage: steps_check --db FILE.db [--cluster C] [--kinds MODEL] [STEPS.csv] | --held-out"))
      : held_out ? hold_out(database, cluster)
                 : run(database, cluster, kinds, steps);
  if (status.ok()) return 0;
  std::cerr << status.error().message << "\n";
  return 1;
}

}  // namespace
}  // namespace weft

int main(int count, char** words) { return weft::start(count, words); }
