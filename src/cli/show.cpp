// weft show: models and clusters as Weft sees them.
#include "cluster/show.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/plan_arguments.h"
#include "cluster/cluster.h"
#include "graph/dot.h"
#include "graph/text.h"
#include "graph/training.h"
#include "models/models.h"
#include "models/show.h"

namespace weft {
namespace {

struct ModelArguments {
  std::string name, dtype = "bf16", form = "table";
  std::int64_t batch = 1;
  std::optional<std::int64_t> seq;
  std::vector<std::string> opaque;  // "OP=FLOPS"
  bool json = false, training = false;
};

Result<DType> parse_dtype(const std::string& name) {
  const auto dtype = dtype_named(name);
  if (!dtype || !is_floating(*dtype)) return error("--dtype '{}': write bf16, fp16, fp32 or fp8", name);
  return *dtype;
}

Result<std::string> show_model(const ModelArguments& arguments) {
  WEFT_TRY(const DType dtype, parse_dtype(arguments.dtype));
  ModelOptions options{.batch = arguments.batch, .seq = arguments.seq, .dtype = dtype};
  for (const std::string& item : arguments.opaque) {
    const std::size_t equals = std::min(item.find('='), item.size());
    double flops = 0;
    if (equals < item.size()) {
      const char* first = item.data() + equals + 1;
      const auto [rest, status] = std::from_chars(first, item.data() + item.size(), flops);
      if (status != std::errc() || rest != item.data() + item.size() || !(flops >= 0))
        return error("--opaque '{}': write OPERATOR or OPERATOR=FLOPS", item);
    }
    options.opaque[item.substr(0, equals)] = flops;
  }
  WEFT_TRY(Model model, load_model(arguments.name, options));
  if (arguments.form == "table") return arguments.json ? to_text(to_json(model)) : describe(model);
  if (arguments.training) {
    WEFT_TRY(TrainingGraph training, make_training_graph(std::move(model.graph)));
    model.graph = std::move(training.graph);
  }
  return arguments.form == "dot" ? to_dot(model.graph) : print(model.graph, {.axes = true});
}

void add_show_model(CLI::App& show, Chosen& chosen) {
  const auto arguments = std::make_shared<ModelArguments>();
  CLI::App* command = show.add_subcommand("model", "A model: parameters, FLOPs, activations, operators, module tree.");
  command->footer(
      "Examples:\n"
      "  weft show model llama3-70b --seq 4096\n"
      "  weft show model llama3-70b:layers=12,vocab=32000 --json     a zoo model with some sizes changed\n"
      "  weft show model path/to/config.json                         a Hugging Face configuration\n"
      "  weft show model resnet50.onnx                               an ONNX file\n"
      "  weft show model gpt2 --form text --training                 every operator of a training step\n");
  command->add_option("model", arguments->name, "zoo name with overrides, config.json or .onnx file")->required();
  command->add_option("--batch", arguments->batch, "samples")->capture_default_str();
  add_sequence(*command, arguments->seq);
  add_as(*command, arguments->name);
  command->add_option("--dtype", arguments->dtype, "of parameters and activations")->capture_default_str();
  command->add_option("--form", arguments->form, "table, text (every operator) or dot (Graphviz)")
      ->capture_default_str()
      ->check(CLI::IsMember({"table", "text", "dot"}));
  command->add_option("--opaque", arguments->opaque,
                      "ONNX operators to take as unsplittable: OPERATOR[=FLOPS], or * for every unknown one");
  command->add_flag("--training", arguments->training, "with text or dot: backward and optimizer too");
  command->add_flag("--json", arguments->json, "one JSON object");
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(show_model(*arguments)); }; });
}

struct ClusterArguments {
  std::string name;
  bool json = false, yaml = false;
};

Result<std::string> show_cluster(const ClusterArguments& arguments) {
  WEFT_TRY(const Cluster cluster, parse_cluster(arguments.name));
  if (arguments.yaml) return to_yaml(cluster);
  return arguments.json ? to_text(to_json(cluster)) : describe(cluster);
}

void add_show_cluster(CLI::App& show, Chosen& chosen) {
  const auto arguments = std::make_shared<ClusterArguments>();
  CLI::App* command =
      show.add_subcommand("cluster", "A cluster: its nodes, links and fabric, and where each number comes from.");
  command->footer(
      "Examples:\n"
      "  weft show cluster dgx-h100:16             16 nodes of a preset\n"
      "  weft show cluster dgx1-v100:2+p100x8:6    a mixed cluster\n"
      "  weft show cluster my-cluster.yaml         a file; --yaml prints one to start from\n"
      "  weft show cluster topology.xml:4          4 nodes of an NCCL topology dump\n"
      "  weft show cluster topo.txt:4,device=h100-sxm    what nvidia-smi topo -m prints\n");
  command->add_option("cluster", arguments->name, "preset:nodes, several joined by +, or a YAML, XML or TXT file")
      ->required();
  command->add_flag("--json", arguments->json, "one JSON object");
  command->add_flag("--yaml", arguments->yaml, "the cluster as a file that can be edited and read back")
      ->excludes("--json");
  command->callback([arguments, &chosen] { chosen = [arguments] { return finish(show_cluster(*arguments)); }; });
}

}  // namespace

void add_show(CLI::App& app, Chosen& chosen) {
  CLI::App* show = app.add_subcommand("show", "Show a model, a cluster, a strategy, a program or a profile.");
  show->require_subcommand(1);
  add_show_model(*show, chosen);
  add_show_cluster(*show, chosen);
  add_show_strategy(*show, chosen);
  add_show_program(*show, chosen);
  add_show_profile(*show, chosen);
  show->add_subcommand("models", "The models of the zoo.")->callback([&chosen] {
    chosen = [] { return print_text(list_models()); };
  });
  show->add_subcommand("clusters", "The cluster presets.")->callback([&chosen] {
    chosen = [] { return print_text(describe_presets()); };
  });
}

}  // namespace weft
