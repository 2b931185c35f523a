// Several steps of training, with numbers that change from step to step: the program against one device, and one device
// against optimizers written out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "program_cases.h"
#include "reference/one_device.h"

namespace weft {
namespace {

using reference::StepNumbers;

// The learning rate warms up and decays; the loss scale, where there is one, is lowered.
const std::vector<StepNumbers> kSteps = {{1, 0.01, 1024}, {2, 0.03, 1024}, {3, 0.02, 512}, {4, 0.005, 512}};
// The second step overflows: it is skipped, and its number comes again with a lower scale.
constexpr double kInfinite = std::numeric_limits<double>::infinity();
const std::vector<StepNumbers> kOverflow = {{1, 0.01, 64}, {2, 0.03, kInfinite}, {2, 0.03, 32}, {3, 0.02, 32}};

struct Training {
  const char* name;
  TrainingOptions options;
};
std::vector<Training> trainings() {
  std::vector<Training> all;
  for (const bool scaled : {false, true})
    for (const bool clipped : {false, true}) {
      const auto add = [&](const char* name, OptimizerKind optimizer, double decay, bool masters = false) {
        all.push_back({name,
                       {.optimizer = optimizer,
                        .master_weights = masters,
                        .clip_norm = clipped ? std::optional<double>(0.05) : std::nullopt,
                        .weight_decay = decay,
                        .loss_scaling = scaled}});
      };
      add("sgd", OptimizerKind::Sgd, 0.1);
      add("momentum", OptimizerKind::Momentum, 0.1);
      add("adam", OptimizerKind::Adam, 0.1);
      add("adamw", OptimizerKind::AdamW, 0.1);
      add("lamb", OptimizerKind::Lamb, 0.1);
      if (!scaled && clipped) add("lamb with masters", OptimizerKind::Lamb, 0.1, true);
    }
  return all;
}

std::string problem_of(const char* model, const char* text, const TrainingOptions& options,
                       const std::vector<StepNumbers>& steps) {
  const Shorthand shorthand = parse_shorthand(text).value();
  const Parallelism parallelism = complete(shorthand, devices_named(shorthand)).value();
  Graph graph = build_model(model, {.batch = parallelism.graph_batch(), .seq = 4}).value();
  const Strategy strategy = expand(parallelism, graph);
  const TrainingGraph training = make_training_graph(std::move(graph), options).value();
  const Result<ResolvedStrategy> resolved = resolve(strategy, training, parse_cluster("dgx-h100:1").value());
  if (!resolved.ok()) return resolved.error().message;
  const Result<CompiledStrategy> compiled = compile_strategy(training, *resolved);
  if (!compiled.ok()) return compiled.error().message;
  return reference::differs_from_one_device(training, compiled->program, compiled->schedule, steps);
}

TEST(Steps, ShardedTrainingGoesOnAsOnOneDevice) {
  const char* const strategies[] = {"dp=1",
                                    "dp=4,ga=2",
                                    "dp=4,zero=1",
                                    "dp=2,zero=2,ga=2",
                                    "dp=4,zero=3",
                                    "tp=2,pp=2,dp=2,zero=1,ga=2",
                                    "pp=2,schedule=zb-h1,ga=4",
                                    "pp=2,schedule=dualpipe,ga=4",
                                    "dp=2,zero=3,offload=optimizer+gradients+weights+activations"};
  // AdamW under all of them, the others each under every third.
  int played = 0, turn = 0;
  for (const Training& training : trainings()) {
    ++turn;
    for (const char* strategy : strategies) {
      if (training.options.optimizer != OptimizerKind::AdamW && ++turn % 3 != 0) continue;
      for (const auto* steps : {&kSteps, &kOverflow}) {
        if (steps == &kOverflow && !training.options.loss_scaling) continue;
        EXPECT_EQ(problem_of(kSmallLlama, strategy, training.options, *steps), "")
            << training.name << " clipped " << training.options.clip_norm.has_value() << " scaled "
            << training.options.loss_scaling << " " << strategy;
        ++played;
      }
    }
  }
  EXPECT_EQ(played, (9 + 4 * 3) * (2 + 2 * 2) + 3);  // with masters, a third of nine
}

// What one parameter goes through, written out: Kingma and Ba 2015, Loshchilov and Hutter 2019.
struct Plain {
  std::vector<double> weight, m, v;

  void update(OptimizerKind kind, std::vector<double> gradient, int step, double rate, double decay) {
    m.resize(weight.size());
    v.resize(weight.size());
    for (std::size_t i = 0; i < weight.size(); ++i) {
      if (kind != OptimizerKind::AdamW) gradient[i] += decay * weight[i];
      switch (kind) {
        case OptimizerKind::Sgd:
          weight[i] -= rate * gradient[i];
          break;
        case OptimizerKind::Momentum:
          m[i] = 0.9 * m[i] + gradient[i];
          weight[i] -= rate * m[i];
          break;
        default: {
          m[i] = 0.9 * m[i] + 0.1 * gradient[i];
          v[i] = 0.999 * v[i] + 0.001 * gradient[i] * gradient[i];
          const double mean = m[i] / (1 - std::pow(0.9, step)), square = v[i] / (1 - std::pow(0.999, step));
          if (kind == OptimizerKind::AdamW) weight[i] -= rate * decay * weight[i];
          weight[i] -= rate * mean / (std::sqrt(square) + 1e-8);
          break;
        }
      }
    }
  }
};

// Gradients come from the graph; that they are those of the loss, other tests show by differences.
TEST(Steps, OptimizersDoWhatTheirPapersSay) {
  constexpr int kMicroBatches = 2;
  for (const Training& described : trainings()) {
    const TrainingOptions& options = described.options;
    if (options.optimizer == OptimizerKind::Lamb) continue;
    const TrainingGraph training =
        make_training_graph(build_model(kSmallGpt, {.batch = 2, .seq = 4}).value(), options).value();
    const Graph& graph = training.graph;
    reference::OneDevice one(training, kMicroBatches);
    std::map<TensorId, Plain> plain;
    for (const auto& [parameter, gradient] : training.accumulated)
      plain[parameter].weight = one.given(parameter, 0).values();
    const std::vector<StepNumbers>& steps = options.loss_scaling ? kOverflow : kSteps;
    for (const StepNumbers& numbers : steps) {
      one.begin(numbers);
      one.play();
      if (!std::isfinite(numbers.loss_scale)) {  // the loss itself is what it is
        EXPECT_GT(one.values()[graph.results().back()].values()[0], 0);
        continue;
      }
      const double scale = options.loss_scaling ? numbers.loss_scale : 1;
      double squares = 0;
      for (const auto& [parameter, gradient] : training.accumulated)
        for (double each : one.values()[gradient].values()) squares += each / scale * (each / scale);
      const double clip = options.clip_norm ? std::min(1.0, *options.clip_norm / std::sqrt(squares)) : 1.0;
      EXPECT_EQ(clip < 1, options.clip_norm.has_value());  // the bound is low enough
      for (const auto& [parameter, gradient] : training.accumulated) {
        std::vector<double> terms = one.values()[gradient].values();
        for (double& each : terms) each *= clip / scale;
        plain[parameter].update(options.optimizer, terms, static_cast<int>(numbers.step), numbers.learning_rate,
                                options.weight_decay);
        const std::vector<double> weight = one.kept(parameter).values();
        for (std::size_t i = 0; i < weight.size(); ++i)
          ASSERT_NEAR(weight[i], plain[parameter].weight[i], 1e-12)
              << described.name << " " << graph.name(parameter) << " step " << numbers.step;
      }
    }
  }
}

// Of micro-batches of equal size the mean of their losses; scaling the loss or skipping the step does not show in it.
TEST(Steps, TheLossIsTheMeanOverTheGlobalBatch) {
  for (const bool scaled : {false, true}) {
    const TrainingGraph training = make_training_graph(build_model(kSmallLlama, {.batch = 2, .seq = 4}).value(),
                                                       {.master_weights = false, .loss_scaling = scaled})
                                       .value();
    reference::OneDevice one(training, 3);
    one.begin({1, 0.01, scaled ? kInfinite : 1});
    double sum = 0;
    for (int m = 0; m < 3; ++m) {
      const auto values =
          reference::run_graph(training.graph, [&](TensorId id, reference::Block& block) { block = one.given(id, m); });
      sum += values[training.graph.results()[0]].values()[0];
    }
    one.play();
    const TensorId loss = training.graph.results()[1];
    EXPECT_EQ(training.graph.name(loss), "optimizer.sums.loss");
    EXPECT_NEAR(one.values()[loss].values()[0], sum / 3, 1e-12);
  }
}

}  // namespace
}  // namespace weft
