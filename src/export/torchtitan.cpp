// torchtitan (pytorch/torchtitan b5bcd76c6): a strategy as a Python configuration module, and back. Batches are counted
// in tokens; stages are lists of modules; FSDP2 wraps every model.
#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "export/arguments.h"
#include "export/python_config.h"
#include "export/targets.h"
#include "models/model_words.h"

namespace weft {
namespace {

// Models that torchtitan registers, whose shapes the zoo has too, and the function whose configuration they start from.
struct Flavor {
  std::string_view module, base, flavor, model;
};
constexpr Flavor kFlavors[] = {
    {"llama3", "llama3_8b", "1B", "llama3.2-1b"},
    {"llama3", "llama3_8b", "3B", "llama3.2-3b"},
    {"llama3", "llama3_8b", "8B", "llama3.1-8b"},
    {"llama3", "llama3_8b", "70B", "llama3.1-70b"},
    {"llama3", "llama3_8b", "405B", "llama3.1-405b"},
    {"qwen3", "qwen3_14b", "0.6B", "qwen3-0.6b"},
    {"qwen3", "qwen3_14b", "1.7B", "qwen3-1.7b"},
    {"qwen3", "qwen3_14b", "4B", "qwen3-4b"},
    {"qwen3", "qwen3_14b", "8B", "qwen3-8b"},
    {"qwen3", "qwen3_14b", "14B", "qwen3-14b"},
    {"qwen3", "qwen3_14b", "32B", "qwen3-32b"},
    {"qwen3", "qwen3_14b", "30B-A3B", "qwen3-30b-a3b"},
    {"qwen3", "qwen3_14b", "235B-A22B", "qwen3-235b-a22b"},
    {"deepseek_v3", "deepseek_v3_671b", "16B", "deepseek-v2-lite"},
    {"deepseek_v3", "deepseek_v3_671b", "236B", "deepseek-v2"},
    {"deepseek_v3", "deepseek_v3_671b", "671B", "deepseek-v3"},
};

// Weft's schedules by torch's names, which are compared without case.
struct ScheduleName {
  std::string_view weft, torch;
};
constexpr ScheduleName kSchedules[] = {
    {"1f1b", "1F1B"}, {"gpipe", "GPipe"}, {"interleaved", "Interleaved1F1B"}, {"dualpipe-v", "DualPipeV"}};

// Recipes by the converter of linear layers: where it is defined, what it is called, and torchao's name of the recipe
// where it has several; without a name it is tensorwise.
struct Converter {
  Recipe recipe;
  std::string_view module, name, torchao = {};
};
constexpr std::string_view kFloat8 = "torchtitan.components.quantization.float8",
                           kFloat8Linear = "Float8LinearConverter";
constexpr Converter kConverters[] = {{Recipe::Current, kFloat8, kFloat8Linear},
                                     {Recipe::Rowwise, kFloat8, kFloat8Linear, "rowwise"},
                                     {Recipe::RowwiseWide, kFloat8, kFloat8Linear, "rowwise_with_gw_hp"},
                                     {Recipe::Mx, "torchtitan.components.quantization.mx", "MXFP8LinearConverter"},
                                     {Recipe::Nv, "torchtitan.components.quantization.nvfp4", "NVFP4LinearConverter"}};

const Converter* converter_of(std::optional<Recipe> recipe) {
  for (const Converter& each : kConverters)
    if (each.recipe == recipe) return &each;
  return nullptr;
}

constexpr std::string_view kStack = "torchtitan";
// What the stack's compiled blocks fuse; without torch.compile none of it.
constexpr std::string_view kEager =
    "fused_norm=false,fused_bias_activation=false,fused_cross_entropy=false,host_per_operator=21us,"
    "host_per_gradient=26us,host_per_update=6us";

// The flavor of a decoder; its context may be shorter than torchtitan's.
const Flavor* flavor_of(const TransformerConfig& decoder) {
  for (const Flavor& flavor : kFlavors) {
    const Result<ModelConfig> known = configuration_of(flavor.model);
    TransformerConfig config = canonical(std::get<TransformerConfig>(*known));
    if (decoder.context > config.context) continue;
    config.context = decoder.context;
    if (config == decoder) return &flavor;
  }
  return nullptr;
}

std::optional<std::string> no_torchtitan_strategy(const ExportSubject& subject) {
  const TrainingJob& job = subject.job;
  if (!subject.decoder || flavor_of(*subject.decoder) == nullptr)
    return fmt::format(
        "{} is none of the models that torchtitan registers: llama3, qwen3 and deepseek_v3 in their published sizes",
        job.words.model);
  const std::string& dtype = job.precision.name;
  if (dtype != "bf16" && converter_of(job.precision.recipe) == nullptr)
    return job.precision.recipe
               ? fmt::format("--dtype {}: torchtitan's converters do not cast by {}", dtype,
                             traits_of(*job.precision.recipe).what)
               : fmt::format("--dtype {}: torchtitan computes in bf16, or converts linears to narrower types", dtype);
  return {};
}

bool is_compiled(const SoftwareStack& stack) { return stack.fused_norm.value; }

std::optional<std::string> why_not_torchtitan(const ExportSubject& subject, const Parallelism& plan) {
  const TransformerConfig& decoder = *subject.decoder;
  const bool experts = decoder.moe.experts > 0;
  if (plan.dp > 1 && plan.zero == 1)
    return "zero=1: FSDP2 shards weights, gradients and optimizer state, zero=2 or 3, or nothing";
  if (plan.dp * plan.cp == 1 && plan.zero > 0) return "zero= without replicas to shard over";
  if (plan.zero == 0 && plan.cp > 1) return "zero=0 with cp: FSDP2 shards over context-parallel ranks";
  if (plan.fsdp < plan.dp && plan.zero != 3) return "replicate= without zero=3";
  if (plan.recompute != Recompute::None && plan.recompute != Recompute::Full)
    return fmt::format("recompute={}: torchtitan recomputes whole layers, nothing, or by a policy of its own",
                       name_of(plan.recompute));
  if (!plan.full.empty() || !plan.recompute_layers.empty())
    return "recompute=: recomputation is one policy for all layers";
  if (!plan.offload.empty()) return "offload=: torchtitan offloads all state or none";
  if (!plan.order.empty()) return "order=: ranks are numbered tp-cp-dp-pp";
  if (plan.cp > 1 && plan.cp_mode != ContextMode::Gather)
    return fmt::format("cp_mode={}: keys and values are gathered", name_of(plan.cp_mode));
  const auto schedule = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                     [&](const auto& each) { return each.weft == plan.schedule; });
  if (schedule == std::end(kSchedules)) return fmt::format("schedule={}", plan.schedule);
  if (plan.schedule == "dualpipe-v" && is_compiled(subject.job.stack))
    return "schedule=dualpipe-v refuses compiled stages";
  if (plan.pp > 1 && decoder.tied) return "pipelines with tied embeddings";
  if (plan.pp > 1 && plan.stages.empty() && decoder.layers % (plan.pp * plan.vpp) != 0)
    return "layers that do not divide over stages";
  if (plan.pp > 1 && subject.job.stack.graph_capture.value) return "pipelines with CUDA graphs";
  if (plan.ep > 1 && subject.job.stack.graph_capture.value) return "expert parallelism with CUDA graphs";
  if (decoder.heads % plan.tp != 0 || decoder.kv_heads % plan.tp != 0)
    return fmt::format("tp={} must divide {} query and {} key heads", plan.tp, decoder.heads, decoder.kv_heads);
  if (experts) {
    if (plan.etp != 1) return fmt::format("etp={}: experts are whole, etp=1", plan.etp);
    if (plan.tp > 1 && plan.ep == 1) return "experts with tensor parallelism need ep > 1";
    if (decoder.moe.experts % plan.ep != 0)
      return fmt::format("ep={} does not divide {} experts", plan.ep, decoder.moe.experts);
    if (plan.ep > 1 && plan.zero == 0 && plan.dp > 1) return "zero=0 with ep: experts borrow ranks that shard";
  }
  const std::int64_t tokens = plan.micro_batch * subject.job.model.seq;
  if (plan.cp > 1 && tokens % (2 * plan.cp) != 0) return fmt::format("{} tokens do not divide by 2·cp", tokens);
  if (plan.tp > 1 && plan.sequence_parallel && tokens % plan.tp != 0)
    return fmt::format("{} tokens do not divide by tp", tokens);
  const SoftwareStack& stack = subject.job.stack;
  const std::string words =
      fmt::format("{}:graph_capture={},narrow_gathers={}{}{}", kStack, stack.graph_capture.value,
                  stack.narrow_gathers.value, is_compiled(stack) ? "" : ",", is_compiled(stack) ? "" : kEager);
  return other_stack(subject.job, plan, words, kStack);
}

// The layers of stage s as torchtitan names modules.
std::vector<std::vector<std::string>> modules_of(const TransformerConfig& decoder, const Parallelism& plan) {
  const std::int64_t count = plan.pp * plan.vpp;
  std::vector<std::vector<std::string>> stages;
  std::int64_t layer = 0;
  for (std::int64_t s = 0; s < count; ++s) {
    std::vector<std::string>& modules = stages.emplace_back();
    if (s == 0) modules.emplace_back("tok_embeddings");
    const std::int64_t here = plan.stages.empty() ? decoder.layers / count : plan.stages[static_cast<std::size_t>(s)];
    for (std::int64_t i = 0; i < here; ++i) modules.push_back(fmt::format("layers.{}", layer++));
    if (s + 1 == count) modules.insert(modules.end(), {"norm", "lm_head"});
  }
  return stages;
}

Result<std::string> write_torchtitan(const ExportSubject& subject, const Parallelism& plan, const ExportOptions&) {
  const TrainingJob& job = subject.job;
  const TransformerConfig& decoder = *subject.decoder;
  const Flavor& flavor = *flavor_of(decoder);
  const Converter* const converter = converter_of(job.precision.recipe);
  const bool compiled = is_compiled(job.stack), full = plan.recompute == Recompute::Full;
  const auto truth = [](bool value) { return value ? "True" : "False"; };
  const std::int64_t per_node = devices_per_node(job).value();
  std::string text =
      "# torchtitan (pytorch/torchtitan b5bcd76c6, 2026-08-21), saved as weft_plan.py where Python finds it:\n";
  text += fmt::format(
      "#   torchrun --nnodes {} --nproc-per-node {} -m torchtitan.train --module weft_plan --config weft_plan\n",
      job.device_count() / per_node, per_node);
  if (full) text += "from torchtitan.distributed.activation_checkpoint import FullAC\n";
  if (converter) text += fmt::format("from {} import {}\n", converter->module, converter->name);
  text += fmt::format(
      "from torchtitan.models.{0} import model_registry\nfrom torchtitan.models.{0}.config_registry import {1}\n\n\n",
      flavor.module, flavor.base);
  text += fmt::format("def weft_plan():\n    config = {}()\n", flavor.base);
  std::string converters;
  if (converter) {
    std::string named = converter->torchao.empty() ? "" : fmt::format("recipe_name=\"{}\", ", converter->torchao);
    if (converter->recipe == Recipe::Current && job.stack.narrow_gathers.value)
      named += "enable_fsdp_float8_all_gather=True, precompute_float8_dynamic_scale_for_fsdp=True, ";
    converters =
        fmt::format(", converters=[{}.Config({}model_compile_enabled={})]", converter->name, named, truth(compiled));
  }
  text += fmt::format("    config.model_spec = model_registry(\"{}\"{})\n", flavor.flavor, converters);
  text += "    parallelism, training = config.parallelism, config.training\n";
  const bool shards = plan.zero >= 2;
  const std::int64_t shard = shards ? plan.fsdp : 1;
  text += fmt::format("    parallelism.data_parallel_replicate_degree = {}\n", plan.dp / shard);
  text += fmt::format("    parallelism.data_parallel_shard_degree = {}\n", shard);
  text += fmt::format("    parallelism.fsdp_reshard_after_forward = \"{}\"\n", plan.zero == 3 ? "always" : "never");
  text += fmt::format("    parallelism.tensor_parallel_degree = {}\n", plan.tp);
  text += fmt::format("    parallelism.enable_sequence_parallel = {}\n", truth(plan.tp == 1 || plan.sequence_parallel));
  text += fmt::format("    parallelism.context_parallel_degree = {}\n", plan.cp);
  text += fmt::format("    parallelism.expert_parallel_degree = {}\n", plan.ep);
  text += fmt::format("    parallelism.pipeline_parallel_degree = {}\n", plan.pp);
  if (plan.pp > 1) {
    const auto schedule = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                       [&](const auto& each) { return each.weft == plan.schedule; });
    text += fmt::format("    parallelism.pipeline_parallel_schedule = \"{}\"\n", schedule->torch);
    text += fmt::format("    parallelism.num_pp_microbatches = {}\n", plan.micro_batches);
    text += "    parallelism.module_fqns_per_model_part = [\n";
    for (const auto& modules : modules_of(decoder, plan))
      text += fmt::format("        [\"{}\"],\n", fmt::join(modules, "\", \""));
    text += "    ]\n";
  }
  text += fmt::format("    training.max_context_length = {}\n", job.model.seq);
  text +=
      fmt::format("    training.num_tokens_per_microbatch_per_dp_rank = {} * {}\n", plan.micro_batch, job.model.seq);
  text += fmt::format("    training.num_tokens_per_train_step = {} * {}\n", plan.global_batch(), job.model.seq);
  text += fmt::format("    training.disable_cuda_graphs = {}\n", truth(!job.stack.graph_capture.value));
  text += fmt::format("    config.activation_checkpoint = {}\n", full ? "FullAC.Config()" : "None");
  text += fmt::format("    config.compile.enable = {}\n    return config\n", truth(compiled));
  return text;
}

class Import {
 public:
  Import(PythonConfig config, std::string_view file) : config_(std::move(config)), file_(file) {}

  Result<ImportedRun> run() {
    WEFT_TRY_OK(check_fields());
    WEFT_TRY_OK(read_model());
    WEFT_TRY_OK(read_degrees());
    WEFT_TRY_OK(read_pipeline());
    WEFT_TRY_OK(read_batch());
    WEFT_TRY_OK(read_habits());
    run_.request.strategy = print(words_);
    return std::move(run_);
  }

 private:
  using Kind = PythonValue::Kind;

  Error fail(int line, std::string_view message) const { return Error{std::string(message)}.at(file_, line); }
  const PythonField* find(std::string_view path) const {
    const PythonField* found = nullptr;
    for (const PythonField& field : config_.fields)
      if (field.path == path) found = &field;
    return found;
  }
  std::int64_t integer(std::string_view path, std::int64_t otherwise) const {
    const PythonField* found = find(path);
    return found ? found->value.integer : otherwise;
  }
  bool boolean(std::string_view path, bool otherwise) const {
    const PythonField* found = find(path);
    return found ? found->value.boolean : otherwise;
  }
  std::string word(std::string_view path, std::string_view otherwise) const {
    const PythonField* found = find(path);
    return found ? found->value.text : std::string(otherwise);
  }

  Status check_fields() {
    const std::vector<KnownArgument>& table = torchtitan_fields();
    std::vector<std::string> unmodelled;
    for (std::size_t i = 0; i < config_.fields.size(); ++i) {
      const PythonField& field = config_.fields[i];
      for (std::size_t j = 0; j < i; ++j)
        if (config_.fields[j].path == field.path)
          return fail(field.line,
                      fmt::format("{}: set twice, on line {} too; keep one", field.path, config_.fields[j].line));
      const auto known =
          std::find_if(table.begin(), table.end(), [&](const auto& each) { return each.flag == field.path; });
      if (known == table.end()) {
        std::vector<std::string> names;
        for (const KnownArgument& each : table) names.push_back(each.flag);
        return fail(field.line, fmt::format("{}: no field of torchtitan's Trainer.Config{}", field.path.substr(0, 80),
                                            did_you_mean(field.path.substr(0, 80), names)));
      }
      if (known->role == ArgumentRole::Refused)
        return fail(field.line, fmt::format("{}: {}", field.path, known->remark));
      if (known->role == ArgumentRole::Gone) return fail(field.line, fmt::format("{}: {}", field.path, known->remark));
      if (known->role == ArgumentRole::Unmodelled) unmodelled.push_back(field.path);
      if (known->role != ArgumentRole::Read) continue;
      const PythonValue& value = field.value;
      const bool fits = known->type == "int" ? value.kind == Kind::Integer && value.integer >= -1 &&
                                                   value.integer < (std::int64_t{1} << 50)
                        : known->type == "bool" ? value.kind == Kind::Boolean
                        : known->type == "word"
                            ? value.kind == Kind::Text &&
                                  (known->choices.empty() || std::find(known->choices.begin(), known->choices.end(),
                                                                       value.text) != known->choices.end())
                        : known->type == "list" ? value.kind == Kind::List || value.kind == Kind::None
                                                : true;
      if (!fits)
        return fail(field.line,
                    fmt::format("{}: {}", field.path,
                                known->type == "int"     ? std::string("a whole number")
                                : known->type == "bool"  ? std::string("True or False")
                                : known->type == "list"  ? std::string("a list of lists of modules")
                                : known->choices.empty() ? std::string("a name in quotes")
                                                         : fmt::format("one of {}", fmt::join(known->choices, ", "))));
    }
    if (!unmodelled.empty())
      run_.notes.push_back(fmt::format("predictions do not know {}", fmt::join(unmodelled, ", ")));
    return Ok{};
  }

  Status read_model() {
    const PythonField* spec = find("model_spec");
    const std::string module = config_.module.starts_with("torchtitan.models.")
                                   ? config_.module.substr(18, config_.module.find('.', 18) - 18)
                                   : "";
    std::string flavor;
    run_.request.dtype = "bf16";
    if (spec) {
      const PythonValue& call = spec->value;
      if (call.kind != Kind::Call || call.text != "model_registry" || call.items.empty() ||
          call.items[0].kind != Kind::Text)
        return fail(spec->line, "model_spec: write model_registry(\"8B\")");
      flavor = call.items[0].text;
      for (std::size_t i = 1; i < call.items.size(); ++i) {
        if (call.keywords[i] == "attn_backend") continue;
        if (call.keywords[i] != "converters")
          return fail(spec->line, fmt::format("model_registry: {} is not known here", call.keywords[i]));
        const PythonValue& list = call.items[i];
        if (list.kind == Kind::None) continue;
        const bool one = list.kind == Kind::List && list.items.size() == 1 && list.items[0].kind == Kind::Call;
        std::string named;
        bool gathers = false;
        for (std::size_t k = 0; one && k < list.items[0].items.size(); ++k) {
          const PythonValue& given = list.items[0].items[k];
          if (list.items[0].keywords[k] == "recipe_name" && given.text != "tensorwise") named = given.text;
          if (list.items[0].keywords[k] == "enable_fsdp_float8_all_gather") gathers = given.boolean;
        }
        const auto known = std::find_if(std::begin(kConverters), std::end(kConverters), [&](const Converter& each) {
          return one && list.items[0].text == fmt::format("{}.Config", each.name) &&
                 (each.name != kFloat8Linear || each.torchao == named);
        });
        if (known == std::end(kConverters))
          return fail(spec->line,
                      "converters: Weft knows one of Float8LinearConverter (tensorwise, rowwise, rowwise_with_gw_hp), "
                      "MXFP8LinearConverter and NVFP4LinearConverter");
        run_.request.dtype = traits_of(known->recipe).dtype;
        casts_weights_late_ = known->recipe == Recipe::Current && !gathers;
      }
    } else {
      // The function's own flavor stands in its name: llama3_8b.
      const std::size_t cut = module.size();
      if (config_.base.starts_with(module + "_")) flavor = config_.base.substr(cut + 1);
      std::replace(flavor.begin(), flavor.end(), '_', '.');
    }
    for (const Flavor& each : kFlavors) {
      std::string name(each.flavor), asked = flavor;
      for (std::string* text : {&name, &asked})
        for (char& c : *text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c == '-' ? '.' : c)));
      if (each.module == module && name == asked) run_.request.model = each.model;
    }
    if (run_.request.model.empty())
      return fail(
          spec ? spec->line : config_.base_line,
          fmt::format(
              "{} of {}: Weft knows llama3, qwen3 and deepseek_v3 of torchtitan.models in their published sizes",
              flavor.empty() ? config_.base : flavor, module.empty() ? "an unknown module" : module));
    const Result<ModelConfig> shape = configuration_of(run_.request.model);
    decoder_ = canonical(std::get<TransformerConfig>(*shape));
    return Ok{};
  }

  Status read_degrees() {
    const auto degree = [&](const char* path, std::int64_t otherwise) { return integer(path, otherwise); };
    words_.tp = degree("parallelism.tensor_parallel_degree", 1);
    words_.pp = degree("parallelism.pipeline_parallel_degree", 1);
    const std::int64_t cp = degree("parallelism.context_parallel_degree", 1),
                       ep = degree("parallelism.expert_parallel_degree", 1);
    const std::int64_t copies = degree("parallelism.data_parallel_replicate_degree", 1),
                       shard = degree("parallelism.data_parallel_shard_degree", -1);
    for (const char* path : {"parallelism.tensor_parallel_degree", "parallelism.pipeline_parallel_degree",
                             "parallelism.context_parallel_degree", "parallelism.expert_parallel_degree",
                             "parallelism.data_parallel_replicate_degree"})
      if (degree(path, 1) < 1 || degree(path, 1) > (1 << 24))
        return fail(find(path)->line, fmt::format("{}: at least 1", path));
    if (shard == 0 || shard > (1 << 24))
      return fail(find("parallelism.data_parallel_shard_degree")->line, "at least 1, or -1 for what is left");
    if (*words_.tp > 1) words_.sp = boolean("parallelism.enable_sequence_parallel", true) ? 1 : 0;
    if (cp > 1) words_.cp = cp, words_.cp_mode = ContextMode::Gather;
    if (ep > 1) {
      words_.ep = ep;
      if (*words_.tp > 1) words_.etp = 1;
    }
    const std::string reshard = word("parallelism.fsdp_reshard_after_forward", "default");
    const int zero = reshard == "never" || (reshard == "default" && *words_.pp > 1) ? 2 : 3;
    if (shard == 1) {
      if (cp > 1)
        words_.zero = zero;  // over context-parallel ranks
      else
        words_.zero = 0;
      words_.dp = copies;
    } else if (copies == 1) {
      if (shard > 1) words_.dp = shard;
      words_.zero = zero;
    } else {
      if (zero != 3)
        return fail(find("parallelism.data_parallel_replicate_degree")->line,
                    "Weft has copies of shards that are gathered again for the backward pass; write "
                    "fsdp_reshard_after_forward = \"always\"");
      if (shard < 0)
        return fail(find("parallelism.data_parallel_replicate_degree")->line,
                    "beside copies write data_parallel_shard_degree out, not -1");
      words_.replicate = copies;
      words_.fsdp = shard;
    }
    return Ok{};
  }

  Status read_pipeline() {
    const PythonField* parts = find("parallelism.module_fqns_per_model_part");
    if (*words_.pp == 1) {
      if (parts && parts->value.kind == Kind::List) return fail(parts->line, "stages without pipeline_parallel_degree");
      return Ok{};
    }
    const PythonField* named = find("parallelism.pipeline_parallel_schedule");
    const std::string name = named ? named->value.text : "1F1B";
    const auto lower = [](std::string text) {
      for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      return text;
    };
    const auto schedule = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                       [&](const auto& each) { return lower(std::string(each.torch)) == lower(name); });
    if (schedule == std::end(kSchedules))
      return fail(named->line, fmt::format("{}: Weft knows 1F1B, GPipe, Interleaved1F1B and DualPipeV here", name));
    if (schedule->weft != "1f1b" && schedule->weft != "interleaved") words_.schedule = schedule->weft;
    if (!parts || parts->value.kind != Kind::List)
      return fail(find("parallelism.pipeline_parallel_degree")->line,
                  "the stages are missing: Weft reads them from parallelism.module_fqns_per_model_part");
    std::vector<std::int64_t> stages;
    std::int64_t layer = 0;
    const std::size_t count = parts->value.items.size();
    for (std::size_t s = 0; s < count; ++s) {
      const PythonValue& list = parts->value.items[s];
      std::vector<std::string> modules;
      for (const PythonValue& item : list.items) modules.push_back(item.text);
      std::size_t at = 0;
      const auto take = [&](const std::string& module) {
        return at < modules.size() && modules[at] == module ? (++at, true) : false;
      };
      if (s == 0 && !take("tok_embeddings")) return fail(list.line, "the first stage begins with tok_embeddings");
      std::int64_t here = 0;
      while (take(fmt::format("layers.{}", layer))) ++layer, ++here;
      if (s + 1 == count && !(take("norm") && take("lm_head")))
        return fail(list.line, "the last stage ends with norm, lm_head");
      if (at != modules.size()) return fail(list.line, fmt::format("'{}' is out of order", modules[at].substr(0, 40)));
      stages.push_back(here);
    }
    if (layer != decoder_.layers)
      return fail(parts->line, fmt::format("{} layers in stages; the model has {}", layer, decoder_.layers));
    if (static_cast<std::int64_t>(count) % *words_.pp != 0)
      return fail(parts->line, fmt::format("{} stages do not divide over {} pipeline ranks", count, *words_.pp));
    const std::int64_t chunks = static_cast<std::int64_t>(count) / *words_.pp;
    if ((schedule->weft == "interleaved") != (chunks > 1 && schedule->weft != "dualpipe-v"))
      return fail(parts->line, fmt::format("{} with {} stages a rank", schedule->torch, chunks));
    if (schedule->weft == "interleaved") words_.vpp = chunks;
    if (std::adjacent_find(stages.begin(), stages.end(), std::not_equal_to<>()) != stages.end()) words_.stages = stages;
    return Ok{};
  }

  Status read_batch() {
    const std::int64_t seq = integer("training.max_context_length", 2048),
                       micro = integer("training.num_tokens_per_microbatch_per_dp_rank", 16384),
                       step = integer("training.num_tokens_per_train_step", -1),
                       parts = integer("parallelism.num_pp_microbatches", 1);
    const auto line = [&](const char* path) { return find(path) ? find(path)->line : config_.base_line; };
    if (seq < 1) return fail(line("training.max_context_length"), "training.max_context_length: at least 1");
    if (micro < 1 || micro % seq != 0 || micro / seq > (1 << 19))
      return fail(line("training.num_tokens_per_microbatch_per_dp_rank"),
                  fmt::format("{} tokens are no number of sequences of {}", micro, seq));
    run_.request.seq = seq;
    words_.mbs = micro / seq;
    if (step == -1) {
      words_.ga = *words_.pp > 1 ? parts : 1;
      return Ok{};
    }
    if (step < 1 || step % seq != 0)
      return fail(line("training.num_tokens_per_train_step"),
                  fmt::format("{} tokens are no number of sequences of {}", step, seq));
    run_.request.global_batch = step / seq;
    return Ok{};
  }

  Status read_habits() {
    const PythonField* policy = find("activation_checkpoint");
    const std::string name = policy ? policy->value.text : "";
    if (policy && policy->value.kind == Kind::Call && name == "FullAC.Config") {
      words_.recompute = Recompute::Full;
    } else if (!policy || policy->value.kind != Kind::None) {
      return fail(policy ? policy->line : config_.base_line,
                  "activation_checkpoint: Weft knows None and FullAC.Config(); the default, selective, saves every "
                  "second product");
    }
    if (word("training.dtype", "float32") != "float32" ||
        word("training.mixed_precision_param", "bfloat16") != "bfloat16")
      return fail(find("training.dtype") ? find("training.dtype")->line : find("training.mixed_precision_param")->line,
                  "Weft knows float32 parameters computed in bfloat16");
    std::vector<std::string> items;
    const Result<SoftwareStack> usual = find_stack(kStack);
    const bool graphs = !boolean("training.disable_cuda_graphs", false);
    if (graphs != usual->graph_capture.value) items.push_back(fmt::format("graph_capture={}", graphs));
    if (casts_weights_late_) items.emplace_back("narrow_gathers=false");
    if (!boolean("compile.enable", false)) items.emplace_back(kEager);
    run_.request.stack = items.empty() ? std::string(kStack) : fmt::format("{}:{}", kStack, fmt::join(items, ","));
    return Ok{};
  }

  PythonConfig config_;
  std::string_view file_;
  TransformerConfig decoder_;
  Shorthand words_;
  bool casts_weights_late_ = false;  // after they are gathered
  ImportedRun run_;
};

Result<ImportedRun> import_torchtitan(std::string_view text, std::string_view file) {
  WEFT_TRY(PythonConfig config, read_python_config(text, file));
  return Import(std::move(config), file).run();
}

}  // namespace

const TargetFunctions kTorchtitan = {no_torchtitan_strategy, why_not_torchtitan, write_torchtitan, import_torchtitan};

}  // namespace weft
