#include "models/zoo.h"

#include <cctype>
#include <unordered_map>

#include "base/check.h"
#include "base/suggest.h"

namespace weft {
namespace {

// Case, dashes, underscores and spaces are ignored in model names.
std::string key_of(std::string_view name) {
  std::string key;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ') key.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return key;
}

const std::unordered_map<std::string, const ZooEntry*>& index() {
  static const auto table = [] {
    std::unordered_map<std::string, const ZooEntry*> by_key;
    for (const ZooEntry& entry : zoo()) {
      const auto add = [&](const std::string& name) {
        const auto [at, fresh] = by_key.try_emplace(key_of(name), &entry);
        WEFT_CHECK(fresh || at->second == &entry, "{} names both {} and {}", name, at->second->name, entry.name);
      };
      add(entry.name);
      for (const std::string& alias : entry.aliases) add(alias);
    }
    return by_key;
  }();
  return table;
}

}  // namespace

std::vector<ZooEntry> other_zoo() {
  std::vector<ZooEntry> zoo;
  const std::string torchvision = "torchvision.models";
  zoo.push_back({"lenet",
                 {"lenet5"},
                 VisionConfig{.net = VisionNet::LeNet, .image = 32, .channels = 1, .classes = 10},
                 "LeCun et al. 1998, figure 2, with C3 fully connected"});
  zoo.push_back({"alexnet", {}, VisionConfig{.net = VisionNet::AlexNet, .dropout = 0.5}, torchvision});
  zoo.push_back(
      {"vgg16", {}, VisionConfig{.net = VisionNet::Vgg, .blocks = {2, 2, 3, 3, 3}, .dropout = 0.5}, torchvision});
  zoo.push_back(
      {"vgg19", {}, VisionConfig{.net = VisionNet::Vgg, .blocks = {2, 2, 4, 4, 4}, .dropout = 0.5}, torchvision});
  zoo.push_back({"resnet18", {}, VisionConfig{.blocks = {2, 2, 2, 2}}, torchvision});
  zoo.push_back({"resnet34", {}, VisionConfig{.blocks = {3, 4, 6, 3}}, torchvision});
  zoo.push_back({"resnet50", {}, VisionConfig{.blocks = {3, 4, 6, 3}, .bottleneck = true}, torchvision});
  zoo.push_back({"resnet101", {}, VisionConfig{.blocks = {3, 4, 23, 3}, .bottleneck = true}, torchvision});
  zoo.push_back({"resnet152", {}, VisionConfig{.blocks = {3, 8, 36, 3}, .bottleneck = true}, torchvision});
  zoo.push_back({"wide-resnet50-2",
                 {"wrn50-2"},
                 VisionConfig{.blocks = {3, 4, 6, 3}, .bottleneck = true, .width = 128},
                 torchvision});
  zoo.push_back({"inception-v3",
                 {"inception"},
                 VisionConfig{.net = VisionNet::InceptionV3, .image = 299, .dropout = 0.5},
                 torchvision + " without the auxiliary classifier (aux=1 adds it)"});

  const auto vit = [](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t patch) {
    return TransformerConfig{.structure = Structure::Vision,
                             .layers = layers,
                             .hidden = hidden,
                             .heads = heads,
                             .norm = Norm::Layer,
                             .activation = Activation::Gelu,
                             .positions = Positions::Learned,
                             .qkv_bias = true,
                             .out_bias = true,
                             .mlp_bias = true,
                             .image = 224,
                             .patch = patch,
                             .classes = 1000};
  };
  const std::string vit_source = "Dosovitskiy et al. 2020, table 1; torchvision.models";
  zoo.push_back({"vit-b", {"vit-b-16", "vit-base", "vit-b/16"}, vit(12, 768, 12, 16), vit_source});
  zoo.push_back({"vit-l", {"vit-l-16", "vit-large", "vit-l/16"}, vit(24, 1024, 16, 16), vit_source});
  zoo.push_back({"vit-h", {"vit-h-14", "vit-huge", "vit-h/14"}, vit(32, 1280, 16, 14), vit_source});

  const std::string flexflow = "Jia et al. MLSys'19 (FlexFlow), table 3: 40 unrolled steps";
  zoo.push_back({"rnntc",
                 {},
                 RecurrentConfig{.net = RecurrentNet::Classifier, .layers = 4, .hidden = 1024, .vocab = 20000},
                 flexflow});
  zoo.push_back({"rnnlm",
                 {},
                 RecurrentConfig{.net = RecurrentNet::LanguageModel, .layers = 2, .hidden = 2048, .vocab = 10000},
                 flexflow + "; Penn Treebank vocabulary"});
  zoo.push_back({"nmt",
                 {},
                 RecurrentConfig{.net = RecurrentNet::Translator, .layers = 2, .hidden = 1024, .vocab = 32000},
                 flexflow + "; wordpiece vocabulary of Wu et al. 2016"});

  zoo.push_back({"dlrm",
                 {"dlrm-516m"},
                 RecommenderConfig{.tables = std::vector<std::int64_t>(8, 1'000'000),
                                   .width = 64,
                                   .bottom = {64, 512, 512, 64},
                                   .top = {1024, 1024, 1024, 1024, 1}},
                 "Duan et al. TPDS'24 (Proteus): 516 M parameters; FlexFlow's benchmark: 8 tables of a million rows"});
  zoo.push_back({"dlrm-mlperf",
                 {"dlrm-24b", "dlrm-criteo"},
                 RecommenderConfig{.tables = {39884406, 39043,    17289,    7420,     20263,  3,     7120, 1543, 63,
                                              38532951, 2953546,  403346,   10,       2208,   11938, 155,  4,    976,
                                              14,       39979771, 25641295, 39664984, 585935, 12972, 108,  36},
                                   .width = 128,
                                   .bottom = {13, 512, 256, 128},
                                   .top = {1024, 1024, 512, 256, 1},
                                   .dot_interaction = true},
                 "MLPerf training v0.7–v2.1: Criteo 1TB, at most 40 M rows per table"});
  return zoo;
}

const std::vector<ZooEntry>& zoo() {
  static const std::vector<ZooEntry> all = [] {
    std::vector<ZooEntry> entries = other_zoo();
    for (auto part : {language_zoo(), mixture_zoo()}) entries.insert(entries.end(), part.begin(), part.end());
    return entries;
  }();
  return all;
}

Result<const ZooEntry*> find_in_zoo(std::string_view name) {
  const auto found = index().find(key_of(name));
  if (found != index().end()) return found->second;
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo()) {
    names.push_back(entry.name);
    names.insert(names.end(), entry.aliases.begin(), entry.aliases.end());
  }
  const std::string suggestion = did_you_mean(name, names);
  return error("model '{}': not in the zoo{}", name,
               suggestion.empty() ? "; `weft show models` lists it, or give the path of a config.json or .onnx file"
                                  : suggestion);
}

}  // namespace weft
