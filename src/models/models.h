// Where graphs come from: the zoo, Hugging Face config.json files, ONNX files.
//
//   build_model("llama3-70b", {})                        a zoo name, one sample at the model's usual sequence
//   build_model("llama3-70b:layers=12,vocab=32000", {})  with overrides
//   build_model("path/config.json", {})                  a Hugging Face configuration, overrides allowed too
//   build_model("model.onnx:batch=8,seq=128", {})        an ONNX file; overrides bind its symbolic dimensions
//
// The result is the forward graph up to the loss. Not here: backward and optimizer (graph/training.h), weights.
// Cost: linear in the number of operators, a few milliseconds for the largest model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace weft {

struct ModelOptions {
  std::int64_t batch = 1;                // samples per step; published figures are for one
  std::optional<std::int64_t> seq = {};  // tokens per sample; the model's default when absent
  DType dtype = DType::BF16;             // of parameters and activations; an ONNX file has its own
  // ONNX operators without known axes to import as unsplittable, with the FLOPs of one call; "*": all of them.
  std::map<std::string, double> opaque = {};
};

enum class ModelKind : std::uint8_t { Language, Vision, Recurrent, Recommender, Imported };
std::string_view name_of(ModelKind kind);

// What is known of a model besides its graph.
struct ModelInfo {
  std::string name;  // canonical: "gpt2-124m" also when asked for "gpt2"; a file's path
  ModelKind kind{};
  bool counts_tokens = false;         // batches are counted in tokens (language models), else in samples
  std::int64_t layers = 0;            // repeated blocks: transformer layers, residual blocks, recurrent layers
  std::int64_t experts = 0;           // of a layer that has any; 0: the model is dense
  double imbalance = 1;               // of the load of devices that experts are spread over
  std::int64_t context = 0;           // longest sequence the model was made for; 0: it has no sequence
  std::int64_t seq = 0;               // of this graph; 0: none
  std::int64_t batch = 1;             // of this graph
  std::optional<DType> weights = {};  // the type an imported file stores them in; none: any, as asked for
  bool tied_embeddings = false;  // the head multiplies by the embedding table (the graph has one parameter, used twice)
  std::string source;            // where the shapes are published
  std::vector<std::string> notes = {};  // what of a file is left out

  bool operator==(const ModelInfo&) const = default;
};

// A model and what is known of it.
struct Model {
  ModelInfo info;
  Graph graph;
};

// The errors name the model, the override or the field at fault, and suggest the nearest known name.
Result<Model> load_model(std::string_view spec, const ModelOptions& options = {});
// The graph alone.
Result<Graph> build_model(std::string_view spec, const ModelOptions& options = {});
// What is known without building the graph.
Result<ModelInfo> describe_model(std::string_view spec, const ModelOptions& options = {});

// "llama3-70b" → "llama3-70b:layers=3". Of two overrides with one key the last counts.
std::string with_override(std::string_view spec, std::string_view key, std::string_view value);
bool has_override(std::string_view spec, std::string_view key);

// Canonical names of the zoo, in the order of families and sizes; and other spellings of one name.
std::vector<std::string> model_names();
std::vector<std::string> aliases_of(std::string_view model_name);

}  // namespace weft
