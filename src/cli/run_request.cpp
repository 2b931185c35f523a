#include "cli/run_request.h"

#include <fmt/format.h>

#include "models/models.h"
#include "strategy/shorthand.h"

namespace weft {

Result<PlanRequest> as_run(PlanRequest request, std::int64_t ranks, std::vector<std::string>& assumptions) {
  if (request.cluster.empty()) {
    request.cluster = fmt::format("cpu-node:{}", (ranks + 15) / 16);
    assumptions.push_back(fmt::format("planned as for {} (--cluster); run on this machine", request.cluster));
  }
  if (!request.device_count) request.device_count = ranks;
  if (request.stack.empty()) {
    request.stack = "weft";
    assumptions.push_back("stack weft (--stack)");
  }
  if (request.strategy.empty()) {
    request.strategy = fmt::format("dp={}", ranks);
    assumptions.push_back(fmt::format("strategy {} (--strategy)", request.strategy));
  }
  if (request.dtype.empty()) {
    request.dtype = "fp32";
    assumptions.push_back("dtype fp32 (--dtype)");
  }
  if (!request.seq) {
    WEFT_TRY(const ModelInfo info, describe_model(request.model));
    if (info.seq > 128) {
      request.seq = 128;
      assumptions.push_back("128 tokens per sample (--seq)");
    }
  }
  if (!request.global_batch && !names_a_file(request.strategy)) {
    WEFT_TRY(const Shorthand shorthand, parse_shorthand(request.strategy));
    if (!shorthand.ga) {
      WEFT_TRY(const Parallelism degrees, complete(shorthand, ranks));
      const std::int64_t samples = request.micro_batch.value_or(shorthand.mbs.value_or(1));
      request.global_batch = degrees.dp * degrees.pp * samples;
      assumptions.push_back(fmt::format("{} samples per step (--global-batch)", *request.global_batch));
    }
  }
  return request;
}

Bundle bundle_of(const Plan& plan, const CompiledStrategy& compiled) {
  Bundle bundle{.model = plan.job->words.model,
                .strategy = plan.name,
                .vocabulary = plan.model->vocabulary.published,
                .graph = plan.graph(),
                .program = numbered_by_rank(compiled.program),
                .schedule = compiled.schedule};
  if (compiled.last && plan.model->last)
    bundle.last = Bundle::Last{plan.model->last->graph, numbered_by_rank(*compiled.last)};
  return bundle;
}

}  // namespace weft
