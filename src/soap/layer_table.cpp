#include "soap/layer_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "forecast/forecast.h"
#include "problem/parallel.h"
#include "soap/layout_choices.h"
#include "strategy/layers.h"

namespace weft {
namespace {

std::vector<int> prime_factors(int number) {
  std::vector<int> factors;
  for (int prime = 2; number > 1; ++prime)
    for (; number % prime == 0; number /= prime) factors.push_back(prime);
  return factors;
}

// Every tensor-parallel degree on this many devices, with every ZeRO stage, with and without recomputation.
std::vector<LayerOption> options_on(int devices) {
  std::vector<LayerOption> options;
  for (int tp = 1; tp <= devices; ++tp) {
    if (devices % tp != 0) continue;
    for (int zero : {0, 1, 3}) {
      if (zero > 0 && devices == tp) continue;
      for (bool recompute : {false, true}) options.push_back({tp, devices / tp, zero, recompute});
    }
  }
  return options;
}

// A short instance of the model, simulated with one micro-batch and with two.
struct Played {
  Picoseconds once = 0, twice = 0;
  HeldBytes held;                    // with one
  Bytes overhead;                    // of the device, in addition to what is allocated
  std::optional<TensorType> border;  // the tensor passed from layer to layer
};

class TableMaker {
 public:
  TableMaker(const LayerTableRequest& request, std::int64_t micro_batches)
      : job_(*request.job),
        cost_(request.cost),
        clock_(request.clock),
        samples_(*job_.global_batch() / micro_batches) {}

  Result<LayerTable> run(int devices) {
    LayerTable table;
    table.layers = static_cast<std::size_t>(job_.model.layers);
    for (int group = 1; group <= devices; ++group)
      if (devices % group == 0)
        for (const LayerOption& option : options_on(group)) table.options.push_back(option);
    // Every option with one layer and with two.
    std::vector<Result<Played>> played(2 * table.options.size(), error("not played"));
    const auto stops = [&] { return clock_ && clock_->after(0) != StoppedBy::Itself; };
    for_each_index(played.size(), 0, 1, [&](std::size_t i) {
      if (!stops()) played[i] = play(table.options[i / 2], 1 + static_cast<int>(i % 2));
    });
    if (stops()) return error("stopped before every option was simulated");
    std::string why = "no option";
    const std::vector<LayerOption> options = std::exchange(table.options, {});
    for (std::size_t i = 0; i < options.size(); ++i) {
      const Result<Played>&one = played[2 * i], &two = played[2 * i + 1];
      if (one.ok() && two.ok())
        add(options[i], *one, *two, table);
      else
        why = (one.ok() ? two : one).error().message;
    }
    if (table.options.empty()) return error("{}: no way to split a layer compiles: {}", job_.words.model, why);
    add_changes(table);
    return table;
  }

  Result<Played> play(const LayerOption& option, int layers) const {
    if (samples_ % option.dp != 0) return error("{} samples do not divide over dp={}", samples_, option.dp);
    WEFT_TRY(TrainingJob job, with_model(job_, with_override(job_.words.model, "layers", std::to_string(layers))));
    job.words.global_batch = samples_;
    job.devices.clear();
    for (std::int64_t i = 0; i < option.devices(); ++i) job.devices.push_back(job_.device_at(i).index());
    Parallelism split;
    split.tp = split.etp = option.tp;
    split.dp = split.fsdp = option.dp;
    split.zero = option.zero;
    split.sequence_parallel = option.tp > 1;
    split.recompute = option.recompute ? Recompute::Full : Recompute::None;
    split.micro_batch = split.last_micro_batch = samples_ / option.dp;
    WEFT_TRY(const Plan made, make_plan(std::make_shared<const TrainingJob>(std::move(job)), choose_strategy(split)));
    WEFT_TRY(const PlayedPlan once, play_plan(made, cost_));
    const Forecast forecast = judge(made, once);
    // The program is the same for any number of micro-batches; only the schedule changes.
    const ScheduleChoice& chosen = made.resolved.schedule;
    WEFT_TRY(Schedule schedule, make_schedule({chosen.name, static_cast<std::int32_t>(chosen.ranks), 2,
                                               static_cast<std::int32_t>(chosen.chunks)}));
    WEFT_TRY(const PlayedProgram twice,
             play_compiled(made, made.stack(), {once.compiled.program, std::move(schedule)}, cost_));
    return Played{once.run.makespan, twice.run.makespan, forecast.fullest()->allocated,
                  forecast.fullest()->device_total - forecast.fullest()->allocated.total(), border_of(made.graph())};
  }

 private:
  static Bytes states(const HeldBytes& held) { return held.parameters + held.gradients + held.optimizer; }
  static Bytes others(const HeldBytes& held) { return held.activations + held.buffers; }
  static Picoseconds positive(Picoseconds time) { return std::max<Picoseconds>(0, time); }
  static Bytes positive(Bytes bytes) { return std::max(Bytes{0}, bytes); }

  void add(const LayerOption& option, const Played& one, const Played& two, LayerTable& table) {
    if (!shape_) shape_ = one.border;
    const Picoseconds once = two.once - one.once, twice = two.twice - one.twice;
    LayerCost layer{positive(twice - once), positive(2 * once - twice), positive(states(two.held) - states(one.held)),
                    positive(others(two.held) - others(one.held))};
    const Picoseconds rest_once = one.once - once, rest_twice = one.twice - twice;
    const Bytes rest = positive(states(one.held) - layer.states);
    // Embedding and head share the remaining weights equally; time and memory of the logits belong to the head.
    table.first.push_back({0, 0, rest / 2, {}});
    table.last.push_back({positive(rest_twice - rest_once), positive(2 * rest_once - rest_twice), rest - rest / 2,
                          positive(others(one.held) - layer.activations)});
    table.options.push_back(option);
    table.layer.push_back(layer);
  }

  static std::optional<TensorType> border_of(const Graph& graph) {
    const Layers layers = find_layers(graph);
    for (OpId op : graph.ops().ids()) {
      if (graph.ops()[op].phase != Phase::Forward || layers.of[op] < 0) continue;
      for (TensorId input : graph.inputs(op)) {
        const Tensor& tensor = graph.tensors()[input];
        if (tensor.producer.valid() && layers.of[tensor.producer] != layers.of[op]) return tensor.type;
      }
    }
    return std::nullopt;
  }

  // Samples are split over the outer mesh axes; between options they are gathered or split further.
  void add_changes(LayerTable& table) {
    const std::size_t count = table.options.size();
    table.change.assign(count, std::vector<Picoseconds>(count, 0));
    if (!shape_) return;
    for (std::size_t from = 0; from < count; ++from)
      for (std::size_t to = 0; to < count; ++to) {
        const LayerOption &a = table.options[from], &b = table.options[to];
        if (a.dp == b.dp || a.devices() != b.devices()) continue;
        std::vector<MeshAxis> axes;
        std::vector<DeviceId> devices;
        for (int size : prime_factors(a.devices())) axes.push_back({fmt::format("a{}", axes.size()), size});
        for (int i = 0; i < a.devices(); ++i) devices.push_back(job_.device_at(i));
        const Result<Mesh> mesh = Mesh::make(axes, devices);
        if (!mesh.ok()) continue;
        TimePrices prices(*job_.cluster, cost_, *mesh);
        const auto layout = [&](int dp) {
          Shape shape = shape_->shape;
          shape.front() = samples_;
          Layout made = replicated(MeshId(0), *mesh, shape);
          int parts = 1;
          std::vector<Cut>& cuts = made.dims.front().front().cuts;
          for (std::size_t m = 0; m < axes.size() && parts < dp; ++m) {
            cuts.push_back({static_cast<int>(m)});
            parts *= axes[m].size;
          }
          canonicalize(made, *mesh);
          return made;
        };
        table.change[from][to] =
            moved(layout(a.dp), layout(b.dp), *mesh, prices) + moved(layout(b.dp), layout(a.dp), *mesh, prices);
      }
  }
  Picoseconds moved(const Layout& from, const Layout& to, const Mesh& mesh, TimePrices& prices) const {
    const Result<std::vector<ReshardStep>> steps = reshard(from, to, mesh);
    if (!steps.ok()) return 0;
    Picoseconds time = 0;
    const Layout* before = &from;
    for (const ReshardStep& step : *steps) {
      if (step.collective != Collective::Slice) time += prices.move(step, *before, mesh, shape_->dtype);
      before = &step.to;
    }
    return time;
  }

  const TrainingJob& job_;
  const CostModel& cost_;
  const SearchClock* clock_;
  const std::int64_t samples_;       // of a micro-batch of all replicas
  std::optional<TensorType> shape_;  // of the tensor between layers
};

}  // namespace

Result<LayerTable> make_layer_table(const LayerTableRequest& request, std::int64_t micro_batches) {
  const std::optional<std::int64_t> samples = request.job->global_batch();
  if (!samples) return error("a table of layers needs a global batch");
  if (micro_batches < 1 || *samples % micro_batches != 0)
    return error("{} samples do not divide into {} micro-batches", *samples, micro_batches);
  const int devices = request.devices > 0 ? request.devices : static_cast<int>(request.job->device_count());
  return TableMaker(request, micro_batches).run(devices);
}

Result<Bytes> layer_memory_limit(const LayerTableRequest& request, Bytes budget) {
  const TableMaker maker(request, *request.job->global_batch());
  WEFT_TRY(const Played played, maker.play({1, 1, 0, true}, 1));
  return budget - played.overhead;
}

}  // namespace weft
