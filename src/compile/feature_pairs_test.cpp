// Strategies drawn at random from all combinations of features: uneven samples, columns, experts and
// storage, padded and grouped parts, ZeRO, pipelines, experts, context and tensor parallelism, offload, recomputation,
// frozen parameters, a smaller last micro-batch. Each trains as one device does, and every pair of features has
// occurred.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/random.h"
#include "plan/freeze.h"
#include "program_cases.h"
#include "reference/one_device.h"
#include "sharded_plan.h"
#include "strategy/yaml.h"

namespace weft {
namespace {

// Features of a strategy. Those of one line exclude one another.
constexpr const char* kFeatures[][4] = {
    {"uneven samples"},
    {"uneven columns"},
    {"uneven experts"},
    {"uneven storage"},
    {"padded", "grouped"},
    {"zero=1", "zero=2", "zero=3"},
    {"1f1b", "interleaved", "zb-h1"},
    {"several axes"},
    {"offload"},
    {"experts whole", "ep", "etp"},
    {"cp gather", "cp ring", "cp a2a"},
    {"tp", "sp"},
    {"recompute"},
    {"frozen"},
    {"smaller last"},
    {"in parts"},
};
using Features = std::set<std::string>;

// Impossible pairs: in addition to those of one line, uneven experts without expert parallelism, and experts that are
// cut over fewer devices than the dense layers without sequence parallelism.
bool excluded(const std::string& a, const std::string& b) {
  for (const auto& line : kFeatures) {
    const auto has = [&](const std::string& name) {
      return std::any_of(std::begin(line), std::end(line), [&](const char* each) { return each && name == each; });
    };
    if (has(a) && has(b)) return true;
  }
  const auto are = [&](const char* one, const char* other) {
    return (a == one && b == other) || (a == other && b == one);
  };
  return are("uneven experts", "experts whole") || are("etp", "tp");
}

struct Case {
  std::string model, shorthand, freeze;
  std::int64_t seq = 4, last_samples = 0;  // of a micro-batch and replica; 0: as the others
  std::optional<Parts> parts;
  bool by_price = false, in_parts = false;
  Strategy strategy = {};
  TrainingGraph training = {};
  std::optional<TrainingGraph> last = {};

  std::string words() const {
    return fmt::format("{} {} freeze '{}' last {} parts {}", model, shorthand, freeze, last_samples,
                       parts ? name_of(*parts) : "by price or bytes");
  }
};

// n shares that add up to 2n, and are not all equal.
std::vector<std::int64_t> random_ratio(int n, Rng& rng) {
  std::vector<std::int64_t> ratio(static_cast<std::size_t>(n), 1);
  for (int i = 0; i < n; ++i) ++ratio[i == 0 ? 0 : rng.below(ratio.size())];
  if (std::count(ratio.begin(), ratio.end(), 2) == n) {
    ++ratio[0];
    --ratio[1];
  }
  return ratio;
}

Result<Case> random_case(Rng& rng) {
  const auto any = [&](auto... values) {
    const std::int64_t list[] = {values...};
    return list[rng.below(sizeof...(values))];
  };
  Case made;
  std::int64_t tp = 1, cp = 1, dp = 1, pp = 1;
  do {
    tp = any(1, 2, 2);
    cp = any(1, 2);
    dp = any(1, 2, 2, 4);
    pp = any(1, 1, 2, 2);
  } while (tp * cp * dp * pp > 8 || tp * cp * dp * pp == 1);
  const bool moe = rng.below(2) == 0;
  const bool interleaved = pp > 1 && rng.below(3) == 0, split = pp > 1 && !interleaved && rng.below(2) == 0;
  const bool uneven_samples = rng.below(2) == 0;
  made.last_samples = rng.below(4) == 0 ? (uneven_samples ? 2 : 1) : 0;
  const std::int64_t samples = made.last_samples == 2 ? 4 : 2;
  made.shorthand = fmt::format("tp={},cp={},pp={},ga={},mbs={}", tp, cp, pp, interleaved ? 2 : any(2, 2, 3), samples);
  std::int64_t etp = tp;
  bool sp = tp > 1 && rng.below(2) == 0;
  const bool hybrid = dp == 4 && rng.below(3) == 0;
  if (moe) {
    etp = sp && rng.below(2) == 0 ? 1 : tp;
    const std::int64_t most = (hybrid ? dp / 2 : dp) * cp * tp / etp;
    const std::int64_t ep = std::min<std::int64_t>(most, any(1, 2, 2, 4));
    made.shorthand += fmt::format(",ep={},etp={}", ep, etp);
  }
  if (tp > 1) made.shorthand += fmt::format(",sp={}", sp ? 1 : 0);
  made.shorthand +=
      hybrid ? fmt::format(",fsdp={},replicate=2", dp / 2) : fmt::format(",dp={},zero={}", dp, rng.below(4));
  if (cp > 1) {
    const char* const modes[] = {"gather", "ring", "a2a"};
    made.shorthand += fmt::format(",cp_mode={}", modes[rng.below(3)]);
  }
  if (interleaved) made.shorthand += ",vpp=2";
  if (split) made.shorthand += ",schedule=zb-h1";
  const char* const again[] = {"none", "selective", "full", "op", "op:1"};
  made.shorthand += fmt::format(",recompute={}", again[rng.below(5)]);
  const int layers = interleaved ? 4 : pp > 1 ? 2 : 1;
  made.model = moe ? fmt::format(
                         "mixtral-8x7b:layers={},hidden=8,heads=4,kv_heads=4,ffn=4,vocab=12,experts=4,top_k=2,"
                         "capacity_factor={},weigh_rows={},shared_ffn={}",
                         layers, any(0, 1, 2), rng.below(2), rng.below(2) * 4)
               : rng.below(2) == 0
                   ? fmt::format("gpt2-124m:layers={},hidden=8,heads=4,ffn=8,vocab=12,dropout=0.1", layers)
                   : fmt::format("llama3-8b:layers={},hidden=8,heads=4,kv_heads=4,ffn=8,vocab=12", layers);
  made.seq = 2 * cp * (sp ? tp : 1);
  const std::string globs[] = {"embed", "layers.0", "**+!head", moe ? "layers.*.moe.experts" : "layers.*.mlp"};
  if (rng.below(4) == 0) made.freeze = globs[rng.below(4)];
  made.in_parts = pp > 1 && rng.below(3) == 0;
  switch (rng.below(4)) {
    case 0:
      made.parts = Parts::Padded;
      break;
    case 1:
      made.parts = Parts::Grouped;
      break;
    default:
      made.by_price = rng.below(2) == 0;
  }

  const Shorthand words = parse_shorthand(made.shorthand).value();
  WEFT_TRY(const Parallelism plan, complete(words, devices_named(words)));
  Graph graph = routed_graph(made.model, plan, made.seq, DType::F32);
  made.strategy = expand(plan, graph);
  const auto train = [&](Graph from) -> Result<TrainingGraph> {
    std::vector<TensorId> frozen;
    if (!made.freeze.empty()) {
      WEFT_TRY(frozen, frozen_parameters(from, made.freeze));
    }
    return make_training_graph(std::move(from), {.master_weights = false, .frozen = std::move(frozen)});
  };
  WEFT_TRY(made.training, train(std::move(graph)));
  if (made.last_samples > 0) {
    Parallelism smaller = plan;
    smaller.micro_batch = made.last_samples;
    WEFT_TRY(made.last, train(routed_graph(made.model, smaller, made.seq, DType::F32)));
  }

  // Uneven shares in place of even ones, and offloading.
  const auto size_of = [&](const std::string& axis) { return made.strategy.mesh.size_of(axis); };
  std::map<std::string, std::vector<std::int64_t>> samples_by, stored_by;  // by mesh axis
  std::string sample_axis;
  const bool uneven_columns = rng.below(2) == 0, uneven_experts = rng.below(2) == 0, uneven_storage = rng.below(2) == 0;
  const std::vector<std::int64_t> columns = {3, 1};
  for (Rule& rule : made.strategy.rules) {
    for (auto& [axis, split_by] : rule.inputs)
      if (uneven_samples && split_by.dim == 0 && size_of(axis) > 1 && (sample_axis.empty() || sample_axis == axis)) {
        sample_axis = axis;
        auto [known, fresh] = samples_by.try_emplace(axis);
        if (fresh) known->second = random_ratio(size_of(axis), rng);
        split_by.ratio = known->second;
      }
    for (auto& [axis, split_by] : rule.compute) {
      // Heads that all-to-alls hand out are too few for such a ratio.
      if (uneven_columns && axis == "tp" && split_by.axis != "e" && split_by.axis != "g" && size_of(axis) == 2)
        split_by.ratio = columns;
      if (uneven_experts && split_by.axis == "e" && size_of(axis) == 2 &&
          size_of("ep") * size_of("ecp") * size_of("eptp") == 2)
        split_by.ratio = columns;
    }
    for (Storage& storage : rule.memory)
      if (uneven_storage && storage.over)
        for (const std::string& axis : *storage.over)
          if (size_of(axis) > 1) {
            auto [known, fresh] = stored_by.try_emplace(axis);
            if (fresh) known->second = random_ratio(size_of(axis), rng);
            storage.ratio[axis] = known->second;
          }
  }
  if (rng.below(3) == 0)
    for (std::uint64_t rules = 1 + rng.below(2); rules > 0; --rules) {
      Rule rule;
      const char* const modules[] = {"**", "embed", "layers.*", "layers.*.attn", "layers.0", "head"};
      rule.match = modules[rng.below(6)];
      for (int kind = 0; kind < kStoredKinds; ++kind)
        if (rng.below(2) == 0) rule.memory[static_cast<std::size_t>(kind)].offload = true;
      made.strategy.rules.push_back(rule);
    }
  return made;
}

// The features that the compiled program actually has.
Features features_of(const Case& each, const CompiledStrategy& compiled, const Shorthand& words) {
  Features found;
  const Program& program = compiled.program;
  const Graph& graph = each.training.graph;
  for (const Instruction& instruction : program.instructions) {
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what)) {
      if (communicate->parts != Parts::Even) found.emplace(name_of(communicate->parts));
      if (std::popcount(communicate->axes) > 1 && communicate->collective != Collective::Slice)
        found.insert("several axes");
    }
    const auto* compute = std::get_if<Compute>(&instruction.what);
    if (!compute || graph.ops()[compute->op].phase == Phase::Step) continue;
    const Signature& signature = graph.signature(compute->op);
    const std::vector<MeshAxis>& axes = program.meshes[instruction.mesh].axes();
    for (std::size_t a = 0; a < compute->sharding.axes.size(); ++a)
      for (const Cut& cut : compute->sharding.axes[a])
        if (!cut.shares.empty())
          found.insert(signature.axes[a].name == "e"                                ? "uneven experts"
                       : axes[static_cast<std::size_t>(cut.mesh_axis)].name == "tp" ? "uneven columns"
                                                                                    : "uneven samples");
  }
  for (const Buffer& buffer : program.buffers) {
    if (buffer.on_host) found.insert("offload");
    if (buffer.kind == BufferKind::State && !graph.tensors()[buffer.tensor].type.shape.empty() &&
        has_uneven_parts(buffer.layout, ~MeshAxes{0}))
      for (const Rule& rule : each.strategy.rules)
        for (const Storage& storage : rule.memory)
          if (!storage.ratio.empty()) found.insert("uneven storage");
  }
  if (const std::int64_t zero = words.fsdp ? 3 : words.zero.value_or(0); zero > 0)
    found.insert(fmt::format("zero={}", zero));
  if (words.pp.value_or(1) > 1)
    found.insert(words.vpp.value_or(1) > 1 ? "interleaved" : each.strategy.schedule.name == "zb-h1" ? "zb-h1" : "1f1b");
  if (words.ep)
    found.insert(words.etp.value_or(1) < words.tp.value_or(1) ? "etp" : *words.ep > 1 ? "ep" : "experts whole");
  for (const char* mode : {"gather", "ring", "a2a"})
    if (each.shorthand.find(fmt::format("cp_mode={}", mode)) != std::string::npos)
      found.insert(fmt::format("cp {}", mode));
  if (words.tp.value_or(1) > 1) found.insert(each.shorthand.find("sp=1") != std::string::npos ? "sp" : "tp");
  if (each.shorthand.find("recompute=none") == std::string::npos) found.insert("recompute");
  if (!each.freeze.empty()) found.insert("frozen");
  if (compiled.last) found.insert("smaller last");
  if (each.in_parts) found.insert("in parts");
  return found;
}

struct Played {
  std::string problem;
  Features features;
};
Played play(std::uint64_t number) {
  Rng rng = Rng(808).split(number);
  const Result<Case> drawn = random_case(rng);
  if (!drawn.ok()) return {drawn.error().message, {}};
  const Case& each = *drawn;
  const Cluster cluster = parse_cluster("dgx-h100:1").value();
  const Result<ResolvedStrategy> resolved = resolve(each.strategy, each.training, cluster);
  if (!resolved.ok()) return {each.words() + ": " + resolved.error().message, {}};
  const PricePerCallAndByte price(static_cast<double>(rng.below(400)), 1);
  CompileOptions options{.gradients = {.overlap = rng.below(4) != 0, .bucket = Bytes{200}},
                         .tensor_overlap = rng.below(3) != 0,
                         .uneven_parts = each.parts,
                         .prices = each.by_price ? &price : nullptr};
  if (rng.below(2) == 0) options.types.sent_gradients = DType::BF16;
  if (each.in_parts) options.transfers.node.assign(8, 0);
  const Result<CompiledStrategy> compiled =
      compile_strategy(each.training, *resolved, options, each.last ? &each.last->graph : nullptr);
  if (!compiled.ok()) return {each.words() + ": " + compiled.error().message, {}};
  if (const char* const shown = std::getenv("WEFT_SHOW_CASE"); shown && std::strtoull(shown, nullptr, 10) == number)
    fmt::print("{}\n{}{}", each.words(), to_yaml(each.strategy), print(compiled->program, each.training.graph));
  std::optional<LastMicroBatch> last;
  if (compiled->last) last.emplace(*compiled->last, each.last->graph);
  std::string problem =
      reference::differs_from_one_device(each.training, compiled->program, compiled->schedule, {{}}, last);
  if (!problem.empty()) problem = each.words() + ": " + problem;
  return {std::move(problem), features_of(each, *compiled, parse_shorthand(each.shorthand).value())};
}

// Scaled by WEFT_RANDOM_PLANS / 2,100: sanitizer builds run fewer. WEFT_SHOW_CASE prints one of them.
TEST(FeaturePairs, AllOfThemTrainAsOneDevice) {
  const char* const wanted = std::getenv("WEFT_RANDOM_PLANS");
  const int all = 1500, plans = wanted ? all * std::atoi(wanted) / 2100 : all;
  std::vector<Played> played(static_cast<std::size_t>(plans));
  std::atomic<int> next = 0;
  const auto work = [&] {
    for (int i = next++; i < plans; i = next++)
      played[static_cast<std::size_t>(i)] = play(static_cast<std::uint64_t>(i));
  };
  std::thread other(work);
  work();
  other.join();
  int mismatches = 0;
  std::map<std::pair<std::string, std::string>, int> pairs;
  for (std::size_t i = 0; i < played.size(); ++i) {
    const auto& [problem, features] = played[i];
    mismatches += problem.empty() ? 0 : 1;
    EXPECT_EQ(problem, "") << "strategy " << i;
    for (auto a = features.begin(); a != features.end(); ++a)
      for (auto b = std::next(a); b != features.end(); ++b) ++pairs[{*a, *b}];
  }
  std::vector<std::string> names;
  for (const auto& line : kFeatures)
    for (const char* name : line)
      if (name) names.push_back(name);
  std::sort(names.begin(), names.end());
  int counted = 0, least = plans;
  std::string rarest;
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (excluded(names[a], names[b])) continue;
      ++counted;
      const int times = pairs[{names[a], names[b]}];
      if (times < least) rarest = names[a] + " × " + names[b];
      least = std::min(least, times);
      if (plans >= all) {
        EXPECT_GE(times, 5) << names[a] << " × " << names[b];
      }
    }
  fmt::print("{} strategies played, {} mismatches; {} pairs of {} features, {} least often, {} times\n", plans,
             mismatches, counted, names.size(), rarest, least);
}

}  // namespace
}  // namespace weft
