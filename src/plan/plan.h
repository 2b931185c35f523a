// A plan: one training job by one strategy, with nothing left open. The way from command-line words to a program.
//
//   make_plan({.model = "llama3-8b", .cluster = "dgx-h100:2", .strategy = "tp=4,pp=2,dp=2,zero=1"})   from words
//   make_plan(job, choose_strategy(job, parallelism), &graphs)                                                 in a search
//   compile_plan(plan)                                                    the program and its schedule
//
// What the request leaves out gets the defaults of SEMANTICS, each told in `assumptions`. An error names the word at
// fault and the remedy; violations of the strategy come all together, one a line.
// Not here: choosing the strategy (search), times (src/simulate), tables (src/report).
// Cost: linear in operators; a few times the model's own build, or a third of it where the graph is known.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compile/from_strategy.h"
#include "plan/batch.h"
#include "plan/job.h"
#include "plan/trained_model.h"
#include "strategy/resolve.h"
#include "strategy/shorthand.h"

namespace weft {

// How a job is split, before its graph is built: degrees, or a tree.
struct StrategyChoice {
  std::string name;                        // shorthand or file, as messages and tables call it
  std::optional<Parallelism> parallelism;  // where it is one of degrees
  Strategy tree;                           // where it is not
  BatchPlan batch;
  std::vector<std::string> assumptions;  // defaults of the batch
};
// Degrees with nothing left open; the name is their shorthand.
StrategyChoice choose_strategy(const Parallelism& parallelism);
// A tree; the samples of its micro-batches come from the job's global batch.
Result<StrategyChoice> choose_strategy(const TrainingJob& job, std::string name, Strategy tree);
// The strategy of a request, in words.
Result<StrategyChoice> choose_strategy(const TrainingJob& job, const PlanRequest& request);

struct Plan {
  std::shared_ptr<const TrainingJob> job;     // never null
  std::shared_ptr<const TrainedModel> model;  // never null; shared by plans that agree in its shape
  std::string name;                           // of the strategy: shorthand or file
  BatchPlan batch;
  std::optional<Parallelism> parallelism;  // where the strategy is one of degrees
  Strategy strategy;
  ResolvedStrategy resolved;
  std::vector<std::string> assumptions;  // the job's, the strategy's and the model's

  const Cluster& cluster() const { return *job->cluster; }
  const SoftwareStack& stack() const { return job->stack; }
  const TrainingGraph& training() const { return model->training; }
  const Graph& graph() const { return model->training.graph; }
  std::int64_t stored_parameters() const { return graph().parameter_count(); }
  std::int64_t frozen_parameters() const;  // of those, the ones that are not trained
  std::int64_t tokens_per_step() const { return batch.global_batch * model->info.seq; }  // 0: samples have no tokens
  // The devices in the order of ranks.
  std::vector<DeviceId> ranks() const;
};

Result<Plan> make_plan(const PlanRequest& request, const Calibration& calibration = {});
// `graphs`: of this job, or of one that differs in devices and batch alone.
Result<Plan> make_plan(std::shared_ptr<const TrainingJob> job, StrategyChoice choice, GraphCache* graphs = nullptr);

// The same plan under a stack that differs in times and memory, not in the graph it builds.
Plan with_stack(Plan plan, SoftwareStack stack);

// With prices at hand, resharding of activations is chosen by them. `split_backward`: for schedules that play backward
// in two parts, whatever the plan's own does.
Result<CompiledStrategy> compile_plan(const Plan& plan, const StepPrice* prices = nullptr, bool split_backward = false);

}  // namespace weft
