#include "export/export.h"

#include <fmt/format.h>

#include <functional>

#include "base/suggest.h"
#include "export/megatron.h"
#include "export/targets.h"
#include "models/model_words.h"
#include "plan/optimizer.h"

namespace weft {
namespace {

const TargetFunctions& functions_of(Target target) {
  switch (target) {
    case Target::Megatron:
      return kMegatron;
    case Target::DeepSpeed:
      return kDeepSpeed;
    case Target::Torchtitan:
      return kTorchtitan;
    case Target::PyTorch:
      return kPyTorch;
  }
  return kMegatron;
}

ExportSubject subject_of(const TrainingJob& job) {
  ExportSubject subject{job};
  if (Result<TransformerConfig> decoder = decoder_of(job); decoder.ok()) subject.decoder = std::move(decoder).value();
  return subject;
}

}  // namespace

Result<Target> target_named(std::string_view name) {
  for (std::size_t i = 0; i < kTargetNames.size(); ++i)
    if (kTargetNames[i] == name) return static_cast<Target>(i);
  const std::vector<std::string> names(kTargetNames.begin(), kTargetNames.end());
  return error("target '{}': unknown; there are {}{}", name.substr(0, 60), fmt::join(names, ", "),
               did_you_mean(name, names));
}

Target trainer_of_configuration(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return Target::DeepSpeed;
  if (text.find("\ndef ") != std::string_view::npos || text.starts_with("def ")) return Target::Torchtitan;
  return Target::Megatron;
}

std::vector<std::string> differing_knobs(const SoftwareStack& a, const SoftwareStack& b) {
  std::vector<std::string> differing;
  for (const Knob& knob : stack_knobs())
    std::visit(
        [&](auto field) {
          if ((a.*field).value != (b.*field).value) differing.emplace_back(knob.name);
        },
        knob.field);
  return differing;
}

std::optional<std::string> unusual(const Parallelism& plan) {
  if (plan.h * plan.w > 1 || plan.tables) return "splits of images and of embedding tables";
  if (!plan.shares.empty()) return "replicas with unequal shares of the samples";
  if (plan.last_micro_batch != plan.micro_batch)
    return "a smaller last micro-batch: the global batch must divide by micro-batch and dp";
  return {};
}

namespace {

// Whether a knob can make a difference to the strategy.
bool matters(std::string_view knob, const TrainingJob& job, const Parallelism& plan) {
  if (knob == "prefetch_forward" || knob == "prefetch_backward" || knob == "gathers_in_flight" ||
      knob == "reshard_after_forward" || knob == "flat_parameters")
    return plan.zero > 0;
  if (knob == "tensor_overlap" || knob == "tensor_chunks") return plan.tp > 1 && plan.sequence_parallel;
  if (knob == "p2p_overlap" || knob == "p2p_in_parts") return plan.pp > 1;
  if (knob == "tokens_once") return job.model.experts > 0 && plan.ep > 1;
  if (knob == "narrow_weights" || knob == "keeps_casts") return job.precision.products.has_value();
  if (knob == "narrow_gathers")
    return plan.zero > 0 && job.precision.recipe && traits_of(*job.precision.recipe).one_copy;
  if (knob == "recipe") return false;  // --dtype says it
  if (knob == "fused_router" || knob == "fused_permutation" || knob == "sync_on_counts") return job.model.experts > 0;
  if (knob == "pads_by_copy") return job.model.experts > 0 && job.precision.recipe.has_value();
  return true;
}

}  // namespace

std::optional<std::string> other_stack(const TrainingJob& job, const Parallelism& strategy, const std::string& words,
                                       std::string_view usual) {
  const Result<SoftwareStack> said = find_stack(words), own = find_stack(job.stack.name);
  if (!said.ok()) return said.error().message;
  if (!own.ok()) return {};
  std::vector<std::string> knobs = differing_knobs(*said, *own);
  std::erase_if(knobs, [&](const std::string& knob) { return !matters(knob, job, strategy); });
  if (knobs.empty()) return {};
  return fmt::format("stack {}: {} cannot be said; plan with --stack {}", job.stack.name, fmt::join(knobs, ", "),
                     usual);
}

Result<std::int64_t> devices_per_node(const TrainingJob& job) {
  std::map<NodeId, std::int64_t> counts;
  for (std::int64_t rank = 0; rank < job.device_count(); ++rank) ++counts[job.cluster->node_of(job.device_at(rank))];
  for (const auto& [node, count] : counts)
    if (count != counts.begin()->second)
      return error("nodes with different numbers of devices: launchers start as many ranks on each");
  return counts.begin()->second;
}

namespace {

// What was asked of the job and no file of a trainer says: it must not be dropped.
std::optional<std::string> unsaid(Target target, const TrainingJob& job) {
  if (!job.words.freeze.empty() || !job.words.train.empty())
    return "parameters that are not trained (--freeze, --train)";
  const OptimizerKind kind = job.optimizer.value_or(OptimizerKind::AdamW);
  if (target != Target::PyTorch && kind != OptimizerKind::AdamW)
    return fmt::format("--optimizer {}: configurations are of AdamW", name_of(kind));
  const Result<OptimizerChoice> optimizer =
      parse_optimizer(job.words.optimizer.empty() ? "adamw" : job.words.optimizer);
  if (optimizer.ok() && optimizer->moments && optimizer->moments != job.stack.moment_dtype.value)
    return fmt::format("--optimizer {}: the type of moments is said by --stack {}:moment_dtype={}", job.words.optimizer,
                       job.stack.name, name_of(*optimizer->moments));
  if (job.precision.sent_gradients && job.precision.sent_gradients != job.stack.gradient_communication_dtype.value)
    return fmt::format("--reduce-dtype {}: said by --stack {}:gradient_communication_dtype={}", job.words.reduce_dtype,
                       job.stack.name, name_of(*job.precision.sent_gradients));
  return {};
}

}  // namespace

struct Expressible::Subject {
  const TargetFunctions& functions;
  ExportSubject subject;
  std::optional<std::string> no_strategy;
};

Expressible::Expressible(Target target, const TrainingJob& job)
    : subject_(std::make_unique<Subject>(Subject{functions_of(target), subject_of(job), {}})) {
  subject_->no_strategy = unsaid(target, job);
  if (!subject_->no_strategy) subject_->no_strategy = subject_->functions.no_strategy(subject_->subject);
}
Expressible::~Expressible() = default;
Expressible::Expressible(Expressible&&) noexcept = default;

std::optional<std::string> Expressible::no_strategy() const { return subject_->no_strategy; }

std::optional<std::string> Expressible::why_not(const Parallelism& strategy) const {
  if (subject_->no_strategy) return subject_->no_strategy;
  if (auto why = unusual(strategy)) return why;
  return subject_->functions.why_not(subject_->subject, strategy);
}

std::optional<std::string> expressible(Target target, const TrainingJob& job, const Parallelism& strategy) {
  return Expressible(target, job).why_not(strategy);
}

std::optional<Parallelism> nearest_expressible(Target target, const TrainingJob& job, const Parallelism& strategy) {
  const Expressible subject(target, job);
  if (subject.no_strategy()) return {};
  if (!subject.why_not(strategy)) return strategy;
  // Each replaces one feature by the nearest that trainers have, the mildest first.
  using Change = void (*)(Parallelism&);
  constexpr Change kChanges[] = {
      [](Parallelism& p) {
        p.recompute_layers.clear();
        for (Recomputed& each : p.full) each.layers.clear();
      },
      [](Parallelism& p) { p.full.clear(), p.recompute_layers.clear(); },
      [](Parallelism& p) { p.recompute = p.recompute == Recompute::Op ? Recompute::Selective : p.recompute; },
      [](Parallelism& p) { p.order.clear(); },
      [](Parallelism& p) { p.schedule = p.vpp > 1 ? "interleaved" : "1f1b"; },
      [](Parallelism& p) {
        if (p.vpp > 1) p.vpp = 1, p.stages.clear(), p.schedule = "1f1b";
      },
      [](Parallelism& p) { p.offload.clear(); },
      [](Parallelism& p) {
        if (p.zero > 1) p.zero = 1, p.fsdp = p.dp;
      },
      [](Parallelism& p) { p.zero = p.zero == 0 ? 1 : p.zero; },
      [](Parallelism& p) { p.zero = p.zero == 1 ? 2 : p.zero; },  // sharding more keeps the memory that it saves
      [](Parallelism& p) { p.zero = 0, p.fsdp = p.dp; },
      [](Parallelism& p) { p.sequence_parallel = p.tp > 1; },
      [](Parallelism& p) { p.sequence_parallel = false, p.etp = p.tp; },
      [](Parallelism& p) { p.etp = p.tp; },
      [](Parallelism& p) { p.cp_mode = p.cp > 1 ? ContextMode::Ring : p.cp_mode; },
      [](Parallelism& p) { p.cp_mode = ContextMode::Gather; },
      [](Parallelism& p) { p.recompute = Recompute::Full, p.recompute_layers.clear(), p.full.clear(); },
      [](Parallelism& p) { p.recompute = Recompute::None, p.recompute_layers.clear(), p.full.clear(); },
  };
  constexpr std::size_t kCount = std::size(kChanges);
  constexpr std::size_t kMostChanges = 3;
  for (std::size_t count = 1; count <= kMostChanges; ++count) {
    std::array<std::size_t, kMostChanges> chosen{};
    const std::function<std::optional<Parallelism>(std::size_t, std::size_t)> search =
        [&](std::size_t depth, std::size_t from) -> std::optional<Parallelism> {
      if (depth == count) {
        Parallelism changed = strategy;
        for (std::size_t i = 0; i < count; ++i) kChanges[chosen[i]](changed);
        if (changed == strategy || subject.why_not(changed)) return {};
        return changed;
      }
      for (std::size_t i = from; i < kCount; ++i) {
        chosen[depth] = i;
        if (auto found = search(depth + 1, i + 1)) return found;
      }
      return {};
    };
    if (auto found = search(0, 0)) return found;
  }
  return {};
}

Result<std::string> export_plan(Target target, const Plan& plan, const ExportOptions& options) {
  if (!plan.parallelism)
    return error("--to {}: {} is a strategy tree; trainers take degrees, tp=8,pp=2 (weft plan --for {})",
                 name_of(target), plan.name, name_of(target));
  const TrainingJob& job = *plan.job;
  const Parallelism& strategy = *plan.parallelism;
  if (const auto why = expressible(target, job, strategy)) {
    const auto near = nearest_expressible(target, job, strategy);
    return error(
        "--to {}: {}{}", name_of(target), *why,
        near ? fmt::format("\nthe nearest plan that {} can express: {}", name_of(target), print(shorthand_of(*near)))
             : std::string());
  }
  if (const auto nodes = devices_per_node(job); !nodes.ok())
    return nodes.error().at(fmt::format("--to {}", name_of(target)));
  const TargetFunctions& functions = functions_of(target);
  const ExportSubject subject = subject_of(job);
  WEFT_TRY(std::string text, functions.write(subject, strategy, options));
  if (target == Target::PyTorch) return text;  // a program, not a configuration
  // The law, here and now: what was written reads back as the same plan.
  const Result<ImportedRun> read = functions.read(text, "export");
  WEFT_CHECK(read.ok(), "an export that cannot be read: {}", read.error().message);
  PlanRequest request = read->request;
  request.cluster = job.words.cluster;
  request.device_count = job.words.device_count;
  if (request.model.empty()) request.model = job.words.model;
  if (!request.seq) request.seq = job.words.seq;
  WEFT_TRY(const TrainingJob again, settle(request));
  WEFT_TRY(const StrategyChoice choice, choose_strategy(again, request));
  const ExportSubject same = subject_of(again);
  // A recipe has a name of its own, and may be a stack's.
  const auto types = [](const Precision& of) { return std::tuple(of.stored, of.products, of.recipe); };
  WEFT_CHECK(choice.parallelism == plan.parallelism && types(again.precision) == types(job.precision),
             "an export that reads as another plan: {} for {}", choice.name, plan.name);
  // Contexts longer than the sequence are the same model to a plan.
  if (subject.decoder && same.decoder) {
    TransformerConfig a = *subject.decoder, b = *same.decoder;
    if (a.positions != Positions::Learned) a.context = b.context;
    WEFT_CHECK(a == b, "an export that reads as another model: {} for {}", request.model, job.words.model);
  }
  return text;
}

Result<ImportedRun> import_run(Target target, std::string_view text, std::string_view file) {
  return functions_of(target).read(text, file);
}

}  // namespace weft
