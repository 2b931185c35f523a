#include "report/plan_file.h"

#include <fmt/format.h>

#include <type_traits>

#include "base/parse_json.h"
#include "base/read_file.h"
#include "problem/budget.h"
#include "report/simulation.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Reads keys of an object, with errors that name them.
class Keys {
 public:
  Keys(const Json& json, std::string_view file) : json_(json), file_(file) {}

  template <class T>
  Status take(const char* key, T& into) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return error("{}: '{}' is missing; is it a plan.json of weft plan --out?", file_, key);
    if constexpr (std::is_integral_v<T>) {
      const bool whole =
          found->is_number_integer() && (!found->is_number_unsigned() || found->get<std::uint64_t>() < kMost);
      if (!whole || found->get<std::int64_t>() < 0) return error("{}: '{}' is not a whole number", file_, key);
      into = static_cast<T>(found->get<std::int64_t>());
      return Ok{};
    } else {
      try {
        into = found->get<T>();
      } catch (const Json::exception&) {
        return error("{}: '{}' is of another type", file_, key);
      }
      return Ok{};
    }
  }
  // An absent key leaves the value unchanged.
  template <class T>
  Status take_if_any(const char* key, T& into) const {
    return json_.contains(key) ? take(key, into) : Status(Ok{});
  }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  const Json& json_;
  const std::string_view file_;
};

}  // namespace

PlanRequest PlanFile::request() const {
  PlanRequest request;
  request.model = model;
  request.cluster = cluster;
  if (devices > 0) request.device_count = devices;
  request.strategy = strategy;
  request.global_batch = global_batch;
  if (seq > 0) request.seq = seq;
  request.dtype = dtype;
  request.stack = stack;
  request.freeze = freeze;
  request.headroom = headroom;
  request.optimizer = optimizer;
  request.reduce_dtype = reduce_dtype;
  if (max_memory > 0) request.max_memory = Bytes{max_memory};
  if (names_a_file(strategy)) request.tree = tree;
  return request;
}

double PlanFile::predicted_s() const {
  const auto found = prediction.find("step_time_s");
  return found != prediction.end() && found->is_number() ? found->get<double>() : 0;
}

std::string fingerprint(const Program& program, const Graph& graph) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char byte : print(program, graph)) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  return fmt::format("fnv1a:{:016x}", hash);
}

PlanFile plan_file(const Plan& plan, const PlayedPlan& played, const Forecast& forecast, const PlanOutcome& outcome,
                   std::string_view search, std::int64_t seed) {
  PlanFile file;
  file.model = plan.job->words.model;
  file.cluster = plan.job->words.cluster;
  file.devices = plan.job->words.device_count.value_or(0);
  file.stack = plan.stack().name;
  file.dtype = plan.job->precision.name;
  file.global_batch = plan.batch.global_batch;
  file.seq = plan.model->info.counts_tokens ? plan.model->info.seq : 0;
  file.freeze = plan.job->words.freeze;
  file.headroom = plan.job->words.headroom;
  file.optimizer = plan.job->words.optimizer;
  file.reduce_dtype = plan.job->words.reduce_dtype;
  file.max_memory = plan.job->words.max_memory.value_or(Bytes{}).value;
  file.strategy = plan.name;
  file.tree = to_yaml(plan.strategy);
  file.program = fingerprint(played.compiled.program, plan.training().graph);
  const Json all = to_json(plan, played, forecast);
  for (const char* key : {"step_time_s", "samples_per_s", "tokens_per_s", "mfu", "mfu_causal", "hfu", "feasible",
                          "memory", "breakdown_s", "model_flops", "recomputed_flops"})
    if (all.contains(key)) file.prediction[key] = all[key];
  file.assumptions = forecast.assumptions;
  Json pruned = Json::object();
  for (const auto& [reason, count] : outcome.counts.pruned) pruned[reason] = count;
  file.provenance = {{"search", search},
                     {"seed", seed},
                     {"cost", "analytic"},
                     {"considered", outcome.counts.considered},
                     {"pruned", pruned},
                     {"composed", outcome.counts.composed},
                     {"simulated", outcome.counts.simulated},
                     {"stopped_by", name_of(outcome.stopped_by)},
                     {"lower_bound_s", outcome.lower_bound_s},
                     {"gap", outcome.gap() ? Json(*outcome.gap()) : Json()}};
  return file;
}

std::string print(const PlanFile& file) {
  Json json = {{"weft_plan", PlanFile::kVersion},
               {"model", file.model},
               {"cluster", file.cluster},
               {"stack", file.stack},
               {"dtype", file.dtype},
               {"global_batch", file.global_batch},
               {"seq", file.seq},
               {"strategy", file.strategy},
               {"tree", file.tree},
               {"program", file.program},
               {"prediction", file.prediction},
               {"assumptions", file.assumptions},
               {"provenance", file.provenance}};
  if (file.devices > 0) json["devices"] = file.devices;
  if (!file.freeze.empty()) json["freeze"] = file.freeze;
  if (!file.optimizer.empty()) json["optimizer"] = file.optimizer;
  if (!file.reduce_dtype.empty()) json["reduce_dtype"] = file.reduce_dtype;
  if (file.max_memory > 0) json["max_memory_bytes"] = file.max_memory;
  if (!file.calibration.empty()) json["calibration"] = file.calibration;
  if (file.headroom != PlanFile().headroom) json["headroom"] = file.headroom;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<PlanFile> parse_plan_file(std::string_view text, std::string_view name) {
  const Result<Json> parsed = parse_json(text, name);
  if (!parsed.ok()) return error("{}; is it a plan.json?", parsed.error().message);
  const Json& json = *parsed;
  if (!json.is_object()) return error("{}: not a JSON object; is it a plan.json?", name);
  const Keys keys(json, name);
  int version = 0;
  WEFT_TRY_OK(keys.take("weft_plan", version));
  if (version != PlanFile::kVersion)
    return error("{}: a plan of version {}; this weft reads version {}", name, version, PlanFile::kVersion);
  PlanFile file;
  WEFT_TRY_OK(keys.take("model", file.model));
  WEFT_TRY_OK(keys.take("cluster", file.cluster));
  WEFT_TRY_OK(keys.take("stack", file.stack));
  WEFT_TRY_OK(keys.take("dtype", file.dtype));
  WEFT_TRY_OK(keys.take("global_batch", file.global_batch));
  WEFT_TRY_OK(keys.take("seq", file.seq));
  WEFT_TRY_OK(keys.take("strategy", file.strategy));
  WEFT_TRY_OK(keys.take("tree", file.tree));
  WEFT_TRY_OK(keys.take("program", file.program));
  WEFT_TRY_OK(keys.take("prediction", file.prediction));
  if (!file.prediction.is_object()) return error("{}: 'prediction' is of another type", name);
  WEFT_TRY_OK(keys.take_if_any("devices", file.devices));
  WEFT_TRY_OK(keys.take_if_any("freeze", file.freeze));
  WEFT_TRY_OK(keys.take_if_any("calibration", file.calibration));
  WEFT_TRY_OK(keys.take_if_any("headroom", file.headroom));
  WEFT_TRY_OK(keys.take_if_any("optimizer", file.optimizer));
  WEFT_TRY_OK(keys.take_if_any("reduce_dtype", file.reduce_dtype));
  double most = 0;  // more bytes than a count of devices may have digits
  WEFT_TRY_OK(keys.take_if_any("max_memory_bytes", most));
  if (!(most >= 0 && most < 1e18)) return error("{}: 'max_memory_bytes' is no size", name);
  file.max_memory = static_cast<std::int64_t>(most);
  if (!(file.headroom >= 0 && file.headroom < 1))
    return error("{}: 'headroom' is a share, from 0 to less than 1", name);
  WEFT_TRY_OK(keys.take("assumptions", file.assumptions));
  WEFT_TRY_OK(keys.take("provenance", file.provenance));
  return file;
}

Result<PlanFile> read_plan_file(const std::string& path) {
  constexpr FileKind kPlan{"a plan.json of weft plan --out", std::size_t{64} << 20};
  WEFT_TRY(const std::string text, read_file(path, kPlan));
  return parse_plan_file(text, path);
}

}  // namespace weft
