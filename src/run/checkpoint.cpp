// What a checkpoint consists of, and how one is read.
#include "run/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/read_file.h"
#include "run/checkpoint_names.h"
#include "run/json_text.h"

namespace weft::runtime {
namespace {

constexpr FileKind kIndexKind{"an index of a checkpoint (model.safetensors.index.json)", 100'000'000};

std::string in_words(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

double half(std::uint16_t bits) {  // IEEE 754 binary16
  const int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  const double size = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent == 31 ? (mantissa == 0 ? HUGE_VAL : std::nan(""))
                                       : std::ldexp(mantissa + 1024, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

double element(DType dtype, const std::byte* at) {
  const auto as = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::F64:
      return as(double{});
    case DType::F32:
      return as(float{});
    case DType::BF16:
      return std::bit_cast<float>(std::uint32_t{as(std::uint16_t{})} << 16);
    case DType::F16:
      return half(as(std::uint16_t{}));
    case DType::I64:
      return static_cast<double>(as(std::int64_t{}));
    case DType::I32:
      return as(std::int32_t{});
    default:
      return as(std::uint8_t{});
  }
}

std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const char *const first = name.data() + kStepPrefix.size(), *const last = name.data() + name.size();
  const auto [end, status] = std::from_chars(first, last, step);
  if (status != std::errc() || end != last) return std::nullopt;
  return step;
}

}  // namespace

std::vector<KeptTensor> kept_tensors(const Bundle& bundle) {
  const Graph& graph = bundle.graph;
  std::set<TensorId> sums;
  for (OpId op : graph.ops().ids())
    if (graph.kind(op) == OpKind::Accumulate || graph.kind(op) == OpKind::AccumulateLoss)
      sums.insert(graph.tensors()[graph.inputs(op)[0]].storage);
  std::map<TensorId, BufferId> held;
  for (BufferId id : bundle.program.buffers.ids()) {
    const Buffer& buffer = bundle.program.buffers[id];
    if (buffer.storage == id && (buffer.kind == BufferKind::Parameter || buffer.kind == BufferKind::State))
      held.emplace(buffer.tensor, id);
  }
  std::vector<KeptTensor> kept;
  for (const auto& [tensor, buffer] : held) {
    const Tensor& each = graph.tensors()[tensor];
    const bool leaf = !each.producer.valid() && each.storage == tensor;
    if (!leaf || sums.contains(tensor)) continue;
    const bool exact = bundle.numbers == Numbers::Float64 && is_floating(each.type.dtype);
    kept.push_back({tensor, buffer, graph.name(tensor), exact ? DType::F64 : each.type.dtype, each.type.shape});
  }
  return kept;
}

std::string model_digest(const Graph& graph) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (TensorId id : graph.tensors().ids()) {
    const Tensor& tensor = graph.tensors()[id];
    if (tensor.kind != TensorKind::Parameter || tensor.producer.valid()) continue;
    for (char c : graph.name(id) + in_words(tensor.type.shape))
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", hash);
}

std::vector<std::int64_t> steps_in(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    if (const auto step = step_of(entry.path().filename().string());
        step && std::filesystem::exists(entry.path() / kIndexName, ignored))
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> last_checkpoint(const std::string& directory) {
  const std::vector<std::int64_t> steps = steps_in(directory);
  if (steps.empty()) return std::nullopt;
  return directory + "/" + step_name(steps.back());
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const Bundle& bundle) {
  Checkpoint made;
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(path) / kIndexName, ignored)) {
    made.path_ = path;
  } else if (const std::optional<std::string> last = last_checkpoint(path)) {
    made.path_ = *last;
  } else {
    return error("{}: there is no checkpoint; it would be step-…/{}", path, kIndexName);
  }
  WEFT_TRY_OK(made.read_index());
  WEFT_TRY_OK(made.check(bundle));
  return made;
}

Status Checkpoint::read_index() {
  const std::string path = path_ + "/" + std::string(kIndexName);
  WEFT_TRY(const std::string text, read_file(path, kIndexKind));
  const Result<Json> index = parse_json(text);
  if (!index.ok()) return index.error().at(path);
  const Json *const metadata = index->find("metadata"), *const map = index->find("weight_map");
  if (!metadata || !map) return error("{}: has no metadata or no weight_map", path);
  const auto number = [&](std::string_view name) {
    const Json* const found = metadata->find(name);
    return found ? found->whole_number() : std::nullopt;
  };
  const auto word = [&](std::string_view name) {
    const Json* const found = metadata->find(name);
    return found && found->kind == Json::Kind::String ? found->text : std::string();
  };
  if (!number("step") || !number("samples"))
    return error("{}: metadata has no step or no samples; it is no checkpoint of weft run --save", path);
  position_ = {.steps = *number("step"), .samples = *number("samples")};
  model_ = word("model");
  digest_ = word("digest");
  seed_ = word("seed");

  std::map<std::string, std::size_t> opened;
  for (std::size_t i = 0; i < map->keys.size(); ++i) {
    const std::string& name = map->values[i].text;
    if (map->values[i].kind != Json::Kind::String || name.find('/') != std::string::npos || name.empty())
      return error("{}: weight_map of '{}': '{}' is not the name of a file beside it", path, map->keys[i], name);
    if (opened.contains(name)) continue;
    WEFT_TRY(SafetensorsFile file, SafetensorsFile::open(path_ + "/" + name));
    const std::map<std::string, std::string>& own = file.header().metadata;
    const auto step = own.find("step"), digest = own.find("digest");
    if (step == own.end() || digest == own.end() || step->second != std::to_string(position_.steps) ||
        digest->second != digest_)
      return error("{}/{}: belongs to another checkpoint than its index", path_, name);
    opened.emplace(name, files_.size());
    files_.push_back(std::move(file));
  }
  for (std::size_t file = 0; file < files_.size(); ++file)
    for (const FileTensor& tensor : files_[file].header().tensors)
      if (!places_.emplace(tensor.name, Place{file, tensor}).second)
        return error("{}: tensor '{}' is in two files", path_, tensor.name);
  return Ok{};
}

Status Checkpoint::check(const Bundle& bundle) const {
  const std::vector<KeptTensor> kept = kept_tensors(bundle);
  if (digest_ != model_digest(bundle.graph)) {
    std::string differs;
    for (const KeptTensor& each : kept) {
      const auto found = places_.find(each.name);
      if (found != places_.end() && found->second.tensor.shape == each.shape) continue;
      differs = found == places_.end() ? fmt::format(": it has no {}", each.name)
                                       : fmt::format(": its {} has shape {}, not {}", each.name,
                                                     in_words(found->second.tensor.shape), in_words(each.shape));
      break;
    }
    return error("{}: is a checkpoint of {}, and this run trains {}{}", path_, model_, bundle.model, differs);
  }
  for (const KeptTensor& each : kept) {
    const auto found = places_.find(each.name);
    if (found == places_.end())
      return error("{}: has no {}; it was saved by another --dtype or optimizer, or is not whole", path_, each.name);
    const FileTensor& there = found->second.tensor;
    if (there.shape != each.shape)
      return error("{}: {} has shape {}, and this run's has {}", path_, each.name, in_words(there.shape),
                   in_words(each.shape));
    if (there.dtype != each.dtype)
      return error("{}: {} is {}, and this run keeps it as {}; choose the --dtype that it was saved by", path_,
                   each.name, safetensors_name(there.dtype), safetensors_name(each.dtype));
  }
  if (seed_ != std::to_string(bundle.seed))
    return error("--seed {}: {} was trained with --seed {}", bundle.seed, path_, seed_);
  return Ok{};
}

LeafValues Checkpoint::values(const Bundle& bundle, LeafValues others) const {
  std::map<TensorId, Place> saved;
  for (const KeptTensor& each : kept_tensors(bundle)) saved.emplace(each.tensor, places_.at(each.name));
  return [saved = std::move(saved), files = files_, others = std::move(others)](
             TensorId leaf, std::int64_t step, std::int32_t micro_batch, const Region& part, std::span<double> filled) {
    const auto found = saved.find(leaf);
    if (found == saved.end()) return others(leaf, step, micro_batch, part, filled);
    const FileTensor& tensor = found->second.tensor;
    const std::byte* const bytes = files[found->second.file].bytes(tensor).data();
    const std::int64_t size = bits_of(tensor.dtype) / 8;
    std::size_t next = 0;
    for_each_index(part, tensor.shape,
                   [&](std::int64_t index) { filled[next++] = element(tensor.dtype, bytes + index * size); });
  };
}

}  // namespace weft::runtime
