// Plans into the launch configurations of trainers, and back. Start here.
//
//   export_plan(Target::Megatron, plan)                 the text of a launch script
//   expressible(Target::Megatron, job, parallelism)     why the target cannot say a strategy; none: it can
//   import_run(Target::Megatron, text, "args.txt")      model, strategy, batch and type of a present run
//
// The law: what export writes, import reads back as the same strategy of the same model, which is predicted to take the
// same time; every export reads its own text back and fails rather than write another plan. Only the target's own fields
// are read, no comment. What a target cannot say is an error with its reason and the nearest strategy that it can.
// Versions and meanings of the fields: docs/exports.md. Not here: search (`weft plan --for` asks `expressible`), times.
// Cost: linear in the text; the nearest strategy tries some hundreds of changes.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace weft {

enum class Target : std::uint8_t { Megatron, DeepSpeed, Torchtitan, PyTorch };
inline constexpr std::array<std::string_view, 4> kTargetNames = {"megatron", "deepspeed", "torchtitan", "pytorch"};
constexpr std::string_view name_of(Target target) { return kTargetNames[static_cast<std::size_t>(target)]; }
// The error lists the targets.
Result<Target> target_named(std::string_view name);

// Why the target cannot say a strategy of this job; none: it can.
std::optional<std::string> expressible(Target target, const TrainingJob& job, const Parallelism& strategy);
// The same for many strategies of one job: what depends on the job alone is worked out once.
class Expressible {
 public:
  Expressible(Target target, const TrainingJob& job);
  ~Expressible();
  Expressible(Expressible&&) noexcept;
  std::optional<std::string> why_not(const Parallelism& strategy) const;
  // Why no strategy of the job can be said; none: some can.
  std::optional<std::string> no_strategy() const;

 private:
  struct Subject;
  std::unique_ptr<Subject> subject_;
};

// The strategy with the fewest changes that the target can say; none: no change of the strategy helps.
std::optional<Parallelism> nearest_expressible(Target target, const TrainingJob& job, const Parallelism& strategy);

struct ExportOptions {
  // Arguments of the user's own that are no part of a plan (data, logging), quoted for a shell: written in place of
  // stand-ins.
  std::vector<std::string> kept = {};
};
// The text of the file. Errors: the reason, and the nearest strategy.
Result<std::string> export_plan(Target target, const Plan& plan, const ExportOptions& options = {});

// An sbatch file that launches what a target's export writes, the text of that within it.
Result<std::string> slurm_script(Target target, const Plan& plan, const ExportOptions& options = {});

// A run as its configuration describes it.
struct ImportedRun {
  // All words but the cluster's, and the model's where the file does not have it (DeepSpeed); the number of devices
  // where it does.
  PlanRequest request;
  std::vector<std::string> notes;  // what predictions do not know of; what was taken for granted
  std::vector<std::string> kept;   // arguments that are no part of a plan, quoted for a shell
};
// Errors name file and line; nothing is guessed. PyTorch's scripts are not read.
Result<ImportedRun> import_run(Target target, std::string_view text, std::string_view file);

// The trainer whose configuration a text looks like: Megatron-LM's unless it is a JSON object or a Python module.
Target trainer_of_configuration(std::string_view text);

// Knobs of two software stacks that differ in value: empty if they predict the same.
std::vector<std::string> differing_knobs(const SoftwareStack& a, const SoftwareStack& b);

}  // namespace weft
