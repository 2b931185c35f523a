// weft validate: predicted against measured.
#include "validate/validate.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "ask/validation.h"
#include "base/whole_file.h"
#include "calibrate/leave_out.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/rules_argument.h"
#include "cost/calibration.h"
#include "validate/searched.h"

namespace weft {
namespace {

struct ValidateArguments {
  ValidationRequest request;
  std::string plot, spread;
  std::vector<std::string> held_out;
  bool json = false, markdown = false, timing = false, plan = false, leave_out = false;
};

Result<Answer> run_validation(const ValidateArguments& arguments) {
  const bool leaving_out = arguments.leave_out || !arguments.spread.empty();
  if (!arguments.held_out.empty() && !leaving_out)
    return error("--held-out says what --leave-out and --spread take as not fitted; add one of them");
  WEFT_TRY(const ValidationTables tables, read_tables(arguments.request));
  const std::vector<MeasuredFile>& files = tables.runs;
  const ValidateOptions options = options_of(arguments.request, tables);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds_since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  if (arguments.plan) {
    Progress progress;
    progress.now("predicting what was run");
    const SearchedOptions searching{
        options.rules, options.stack, options.calibration, options.threads, [&](std::size_t done, std::size_t of) {
          progress.now("searching plans for the same problems", static_cast<double>(done) / static_cast<double>(of));
        }};
    const SearchValidation found = validate_search(files, searching);
    progress.done();
    if (arguments.json) return Answer{json_of(found)};
    std::string text = describe(found, options.worst);
    if (arguments.timing) text += fmt::format("\ntook {:.1f} s\n", seconds_since());
    return Answer{std::move(text)};
  }
  const Validation validation = validate_tables(arguments.request, tables);
  std::optional<LeftOut> left_out;
  std::optional<WholeFile> spread;
  if (leaving_out) {
    if (!arguments.spread.empty()) {
      Result<WholeFile> file = WholeFile::create(arguments.spread);
      if (!file.ok()) return file.error().at("--spread");
      spread.emplace(std::move(file).value());
    }
    Progress progress;
    CalibrateOptions leaving{.rules = options.rules, .held_out = arguments.held_out, .threads = options.threads};
    if (tables.calibration) leaving.start = *tables.calibration;
    leaving.progress = [&](const std::string& what) { progress.now(what); };
    WEFT_TRY(left_out, leave_out(files, validation, leaving));
    progress.done();
  }
  const double seconds = seconds_since();
  Answer answer;
  if (spread) {
    spread->write(print(left_out->spread));
    if (const Status finished = spread->finish(); !finished.ok()) answer.unwritten = finished.error().at("--spread");
  }
  if (!arguments.plot.empty()) {
    Result<WholeFile> file = WholeFile::create(arguments.plot);
    if (!file.ok()) return file.error().at("--plot");
    file->write(plot_of(validation));
    if (const Status finished = file->finish(); !finished.ok()) answer.unwritten = finished.error().at("--plot");
  }
  if (arguments.json) {
    nlohmann::json json = to_json(validation);
    if (left_out) json["left_out"] = to_json(*left_out);
    answer.text = to_text(json);
  } else if (arguments.markdown) {
    answer.text = markdown_of(validation) + (left_out ? "\n" + markdown_of(*left_out) : "");
  } else {
    answer.text = describe(validation) + (left_out ? "\n" + describe(*left_out) : "");
  }
  if (arguments.timing && !arguments.json && !arguments.markdown)
    answer.text += fmt::format("\ntook {:.1f} s: {:.1f} rows per second\n", seconds,
                               static_cast<double>(validation.predictions.size()) / seconds);
  return answer;
}

}  // namespace

void add_validate(CLI::App& app, Chosen& chosen) {
  const auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* command = app.add_subcommand("validate", "Compare predictions with measured runs, row by row and in sum.");
  command->footer(
      "\nA table has one run per row, in the words of weft simulate: model, cluster, devices, strategy, stack, dtype, "
      "seq,\n"
      "global_batch; and what was measured: measured_step_s, measured_mem_gib of mem_kind allocated, reserved or "
      "device.\n"
      "Rows of one `set` are scored together. Each row is planned and simulated as it was run; one that cannot be is\n"
      "skipped and listed with the reason. Errors are fractions of time; τ is Kendall's, within rows that differ in "
      "the plan "
      "alone.\n"
      "Also read, by rules that say what node, stack and model their words mean (--rules; tools/published_runs.yaml "
      "has\n"
      "those of published tables): runs as publications print them (gpu, gpus, gpus_per_node, model, layers, hidden,\n"
      "heads, kv_heads, ffn, vocab, seq, micro_batch, global_batch, dtype, tp, pp, dp, cp, ep, vpp, zero_stage,\n"
      "recompute, stack, and iter_time_s, tokens_per_s_total, tokens_per_s_per_gpu, samples_per_s, tflops_per_gpu or\n"
      "mfu_pct; mem_gb in GiB), curves of all-reduces (gpu, ngpus, size_bytes or size_mb, time_ms) and layers of "
      "experts (gpu, "
      "case,\n"
      "forward_ms, backward_ms, max_allocated_bytes, model), told by their columns.\n"
      "With --plan, weft plan searches each run's model, cluster and batch; what it finds should be predicted at least "
      "as\n"
      "fast as the plan that was run, and where it is not the reason is told.\n"
      "\nExamples:\n"
      "  weft validate runs/*.csv --top 5\n"
      "  weft validate runs/*.csv --plan\n"
      "  weft validate published/*.csv --rules tools/published_runs.yaml\n");
  command->add_option("files", arguments->request.files, "tables of measured runs (.csv)")->required();
  add_rules_argument(*command, arguments->request.rules);
  command->add_option("--stack", arguments->request.stack, "software stack of all rows (default: by row and rules)");
  command->add_option("--calibration", arguments->request.calibration,
                      "constants over the built-in ones, as weft calibrate writes them");
  CLI::Option* leave_out =
      command->add_flag("--leave-out", arguments->leave_out,
                        "also predict each publication (table, or set) with constants fitted to the others");
  command->add_option("--held-out", arguments->held_out, "with it: tables that no constant was fitted to, by name")
      ->delimiter(',');
  CLI::Option* spread =
      command->add_option("--spread", arguments->spread,
                          "write how far they are then off, for the intervals of forecasts (presets/cost/spread.yaml)");
  command->add_option("--top", arguments->request.worst, "how many of the worst rows to explain")
      ->capture_default_str();
  command->add_option("--plot", arguments->plot, "draw predicted against measured into this file (HTML)");
  command->add_flag("--timing", arguments->timing, "also how long weft itself took");
  CLI::Option* json = command->add_flag("--json", arguments->json, "one JSON object (docs/schema)");
  CLI::Option* plan =
      command->add_flag("--plan", arguments->plan, "compare plans that were run with those that weft plan finds")
          ->excludes(leave_out)
          ->excludes(spread);
  command->add_flag("--markdown", arguments->markdown, "the scores alone, as docs/accuracy.md has them")
      ->excludes(json)
      ->excludes(plan);
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(run_validation(*arguments)); }; });
}

}  // namespace weft
