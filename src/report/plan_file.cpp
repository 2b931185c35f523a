#include "report/plan_file.h"

#include <fmt/format.h>

#include <fstream>

#include "report/simulation.h"
#include "search/search.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// Takes keys out of an object, with errors that name them.
class Keys {
 public:
  Keys(const Json& json, std::string_view file) : json_(json), file_(file) {}

  template <class T>
  Status take(const char* key, T& into) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return error("{}: '{}' is missing; is it a plan.json of weft plan --out?", file_, key);
    try {
      into = found->get<T>();
    } catch (const Json::exception&) {
      return error("{}: '{}' is of another type", file_, key);
    }
    return Ok{};
  }

 private:
  const Json& json_;
  const std::string_view file_;
};

}  // namespace

PlanRequest PlanFile::request() const {
  PlanRequest request;
  request.model = model;
  request.cluster = cluster;
  request.strategy = strategy;
  request.global_batch = global_batch;
  if (seq > 0) request.seq = seq;
  request.dtype = dtype;
  request.stack = stack;
  return request;
}

std::string fingerprint(const Program& program, const Graph& graph) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char byte : print(program, graph)) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  return fmt::format("fnv1a:{:016x}", hash);
}

PlanFile plan_file(const Plan& plan, const PlayedPlan& played, const Forecast& forecast, const PlanOutcome& outcome,
                   std::string_view search, std::int64_t seed) {
  PlanFile file;
  file.model = plan.request.model;
  file.cluster = plan.request.cluster;
  file.stack = plan.stack.name;
  file.dtype = plan.precision.name;
  file.global_batch = plan.batch.global_batch;
  file.seq = plan.model.counts_tokens ? plan.model.seq : 0;
  file.strategy = plan.request.strategy;
  file.tree = to_yaml(plan.strategy);
  file.program = fingerprint(played.compiled.program, plan.training.graph);
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
                     {"gap", outcome.gap()}};
  return file;
}

std::string print(const PlanFile& file) {
  const Json json = {{"weft_plan", PlanFile::kVersion},
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
  return json.dump(2) + "\n";
}

Result<PlanFile> parse_plan_file(std::string_view text, std::string_view name) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return error("{}: not a JSON object; is it a plan.json?", name);
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
  WEFT_TRY_OK(keys.take("assumptions", file.assumptions));
  WEFT_TRY_OK(keys.take("provenance", file.provenance));
  return file;
}

Result<PlanFile> read_plan_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return error("{}: cannot be read", path);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  return parse_plan_file(text, path);
}

}  // namespace weft
