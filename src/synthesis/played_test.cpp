// Programs of the space of synthesis, drawn at random on unequal shares, are compiled from their trees and played by the
// reference: loss, every gradient and every updated weight are those of one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/random.h"
#include "compile/from_strategy.h"
#include "cost/analytic.h"
#include "models/models.h"
#include "reference/one_device.h"
#include "strategy/yaml.h"
#include "synthesis/synthesis.h"

namespace weft {
namespace {

using Features = std::set<std::string>;

struct Played {
  std::string problem;
  Features features;
};

Shares random_ratio(int parts, Rng& rng) {
  Shares shares;
  for (int part = 0; part < parts; ++part) shares.push_back(rng.between(1, 3));
  return shares;
}

// Variables in order, each with an option that agrees with those before; empty: a dead end.
std::vector<std::uint32_t> random_option(const ProgramChoices& choices, bool gather_factors, const ProgramSpace& space,
                                         Rng& rng) {
  std::vector<std::uint32_t> option(choices.own.size(), 0);
  IdVec<VariableId, std::vector<const ProgramChoices::Pair*>> into(choices.own.size());
  for (const ProgramChoices::Pair& pair : choices.pairs) into[pair.b].push_back(&pair);
  for (VariableId v : choices.own.ids()) {
    std::vector<std::uint32_t> possible, gathering;
    for (std::uint32_t o = 0; o < choices.own[v].size(); ++o) {
      if (choices.own[v][o].communication >= kNever) continue;
      option[v.index()] = o;
      if (std::any_of(into[v].begin(), into[v].end(), [&](const ProgramChoices::Pair* pair) {
            return choices.move(*pair, option[pair->a.index()], o).time >= kNever;
          }))
        continue;
      possible.push_back(o);
      if (!space.ops[v].empty() && space.meaning[v][o].weight_gradient) gathering.push_back(o);
    }
    if (possible.empty()) return {};
    const std::vector<std::uint32_t>& from =
        gather_factors && !gathering.empty() && rng.below(2) == 0 ? gathering : possible;
    option[v.index()] = from[rng.below(from.size())];
  }
  return option;
}

Features features_of(const ProgramSpace& space, const std::vector<std::uint32_t>& option, const Program& program) {
  Features found;
  for (VariableId v : space.ops.ids()) {
    if (space.ops[v].empty()) continue;
    const Distribution& chosen = space.meaning[v][option[v.index()]];
    for (std::size_t m = 0; m < chosen.split.size(); ++m) {
      if (!chosen.split[m].shares.empty())
        found.insert(chosen.split[m].shares == reduced(space.mesh.ratio[m].samples) ? "uneven samples"
                                                                                    : "uneven others");
      if (chosen.weight_gradient && (*chosen.weight_gradient)[m].axis.empty() && !chosen.split[m].axis.empty())
        found.insert("factors gathered");
    }
    if (chosen.weights != 0)
      found.insert("zero=3");
    else if (chosen.gradients != 0)
      found.insert("zero=2");
    else if (chosen.optimizer != 0)
      found.insert("zero=1");
    if (chosen.optimizer != 0)
      for (std::size_t m = 0; m < space.mesh.ratio.size(); ++m)
        if ((chosen.optimizer >> m & 1u) != 0 && !space.mesh.ratio[m].stored.empty()) found.insert("uneven storage");
  }
  if (space.mesh.mesh.axes().size() > 1) found.insert("two axes");
  for (const Instruction& instruction : program.instructions)
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what);
        communicate && communicate->parts != Parts::Even)
      found.emplace(name_of(communicate->parts));
  return found;
}

class Players {
 public:
  Players() : cluster_(parse_cluster("dgx-h100:1").value()), cost_(find_stack("pytorch-ddp").value()) {
    for (const auto& [spec, batch, seq] : std::vector<std::tuple<const char*, std::int64_t, std::int64_t>>{
             {"gpt2-124m:layers=1,hidden=12,heads=12,ffn=12,vocab=12,dropout=0.1", 12, 2},
             {"llama3-8b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=12,vocab=12", 6, 6},
             {"mixtral-8x7b:layers=1,hidden=12,heads=6,kv_heads=6,ffn=2,vocab=12,experts=6,capacity_factor=2", 12, 2}})
      models_.push_back(
          make_training_graph(build_model(spec, {.batch = batch, .seq = seq}).value(), {.master_weights = false})
              .value());
  }

  Played play(std::uint64_t number) const {
    Rng rng = Rng(2024).split(number);
    const TrainingGraph& training = models_[number % models_.size()];
    std::vector<MeshAxis> axes = {{"dp", static_cast<int>(rng.between(2, 3))}};
    if (rng.below(2) == 0) axes.push_back({"tp", 2});
    std::vector<DeviceId> devices;
    for (int i = 0; i < axes[0].size * (axes.size() > 1 ? 2 : 1); ++i)
      devices.emplace_back(static_cast<std::size_t>(i));
    SharedMesh mesh{Mesh::make(axes, devices).value(), std::vector<SharedMesh::Ratios>(axes.size())};
    for (std::size_t m = 0; m < axes.size(); ++m) {
      SharedMesh::Ratios& ratio = mesh.ratio[m];
      if (rng.below(3) != 0) ratio.samples = random_ratio(axes[m].size, rng);
      if (rng.below(3) != 0) ratio.others = random_ratio(axes[m].size, rng);
      if (rng.below(2) != 0) ratio.stored = random_ratio(axes[m].size, rng);
    }
    const ProgramSpace space = make_program_space(training, mesh, cluster_, cost_);
    std::vector<std::uint32_t> option;  // not every begun program can be completed
    for (int i = 0; i < 200 && option.empty(); ++i)
      option = random_option(space.choices, rng.below(2) == 0, space, rng);
    if (option.empty()) return {"no program", {}};
    const Strategy tree = to_tree(space, option, training);
    const Result<ResolvedStrategy> resolved = resolve(tree, training, cluster_);
    if (!resolved.ok()) return {resolved.error().message, {}};
    CompileOptions options{.gradients = {.overlap = rng.below(2) == 0, .bucket = Bytes{200}}};
    if (rng.below(3) != 0) options.uneven_parts = rng.below(2) == 0 ? Parts::Padded : Parts::Grouped;
    const Result<CompiledStrategy> compiled = compile_strategy(training, *resolved, options);
    if (!compiled.ok()) return {compiled.error().message, {}};
    if (const char* const shown = std::getenv("WEFT_SHOW_CASE"); shown && std::strtoull(shown, nullptr, 10) == number)
      fmt::print("{}", to_yaml(tree));
    return {reference::differs_from_one_device(training, compiled->program, compiled->schedule),
            features_of(space, option, compiled->program)};
  }

 private:
  const Cluster cluster_;
  const AnalyticCost cost_;
  std::vector<TrainingGraph> models_;
};

// WEFT_SYNTHESISED sets how many and WEFT_SYNTHESISED_FROM from which on, WEFT_SHOW_CASE prints the tree of one.
TEST(Synthesised, RandomProgramsTrainAsOneDevice) {
  const char* const wanted = std::getenv("WEFT_SYNTHESISED");
  const int programs = wanted ? std::atoi(wanted) : 320;
  const char* const from = std::getenv("WEFT_SYNTHESISED_FROM");
  const std::uint64_t first = from ? std::strtoull(from, nullptr, 10) : 0;
  const Players players;
  std::vector<Played> played(static_cast<std::size_t>(programs));
  std::atomic<int> next = 0;
  const auto work = [&] {
    for (int i = next++; i < programs; i = next++)
      played[static_cast<std::size_t>(i)] = players.play(first + static_cast<std::uint64_t>(i));
  };
  std::thread other(work);
  work();
  other.join();
  int mismatches = 0;
  std::map<std::pair<std::string, std::string>, int> pairs;
  for (std::size_t i = 0; i < played.size(); ++i) {
    mismatches += played[i].problem.empty() ? 0 : 1;
    EXPECT_EQ(played[i].problem, "") << "program " << first + i;
    const Features& features = played[i].features;
    for (auto a = features.begin(); a != features.end(); ++a)
      for (auto b = std::next(a); b != features.end(); ++b) ++pairs[{*a, *b}];
  }
  // In the order of names.
  const std::vector<std::string> names = {"factors gathered", "grouped",        "padded", "two axes", "uneven others",
                                          "uneven samples",   "uneven storage", "zero=1", "zero=2",   "zero=3"};
  int least = programs;
  std::string rarest;
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (names[a] == "grouped" && names[b] == "padded") continue;  // the one or the other
      const int times = pairs[{names[a], names[b]}];
      if (times < least) rarest = names[a] + " x " + names[b];
      least = std::min(least, times);
      if (programs >= 300) {
        EXPECT_GE(times, 10) << names[a] << " x " << names[b];
      }
    }
  fmt::print("{} programs played, {} mismatches; of the pairs of {} features, {} least often, {} times\n", programs,
             mismatches, names.size(), rarest, least);
}

}  // namespace
}  // namespace weft
