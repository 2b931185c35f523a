#include "run/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "run/json_text.h"

namespace weft::runtime {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kLongestHeader = 100'000'000;  // what the format's own reader accepts
constexpr std::size_t kMostDims = 16;

struct NamedType {
  DType dtype;
  std::string_view name;
};
constexpr NamedType kTypes[] = {{DType::F64, "F64"}, {DType::F32, "F32"}, {DType::BF16, "BF16"}, {DType::F16, "F16"},
                                {DType::I64, "I64"}, {DType::I32, "I32"}, {DType::U8, "U8"}};

std::optional<DType> type_named(std::string_view name) {
  for (const NamedType& each : kTypes)
    if (each.name == name) return each.dtype;
  return std::nullopt;
}

Result<FileTensor> tensor_in(const std::string& name, const Json& json) {
  FileTensor tensor{.name = name};
  const Json *const dtype = json.find("dtype"), *const shape = json.find("shape"),
                    *const offsets = json.find("data_offsets");
  if (!dtype || !shape || !offsets || json.values.size() != 3)
    return error("tensor '{}': has not just dtype, shape and data_offsets", name);
  const std::optional<DType> type = type_named(dtype->text);
  if (!type || dtype->kind != Json::Kind::String)
    return error("tensor '{}': dtype '{}' is none of F64, F32, BF16, F16, I64, I32, U8", name, dtype->text);
  tensor.dtype = *type;
  if (shape->kind != Json::Kind::List || shape->values.size() > kMostDims)
    return error("tensor '{}': the shape is not a list of at most {} numbers", name, kMostDims);
  for (const Json& each : shape->values) {
    const std::optional<std::int64_t> extent = each.whole_number();
    if (!extent) return error("tensor '{}': the shape has '{}', which is not a whole number", name, each.text);
    tensor.shape.push_back(*extent);
  }
  const auto offset = [&](std::size_t i) { return offsets->values[i].whole_number(); };
  if (offsets->kind != Json::Kind::List || offsets->values.size() != 2 || !offset(0) || !offset(1))
    return error("tensor '{}': data_offsets are not two whole numbers", name);
  tensor.begin = *offset(0);
  tensor.end = *offset(1);
  const std::optional<std::int64_t> bytes = bytes_of_tensor(tensor.dtype, tensor.shape);
  if (!bytes || tensor.begin > tensor.end || tensor.end - tensor.begin != *bytes)
    return error("tensor '{}': {} of shape [{}] do not fit the bytes from {} to {}", name, dtype->text,
                 fmt::join(tensor.shape, ", "), tensor.begin, tensor.end);
  return tensor;
}

Result<SafetensorsHeader> header_in(std::string_view text, std::int64_t data_bytes) {
  WEFT_TRY(const Json json, parse_json(text));
  if (text.empty() || text.front() != '{' || json.kind != Json::Kind::Object)
    return error("the header is not a JSON object");
  SafetensorsHeader header;
  for (std::size_t i = 0; i < json.keys.size(); ++i) {
    if (json.keys[i] == "__metadata__") {
      if (json.values[i].kind != Json::Kind::Object) return error("__metadata__ is not an object");
      for (std::size_t m = 0; m < json.values[i].keys.size(); ++m) {
        const Json& value = json.values[i].values[m];
        if (value.kind != Json::Kind::String) return error("metadata '{}' is not a string", json.values[i].keys[m]);
        header.metadata[json.values[i].keys[m]] = value.text;
      }
      continue;
    }
    WEFT_TRY(FileTensor tensor, tensor_in(json.keys[i], json.values[i]));
    header.tensors.push_back(std::move(tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t end = 0;
  for (const FileTensor& each : header.tensors) {
    if (each.begin != end)
      return error("tensor '{}': begins at byte {}, {}", each.name, each.begin,
                   each.begin < end ? "inside the one before it" : "after a gap");
    end = each.end;
  }
  if (end != data_bytes)
    return error("its tensors take {} bytes, and {} are there; the file is {}", end, data_bytes,
                 data_bytes < end ? "cut off" : "longer than it says");
  return header;
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const NamedType& each : kTypes)
    if (each.dtype == dtype) return each.name;
  return {};
}

std::optional<std::int64_t> bytes_of_tensor(DType dtype, const Shape& shape) {
  std::int64_t bytes = bits_of(dtype) / 8;
  for (std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  return bytes;
}

std::string print(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata)
      json += fmt::format("{}{}:{}", json.back() == '{' ? "" : ",", json_string(key), json_string(value));
    json += '}';
  }
  for (const FileTensor& each : header.tensors)
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", json.size() > 1 ? "," : "",
                        json_string(each.name), safetensors_name(each.dtype), fmt::join(each.shape, ","), each.begin,
                        each.end);
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');  // so that tensors begin at a multiple of 8
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json;
}

Result<SafetensorsHeader> parse_safetensors(std::string_view text, std::int64_t file_bytes) {
  if (static_cast<std::int64_t>(text.size()) < kLengthBytes)
    return error("has {} bytes, which is no safetensors file", text.size());
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
  if (length > static_cast<std::uint64_t>(kLongestHeader))
    return error("the header would have {} bytes; this is no safetensors file", length);
  const std::string_view json = text.substr(kLengthBytes, length);
  if (json.size() < length) return error("is cut off within its header");
  return header_in(json, file_bytes - kLengthBytes - static_cast<std::int64_t>(length));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return error("{}: {}", path, std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(known ? status.st_size : 0);
  void* const memory = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  const int problem = errno;
  ::close(descriptor);
  if (!known) return error("{}: is not a file", path);
  if (size == 0) return error("{}: is empty", path);
  if (memory == MAP_FAILED) return error("{}: {}", path, std::strerror(problem));
  SafetensorsFile file;
  file.memory_ = std::shared_ptr<const void>(memory, [size](const void* at) { ::munmap(const_cast<void*>(at), size); });
  const std::string_view text(static_cast<const char*>(memory), size);
  Result<SafetensorsHeader> header = parse_safetensors(text, static_cast<std::int64_t>(size));
  if (!header.ok()) return header.error().at(path);
  file.header_ = std::move(header).value();
  std::int64_t data = 0;
  for (const FileTensor& each : file.header_.tensors) data = std::max(data, each.end);
  file.data_ = reinterpret_cast<const std::byte*>(text.data()) + (size - static_cast<std::size_t>(data));
  return file;
}

}  // namespace weft::runtime
