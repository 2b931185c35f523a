#include "models/models.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/checked.h"
#include "base/read_file.h"
#include "base/units.h"
#include "models/model_words.h"
#include "models/onnx_import.h"
#include "models/zoo.h"

namespace weft {
namespace {

constexpr std::int64_t kDefaultSeqLimit = 8192;  // longer contexts are trained at this length first
constexpr FileKind kConfig{"a config.json of Hugging Face", 16 << 20};  // most have a few kilobytes

// A parsed spec: the configuration to build and the shape of its input.
struct Resolved {
  ModelInfo info;
  ModelConfig config;
  StepShape step;
};

bool is_json(std::string_view name) { return name.size() > 5 && name.ends_with(".json"); }
bool is_onnx(std::string_view name) { return name.size() > 5 && name.ends_with(".onnx"); }

// "name:overrides" or "path.json:overrides"; a path may contain colons before its suffix.
std::pair<std::string_view, std::string_view> cut_overrides(std::string_view spec) {
  const std::size_t suffix = std::min(spec.find(".json"), spec.find(".onnx"));
  const std::size_t colon = spec.find(':', suffix == std::string_view::npos ? 0 : suffix);
  if (colon == std::string_view::npos) return {spec, {}};
  return {spec.substr(0, colon), spec.substr(colon + 1)};
}

// Takes as=TYPE out of the overrides: it says how a file is read, before there is anything to override.
std::pair<std::string, std::string> cut_as(std::string_view overrides) {
  std::string as, rest;
  while (!overrides.empty()) {
    const std::size_t end = std::min(overrides.find(','), overrides.size());
    const std::string_view item = overrides.substr(0, end);
    overrides.remove_prefix(std::min(end + 1, overrides.size()));
    if (item.starts_with("as="))
      as = item.substr(3);
    else
      rest += (rest.empty() ? "" : ",") + std::string(item);
  }
  return {as, rest};
}

Result<Resolved> find(std::string_view name, std::string_view as) {
  Resolved resolved;
  if (is_json(name)) {
    const std::string path(name);
    WEFT_TRY(const std::string text, read_file(path, kConfig));
    WEFT_TRY(resolved.config, import_hf_config(text, path, as));
    resolved.info.name = path;
    resolved.info.source = path;
    return resolved;
  }
  if (!as.empty()) return error("{}: as={}: only a config.json is read as another type", name, as);
  WEFT_TRY(const ZooEntry* entry, find_in_zoo(name));
  resolved.config = entry->config;
  resolved.info.name = entry->name;
  resolved.info.source = entry->source;
  return resolved;
}

void describe(const TransformerConfig& config, ModelInfo& info) {
  info.kind = config.structure == Structure::Vision ? ModelKind::Vision : ModelKind::Language;
  info.counts_tokens = config.structure != Structure::Vision;
  info.layers = config.layers;
  info.experts = config.moe.experts;
  info.imbalance = config.moe.imbalance;
  if (config.structure == Structure::EncoderDecoder)
    info.layers += config.decoder_layers > 0 ? config.decoder_layers : config.layers;
  info.context = config.structure == Structure::Vision ? 0 : config.context;
  if (config.left_out_mtp > config.mtp)
    info.notes.push_back(fmt::format("{} module{} of multi-token prediction left out (mtp={} builds {})",
                                     config.left_out_mtp - config.mtp, config.left_out_mtp - config.mtp == 1 ? "" : "s",
                                     config.left_out_mtp, config.left_out_mtp == 1 ? "it" : "them"));
  if (config.left_out_images) info.notes.emplace_back("the encoder of images is left out");
  info.tied_embeddings = config.tied && config.structure != Structure::Vision;
}
void describe(const VisionConfig& config, ModelInfo& info) {
  info.kind = ModelKind::Vision;
  info.layers = std::accumulate(config.blocks.begin(), config.blocks.end(), std::int64_t{0});
}
void describe(const RecurrentConfig& config, ModelInfo& info) {
  info.kind = ModelKind::Recurrent;
  info.layers = config.net == RecurrentNet::Translator ? 2 * config.layers : config.layers;
  info.context = config.steps;
}
void describe(const RecommenderConfig&, ModelInfo& info) { info.kind = ModelKind::Recommender; }

Result<Resolved> resolve(std::string_view spec, ModelOptions options) {
  const auto [name, overrides] = cut_overrides(spec);
  if (name.empty()) return error("model '{}': name missing", spec);
  const auto [as, rest] = cut_as(overrides);
  WEFT_TRY(Resolved resolved, find(name, as));
  const std::string shown(name);
  if (Status applied = apply_overrides(rest, resolved.config, options); !applied.ok()) return applied.error().at(shown);
  const Status fits = std::visit([](const auto& config) { return check(config); }, resolved.config);
  if (!fits.ok()) return fits.error().at(shown);

  ModelInfo& info = resolved.info;
  std::visit([&](const auto& config) { describe(config, info); }, resolved.config);
  if (options.batch < 1 || options.batch > 1LL << 32)
    return error("{}: batch={}: must be between 1 and 2^32", shown, options.batch);
  if (options.seq && info.context == 0) return error("{}: seq={}: the model has no sequence", shown, *options.seq);
  if (options.seq && (*options.seq < 1 || *options.seq > 1LL << 32))
    return error("{}: seq={}: must be between 1 and 2^32", shown, *options.seq);
  if (!is_floating(options.dtype))
    return error("{}: dtype {}: must be a floating-point type", shown, name_of(options.dtype));
  info.batch = options.batch;
  if (info.context > 0) info.seq = options.seq.value_or(std::min(info.context, kDefaultSeqLimit));
  resolved.step = {options.batch, info.seq, options.dtype};
  return resolved;
}

void build(GraphBuilder& builder, const TransformerConfig& config, const StepShape& step) {
  build_transformer(builder, config, step);
}
void build(GraphBuilder& builder, const VisionConfig& config, const StepShape& step) {
  build_vision(builder, config, step);
}
void build(GraphBuilder& builder, const RecurrentConfig& config, const StepShape& step) {
  build_recurrent(builder, config, step);
}
void build(GraphBuilder& builder, const RecommenderConfig& config, const StepShape& step) {
  build_recommender(builder, config, step);
}

// Sums of parameters and of bytes over the graph must fit into 64 bits.
Status check_total(const Graph& graph) {
  constexpr std::int64_t kMostElements = 1LL << 58;  // elements; 2^61 bytes of fp64
  std::int64_t total = 0;
  for (const Tensor& tensor : graph.tensors()) {
    const auto elements = checked_product(tensor.type.shape);
    const auto sum = elements ? checked_add(total, *elements) : std::nullopt;
    if (!sum || *sum > kMostElements) return error("the model has more than 2^58 elements in its tensors");
    total = *sum;
  }
  return Ok{};
}

// An ONNX file: the overrides bind its symbolic dimensions ("batch=8,seq=128").
Result<Model> load_onnx(std::string_view name, std::string_view overrides, const ModelOptions& options) {
  OnnxOptions import{.batch = options.batch, .dims = {}, .opaque = options.opaque};
  if (options.seq)
    return error("{}: --seq: an ONNX file has its own sizes; bind a symbolic one with {}:NAME=SIZE", name, name);
  while (!overrides.empty()) {
    const std::size_t comma = std::min(overrides.find(','), overrides.size());
    const std::string_view item = overrides.substr(0, comma);
    overrides.remove_prefix(std::min(comma + 1, overrides.size()));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return error("{}: '{}': write dimension=size", name, item);
    const Result<std::int64_t> size = parse_integer(item.substr(equals + 1), item.substr(0, equals));
    if (!size.ok()) return size.error().at(name);
    import.dims[std::string(item.substr(0, equals))] = *size;
  }
  WEFT_TRY(Graph graph, import_onnx(std::string(name), import));
  if (Status fits = check_total(graph); !fits.ok()) return fits.error().at(name);
  ModelInfo info;
  info.name = info.source = std::string(name);
  info.kind = ModelKind::Imported;
  info.batch = import.dims.contains("batch") ? import.dims.at("batch") : options.batch;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.kind == TensorKind::Parameter) info.weights = tensor.type.dtype;
  return Model{std::move(info), std::move(graph)};
}

}  // namespace

std::string_view name_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::Language:
      return "language";
    case ModelKind::Vision:
      return "vision";
    case ModelKind::Recurrent:
      return "recurrent";
    case ModelKind::Recommender:
      return "recommender";
    case ModelKind::Imported:
      return "imported";
  }
  return "?";
}

Result<Model> load_model(std::string_view spec, const ModelOptions& options) {
  if (const auto [name, overrides] = cut_overrides(spec); is_onnx(name)) return load_onnx(name, overrides, options);
  WEFT_TRY(Resolved resolved, resolve(spec, options));
  GraphBuilder builder{std::string(spec)};
  std::visit([&](const auto& config) { build(builder, config, resolved.step); }, resolved.config);
  Result<Graph> graph = std::move(builder).freeze();
  if (!graph.ok()) return graph.error().at(resolved.info.name);
  if (Status fits = check_total(*graph); !fits.ok()) return fits.error().at(resolved.info.name);
  return Model{std::move(resolved.info), std::move(graph).value()};
}

Result<Graph> build_model(std::string_view spec, const ModelOptions& options) {
  WEFT_TRY(Model model, load_model(spec, options));
  return std::move(model.graph);
}

Result<ModelConfig> configuration_of(std::string_view spec) {
  if (is_onnx(cut_overrides(spec).first)) return error("model {}: an ONNX file has a graph and no configuration", spec);
  WEFT_TRY(Resolved resolved, resolve(spec, {}));
  return std::move(resolved.config);
}

Result<ModelInfo> describe_model(std::string_view spec, const ModelOptions& options) {
  if (is_onnx(cut_overrides(spec).first)) {
    WEFT_TRY(Model model, load_model(spec, options));
    return std::move(model.info);
  }
  WEFT_TRY(Resolved resolved, resolve(spec, options));
  return std::move(resolved.info);
}

std::string with_override(std::string_view spec, std::string_view key, std::string_view value) {
  const bool has_any = cut_overrides(spec).first.size() < spec.size();
  return fmt::format("{}{}{}={}", spec, has_any ? "," : ":", key, value);
}

bool has_override(std::string_view spec, std::string_view key) {
  const std::string items = fmt::format(",{}", cut_overrides(spec).second);
  return items.find(fmt::format(",{}=", key)) != std::string::npos;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo()) names.push_back(entry.name);
  return names;
}

std::vector<std::string> aliases_of(std::string_view model_name) {
  const Result<const ZooEntry*> entry = find_in_zoo(model_name);
  return entry.ok() ? (*entry)->aliases : std::vector<std::string>{};
}

}  // namespace weft
