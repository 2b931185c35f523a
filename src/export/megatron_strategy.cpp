#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "export/megatron.h"
#include "strategy/stages.h"

namespace weft {
namespace {

// Which modules a recomputation of Megatron-LM's means, as globs of Weft's.
struct RecomputedModule {
  std::string_view name, glob;
};
constexpr RecomputedModule kModules[] = {{"mlp", "layers.*.mlp"}, {"moe", "layers.*.moe"}};

// "Ett|(ttt|)*2,ttL": embedding and loss at the ends, a stage between two bars.
std::string write_layout(const std::vector<std::int64_t>& stages) {
  std::string text = "E";
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (i > 0) text += "|";
    if (stages[i] > 0) text += stages[i] == 1 ? "t" : fmt::format("t*{}", stages[i]);
  }
  return text + "L";
}

// The grammar of pipeline_parallel_layer_layout.py: commas vanish, `(...)*n` repeats a group without nesting, `x*n` one
// character, `|` ends a stage.
Result<std::vector<std::int64_t>> read_layout(std::string_view text) {
  constexpr std::size_t kMost = 100'000;
  std::string flat, group;
  std::size_t at = 0;
  const auto count = [&](std::size_t from) -> Result<std::pair<std::int64_t, std::size_t>> {
    std::int64_t times = 0;
    std::size_t end = from;
    for (; end < text.size() && text[end] >= '0' && text[end] <= '9' && times < 100'000; ++end)
      times = 10 * times + (text[end] - '0');
    if (end == from || times > 10'000) return error("'{}': a number from 1 to 10,000 after *", text.substr(0, 60));
    return std::pair{times, end};
  };
  bool in_group = false;
  while (at < text.size()) {
    const char c = text[at++];
    std::string piece;
    if (c == ',' || c == ' ') continue;
    if (c == '(') {
      if (in_group) return error("'{}': groups do not nest", text.substr(0, 60));
      in_group = true;
      group.clear();
      continue;
    }
    if (c == ')') {
      if (!in_group) return error("'{}': ) without (", text.substr(0, 60));
      in_group = false;
      piece = group;
    } else if (std::string_view("EtmL|").find(c) != std::string_view::npos) {
      piece = std::string(1, c);
    } else {
      return error("'{}': '{}' is none of E t m L | , ( ) *", text.substr(0, 60), c);
    }
    std::int64_t times = 1;
    if (at < text.size() && text[at] == '*') {
      WEFT_TRY(const auto read, count(at + 1));
      times = read.first;
      at = read.second;
    }
    std::string& into = in_group ? group : flat;
    for (std::int64_t i = 0; i < times; ++i) {
      into += piece;
      if (into.size() > kMost) return error("'{}': too long", text.substr(0, 60));
    }
  }
  if (in_group) return error("'{}': ( is not closed", text.substr(0, 60));
  if (flat.find('m') != std::string::npos)
    return error("'{}': m, multi-token prediction, is no part of Weft's models", text.substr(0, 60));
  std::vector<std::int64_t> stages;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t bar = std::min(flat.find('|', begin), flat.size());
    const std::string stage = flat.substr(begin, bar - begin);
    const bool first = stages.empty(), last = bar == flat.size();
    std::int64_t layers = 0;
    for (std::size_t i = 0; i < stage.size(); ++i) {
      if (stage[i] == 't') ++layers;
      if (stage[i] == 'E' && !(first && i == 0))
        return error("'{}': E, the embedding, stands first", text.substr(0, 60));
      if (stage[i] == 'L' && !(last && i + 1 == stage.size()))
        return error("'{}': L, the loss, stands last", text.substr(0, 60));
    }
    if (first && (stage.empty() || stage[0] != 'E'))
      return error("'{}': E, the embedding, stands first", text.substr(0, 60));
    if (last && (stage.empty() || stage.back() != 'L'))
      return error("'{}': L, the loss, stands last", text.substr(0, 60));
    stages.push_back(layers);
    if (last) return stages;
    begin = bar + 1;
  }
}

// The layers of every stage where the arguments do not say it one by one; empty: even.
struct Pipeline {
  std::int64_t pp = 1, vpp = 1;
  std::vector<std::int64_t> stages;
};

Result<Pipeline> read_pipeline(const Arguments& given, std::int64_t layers) {
  Pipeline pipeline;
  pipeline.pp = given.integer("--pipeline-model-parallel-size", 1);
  const char* ways[] = {"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
                        "--pipeline-model-parallel-layout"};
  const char* chosen = nullptr;
  for (const char* way : ways) {
    if (!given.has(way)) continue;
    if (chosen) return given.fail(way, fmt::format("contradicts {}; keep one", chosen));
    chosen = way;
  }
  const std::int64_t head = given.has("--account-for-embedding-in-pipeline-split") ? 1 : 0;
  const std::int64_t tail = given.has("--account-for-loss-in-pipeline-split") ? 1 : 0;
  const bool ends = given.has("--decoder-first-pipeline-num-layers") || given.has("--decoder-last-pipeline-num-layers");
  const char* accounted = head ? "--account-for-embedding-in-pipeline-split" : "--account-for-loss-in-pipeline-split";
  if (head + tail > 0 && (ends || (chosen && chosen == ways[2])))
    return given.fail(accounted, "excludes a layout and counts of the first and last stage");
  if (chosen == ways[2]) {
    const auto read = read_layout(given.word(chosen, ""));
    if (!read.ok()) return given.fail(chosen, read.error().message);
    pipeline.stages = *read;
    const auto count = static_cast<std::int64_t>(pipeline.stages.size());
    if (count % pipeline.pp != 0)
      return given.fail(chosen, fmt::format("{} stages do not divide over {} pipeline ranks", count, pipeline.pp));
    pipeline.vpp = count / pipeline.pp;
    const std::int64_t sum = std::accumulate(pipeline.stages.begin(), pipeline.stages.end(), std::int64_t{0});
    if (sum != layers) return given.fail(chosen, fmt::format("places {} layers; the model has {}", sum, layers));
    if (ends) return given.fail(chosen, "contradicts counts of the first and last stage");
    if (pipeline.pp == 1 && pipeline.vpp == 1) pipeline.stages.clear();
    return pipeline;
  }
  if (chosen == ways[1]) pipeline.vpp = given.integer(chosen, 1);
  const auto divides = [&](std::int64_t a, std::int64_t b) { return b > 0 && a % b == 0; };
  if (ends) {
    if (chosen == ways[0]) return given.fail(chosen, "excludes counts of the first and last stage");
    const std::int64_t first = given.integer("--decoder-first-pipeline-num-layers", 0),
                       last = given.integer("--decoder-last-pipeline-num-layers", 0);
    const char* end = given.has("--decoder-first-pipeline-num-layers") ? "--decoder-first-pipeline-num-layers"
                                                                       : "--decoder-last-pipeline-num-layers";
    std::int64_t middle = layers - first - last, ranks = pipeline.pp - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
    for (const char* each : {"--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"})
      if (given.has(each) && (given.integer(each, 0) < 1 || !divides(given.integer(each, 0), pipeline.vpp)))
        return given.fail(each, fmt::format("positive, and a multiple of the {} chunks per rank", pipeline.vpp));
    if (middle < 0 || ranks < 0 || (ranks == 0 && middle > 0) || (ranks > 0 && !divides(middle, ranks * pipeline.vpp)))
      return given.fail(end, fmt::format("{} layers are left for {} ranks of {} chunks, which do not divide", middle,
                                         ranks, pipeline.vpp));
    for (std::int64_t chunk = 0; chunk < pipeline.vpp; ++chunk)
      for (std::int64_t rank = 0; rank < pipeline.pp; ++rank)
        pipeline.stages.push_back((rank == 0 && first > 0                ? first
                                   : rank + 1 == pipeline.pp && last > 0 ? last
                                                                         : middle / std::max<std::int64_t>(ranks, 1)) /
                                  pipeline.vpp);
    return pipeline;
  }
  const std::int64_t counted = layers + head + tail;
  if (!divides(counted, pipeline.pp))
    return given.fail(
        "--pipeline-model-parallel-size",
        fmt::format("{} layers{} do not divide over {} pipeline ranks", layers,
                    head + tail > 0 ? fmt::format(" and {} counted as such", head + tail) : "", pipeline.pp));
  if (chosen == ways[0]) {
    const std::int64_t each = given.integer(chosen, 1);
    if (each < 1 || !divides(counted / pipeline.pp, each))
      return given.fail(
          chosen, fmt::format("{} does not divide the {} layers of a pipeline rank", each, counted / pipeline.pp));
    pipeline.vpp = counted / pipeline.pp / each;
  } else if (pipeline.vpp < 1 || !divides(counted / pipeline.pp, pipeline.vpp)) {
    return given.fail(ways[1], fmt::format("{} does not divide the {} layers of a pipeline rank", pipeline.vpp,
                                           counted / pipeline.pp));
  }
  if (head + tail > 0 && pipeline.pp * pipeline.vpp > 1) {
    pipeline.stages.assign(static_cast<std::size_t>(pipeline.pp * pipeline.vpp),
                           counted / (pipeline.pp * pipeline.vpp));
    pipeline.stages.front() -= head;
    pipeline.stages.back() -= tail;
  }
  return pipeline;
}

std::optional<std::string> recompute_not_said(const TransformerConfig& config, const Parallelism& plan) {
  if (plan.recompute == Recompute::Op)
    return "recompute=op: Megatron-LM recomputes whole layers, core attention or named modules, not all that is "
           "between "
           "matrix products";
  if (plan.recompute == Recompute::Full && !plan.full.empty()) return "full= beside recompute=full";
  if (plan.recompute_layers.size() > 1 || (!plan.recompute_layers.empty() && plan.recompute != Recompute::Full))
    return fmt::format(
        "recompute={}: Megatron-LM recomputes as many first layers of every stage, as a whole: recompute=full:4 "
        "(--recompute-method block)",
        print(Recomputed{std::string(name_of(plan.recompute)), plan.recompute_layers}));
  const auto has_layer = [&](bool with_experts) {
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      if (config.is_moe_layer(layer) == with_experts) return true;
    return false;
  };
  std::vector<std::string> modules;
  for (const Recomputed& each : plan.full) {
    const std::string& glob = each.modules;
    modules.push_back(glob);
    if (!each.layers.empty())
      return fmt::format("full={}: Megatron-LM recomputes a module in all layers or in none", print_modules(plan.full));
    if (std::none_of(std::begin(kModules), std::end(kModules), [&](const auto& known) { return known.glob == glob; }))
      return fmt::format("full={}: Megatron-LM recomputes core attention, mlp and moe; layers as recompute=full:4",
                         glob);
    if (!has_layer(glob.ends_with("moe"))) return fmt::format("full={}: the model has no such layers", glob);
  }
  if (!std::is_sorted(modules.begin(), modules.end()) ||
      std::adjacent_find(modules.begin(), modules.end()) != modules.end())
    return "full= in another order than mlp, moe, or twice";
  return {};
}

// `most`: layers of a stage.
Status read_recompute(const Arguments& given, std::int64_t most, Shorthand& into) {
  std::string granularity = given.word("--recompute-granularity", "");
  if (given.has("--recompute-activations")) {
    if (granularity == "full") return given.fail("--recompute-activations", "contradicts --recompute-granularity full");
    granularity = "selective";
  }
  if (granularity.empty()) {
    for (const char* detail : {"--recompute-method", "--recompute-num-layers", "--recompute-modules"})
      if (given.has(detail)) return given.fail(detail, "needs --recompute-granularity");
    return Ok{};
  }
  if (granularity == "full") {
    for (const char* needed : {"--recompute-method", "--recompute-num-layers"})
      if (!given.has(needed)) return given.fail(needed, "missing: --recompute-granularity full needs it");
    if (given.has("--recompute-modules"))
      return given.fail("--recompute-modules", "belongs to --recompute-granularity selective");
    const std::int64_t count = given.integer("--recompute-num-layers", 1);
    if (count < 1) return given.fail("--recompute-num-layers", "at least 1");
    if (given.word("--recompute-method", "") == "block") {
      if (count < most) into.recompute_layers = {count};
    } else if (count != 1) {
      return given.fail("--recompute-num-layers",
                        "Weft keeps the input of every layer that it recomputes; write 1, or --recompute-method block");
    }
    into.recompute = Recompute::Full;
    return Ok{};
  }
  for (const char* detail : {"--recompute-method", "--recompute-num-layers"})
    if (given.has(detail)) return given.fail(detail, "belongs to --recompute-granularity full");
  const Argument* modules = given.find("--recompute-modules");
  const std::vector<std::string> names = modules ? modules->values : std::vector<std::string>{"core_attn"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      return given.fail("--recompute-modules", fmt::format("{} given twice", names[i]));
    if (names[i] == "core_attn") {
      into.recompute = Recompute::Selective;
      continue;
    }
    const auto* known =
        std::find_if(std::begin(kModules), std::end(kModules), [&](const auto& each) { return each.name == names[i]; });
    if (known == std::end(kModules))
      return given.fail("--recompute-modules", fmt::format("Weft recomputes core_attn, mlp and moe, not {}", names[i]));
    into.full.push_back({std::string(known->glob)});
  }
  return Ok{};
}

const std::vector<std::string> kSwappedOrder = {"tp", "cp", "ep", "pp", "dp"};
const std::vector<std::string> kUsualOrder = {"tp", "cp", "ep", "dp", "pp"};

}  // namespace

std::optional<std::string> megatron_rule_broken(const TransformerConfig& config, std::int64_t seq,
                                                const Parallelism& plan) {
  if (plan.schedule != (plan.vpp > 1 ? "interleaved" : "1f1b") && plan.pp > 1)
    return fmt::format("schedule={}: Megatron-LM runs 1f1b, and interleaved with vpp", plan.schedule);
  if (auto why = recompute_not_said(config, plan)) return why;
  for (const Offload& offload : plan.offload)
    if (offload.kind != Stored::Optimizer || !offload.modules.empty())
      return fmt::format("offload={}: Megatron-LM offloads the whole optimizer", name_of(offload.kind));
  if (!plan.offload.empty() && plan.zero != 1) return "offload=optimizer without zero=1, the distributed optimizer";
  if (!plan.order.empty() && plan.order != kSwappedOrder && plan.order != kUsualOrder)
    return fmt::format("order={}: Megatron-LM numbers ranks tp-cp-ep-dp-pp or tp-cp-ep-pp-dp",
                       fmt::join(plan.order, "-"));
  if (plan.order == kUsualOrder) return "order=tp-cp-ep-dp-pp said aloud: leave it out";
  // Megatron-LM makes the groups of experts for dense models too.
  if (plan.order == kSwappedOrder && plan.pp > 1 && plan.tp * plan.cp != plan.etp * plan.ep)
    return "order=tp-cp-ep-pp-dp with pipelines needs as many replicas of experts as of dense layers: tp·cp = etp·ep";
  if (config.heads % plan.tp != 0) return fmt::format("{} heads do not divide by tp={}", config.heads, plan.tp);
  if (config.mla.kv_lora == 0 && config.kv_heads % plan.tp != 0 && plan.tp % config.kv_heads != 0)
    return fmt::format("tp={} is no multiple or divisor of {} query groups", plan.tp, config.kv_heads);
  if (plan.cp > 1 && seq % (2 * plan.cp) != 0)
    return fmt::format("a sequence of {} does not divide by 2·cp = {}", seq, 2 * plan.cp);
  if (config.moe.experts > 0) {
    if (plan.tp > 1 && !plan.sequence_parallel) return "experts with tp > 1 need sequence parallelism, sp=1";
    if (config.moe.experts % plan.ep != 0)
      return fmt::format("{} experts do not divide by ep={}", config.moe.experts, plan.ep);
    if (config.mlp_bias && plan.etp > 1) return "experts with biases need etp=1";
  }
  if (plan.zero >= 2 && plan.pp > 1)
    return fmt::format("zero={} with pipelines: no Megatron-LM is known to shard gradients and weights across stages",
                       plan.zero);
  if (plan.fsdp < plan.dp && plan.zero != 3) return "copies of shards (replicate=) without zero=3";
  if (plan.vpp > 1 && plan.micro_batches % plan.pp != 0)
    return fmt::format("{} micro-batches are no multiple of pp={}, which interleaving needs", plan.micro_batches,
                       plan.pp);
  const std::int64_t stages = plan.pp * plan.vpp;
  if (!plan.stages.empty() && std::accumulate(plan.stages.begin(), plan.stages.end(), std::int64_t{0}) != config.layers)
    return fmt::format("stages={} are not the {} layers of the model", fmt::join(plan.stages, "+"), config.layers);
  if (plan.stages.empty() && config.layers % stages != 0)
    return fmt::format("{} layers do not divide over {} stages", config.layers, stages);
  return {};
}

void write_strategy(const TransformerConfig& config, std::int64_t seq, const Parallelism& plan, Arguments& into) {
  into.add("--tensor-model-parallel-size", plan.tp);
  if (plan.sequence_parallel) into.add("--sequence-parallel");
  into.add("--pipeline-model-parallel-size", plan.pp);
  if (!plan.stages.empty()) {
    into.add("--pipeline-model-parallel-layout", write_layout(plan.stages));
  } else if (plan.vpp > 1) {
    into.add("--num-virtual-stages-per-pipeline-rank", plan.vpp);
  }
  into.add("--context-parallel-size", plan.cp);
  if (plan.cp > 1)
    into.add("--cp-comm-type", plan.cp_mode == ContextMode::Gather     ? "all_gather"
                               : plan.cp_mode == ContextMode::AllToAll ? "a2a"
                                                                       : "p2p");
  if (config.moe.experts > 0) {
    into.add("--expert-model-parallel-size", plan.ep);
    into.add("--expert-tensor-parallel-size", plan.etp);
  }
  if (!plan.order.empty()) into.add("--use-tp-pp-dp-mapping");
  if (plan.zero == 1) into.add("--use-distributed-optimizer");
  if (plan.zero >= 2) {
    into.add("--use-megatron-fsdp");
    into.add("--data-parallel-sharding-strategy", plan.zero == 2 ? "optim_grads" : "optim_grads_params");
    into.add("--ckpt-format", "fsdp_dtensor");
    if (plan.fsdp < plan.dp) {
      into.add("--num-distributed-optimizer-instances", plan.dp / plan.fsdp);
      into.add("--outer-dp-sharding-strategy", "no_shard");
    }
  }
  if (!plan.offload.empty()) {
    into.add("--optimizer-cpu-offload");
    if (!into.has("--use-precision-aware-optimizer")) into.add("--use-precision-aware-optimizer");
  }
  into.add("--seq-length", seq);
  into.add("--micro-batch-size", plan.micro_batch);
  into.add("--global-batch-size", plan.global_batch());
  if (plan.recompute == Recompute::Full) {
    into.add("--recompute-granularity", "full");
    into.add("--recompute-method", plan.recompute_layers.empty() ? "uniform" : "block");
    into.add("--recompute-num-layers", plan.recompute_layers.empty() ? std::int64_t{1} : plan.recompute_layers.front());
  } else if (plan.recompute == Recompute::Selective || !plan.full.empty()) {
    std::vector<std::string> modules;
    if (plan.recompute == Recompute::Selective) modules.emplace_back("core_attn");
    for (const RecomputedModule& module : kModules)
      if (std::find(plan.full.begin(), plan.full.end(), Recomputed{std::string(module.glob)}) != plan.full.end())
        modules.emplace_back(module.name);
    into.add("--recompute-granularity", "selective");
    into.add("--recompute-modules", modules);
  }
}

Result<Shorthand> read_strategy_arguments(const Arguments& given, const TransformerConfig& config) {
  Shorthand words;
  for (const auto& [flag, field] :
       {std::pair{"--tensor-model-parallel-size", &Shorthand::tp}, std::pair{"--context-parallel-size", &Shorthand::cp},
        std::pair{"--pipeline-model-parallel-size", &Shorthand::pp},
        std::pair{"--micro-batch-size", &Shorthand::mbs}}) {
    words.*field = given.integer(flag, 1);
    if (*(words.*field) < 1 || *(words.*field) > (1 << 19)) return given.fail(flag, "must be at least 1");
  }
  if (!given.has("--micro-batch-size")) return given.fail("--micro-batch-size", "missing; Megatron-LM requires it");
  if (given.has("--sequence-parallel") && *words.tp == 1)
    return given.fail("--sequence-parallel", "Megatron-LM clears it at --tensor-model-parallel-size 1; leave it out");
  if (*words.tp > 1) words.sp = given.has("--sequence-parallel") ? 1 : 0;
  if (*words.cp == 1) words.cp.reset();
  if (const Argument* type = given.find("--cp-comm-type"); words.cp) {
    if (type && type->values.size() > 1) return given.fail(type->flag, "Weft has one for all layers");
    const std::string mode = type ? type->values[0] : "p2p";
    if (mode == "all_gather")
      words.cp_mode = ContextMode::Gather;
    else if (mode == "a2a")
      words.cp_mode = ContextMode::AllToAll;
    else if (mode == "p2p")
      words.cp_mode = ContextMode::Ring;
    else
      return given.fail("--cp-comm-type", fmt::format("Weft knows p2p, all_gather and a2a, not {}", mode));
  }
  WEFT_TRY(const Pipeline pipeline, read_pipeline(given, config.layers));
  if (pipeline.vpp > 1) {
    if (pipeline.pp == 1)
      return given.fail(given.has("--pipeline-model-parallel-layout") ? "--pipeline-model-parallel-layout"
                                                                      : "--num-virtual-stages-per-pipeline-rank",
                        "interleaving needs --pipeline-model-parallel-size above 1");
    words.vpp = pipeline.vpp;
  }
  words.stages = pipeline.stages;
  if (const Argument* group = given.find("--microbatch-group-size-per-virtual-pipeline-stage");
      group && given.integer(group->flag, 0) != pipeline.pp)
    return given.fail(group->flag, "Weft interleaves groups of as many micro-batches as pipeline ranks");
  for (const char* expert : {"--expert-model-parallel-size", "--expert-tensor-parallel-size"})
    if (given.has(expert) && config.moe.experts == 0 && given.integer(expert, 1) > 1)
      return given.fail(expert, "needs --num-experts");
  if (config.moe.experts > 0) {
    words.ep = given.integer("--expert-model-parallel-size", 1);
    words.etp = given.integer("--expert-tensor-parallel-size", *words.tp);
    if (*words.ep < 1) return given.fail("--expert-model-parallel-size", "must be at least 1");
    if (*words.etp < 1) return given.fail("--expert-tensor-parallel-size", "must be at least 1");
    if (*words.tp % *words.etp != 0)
      return given.fail("--expert-tensor-parallel-size", fmt::format("Weft needs a divisor of tp={}", *words.tp));
  }
  if (given.has("--use-tp-pp-dp-mapping")) words.order = kSwappedOrder;
  words.zero = given.has("--use-distributed-optimizer") ? 1 : 0;
  const std::int64_t copies = given.integer("--num-distributed-optimizer-instances", 1);
  if (copies < 1) return given.fail("--num-distributed-optimizer-instances", "must be at least 1");
  if (given.has("--use-megatron-fsdp")) {
    const std::string strategy = given.word("--data-parallel-sharding-strategy", "optim_grads_params");
    words.zero = strategy == "no_shard" ? 0 : strategy == "optim" ? 1 : strategy == "optim_grads" ? 2 : 3;
    if (copies > 1) {
      if (*words.zero != 3 || given.word("--outer-dp-sharding-strategy", "no_shard") != "no_shard")
        return given.fail("--num-distributed-optimizer-instances", "Weft has copies of what optim_grads_params shards");
      words.replicate = copies;
      words.zero.reset();
    }
  } else {
    for (const char* needs : {"--data-parallel-sharding-strategy", "--outer-dp-sharding-strategy"})
      if (given.has(needs)) return given.fail(needs, "read with --use-megatron-fsdp only; add it or leave this out");
    if (copies > 1)
      return given.fail("--num-distributed-optimizer-instances", "Weft has it with --use-megatron-fsdp only");
  }
  if (given.has("--optimizer-cpu-offload")) {
    if (!given.has("--use-precision-aware-optimizer"))
      return given.fail("--optimizer-cpu-offload", "needs --use-precision-aware-optimizer");
    words.offload.push_back({Stored::Optimizer});
  }
  const std::vector<std::int64_t> stages =
      pipeline.stages.empty() ? even_stages(config.layers, pipeline.pp * pipeline.vpp) : pipeline.stages;
  WEFT_TRY_OK(read_recompute(given, *std::max_element(stages.begin(), stages.end()), words));
  if (const Argument* global = given.find("--global-batch-size")) {
    if (given.integer(global->flag, 0) < 1) return given.fail(global->flag, "must be at least 1");
  } else {
    words.ga = 1;  // the micro-batch of every replica once
  }
  return words;
}

}  // namespace weft
