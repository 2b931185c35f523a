// Files of tensors in the safetensors format (huggingface.co/docs/safetensors): the length of a header in 8 bytes, least
// first; the header, a JSON object {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
// "__metadata__": {"key": "value"}}; then the tensors' bytes, one after the other without gaps, row-major.
//
// Reading is strict: what is cut off, overlaps, leaves gaps or has bytes that do not fit its shape is refused with the
// reason. Knows nothing of libtorch.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/dtype.h"
#include "graph/signature.h"

namespace weft::runtime {

// The type's name in a header, "BF16"; empty where the format has none.
std::string_view safetensors_name(DType dtype);

struct FileTensor {
  std::string name;
  DType dtype{};
  Shape shape = {};
  std::int64_t begin = 0, end = 0;  // bytes, counted from the end of the header

  bool operator==(const FileTensor&) const = default;
};

struct SafetensorsHeader {
  std::vector<FileTensor> tensors;  // as they lie in the file
  std::map<std::string, std::string> metadata;

  bool operator==(const SafetensorsHeader&) const = default;
};

// All that stands before the tensors' bytes, a multiple of 8 bytes long.
std::string print(const SafetensorsHeader& header);
// Of a file of `file_bytes` in all, given its text from the beginning to at least the end of the header. Errors say what
// is wrong, not where.
Result<SafetensorsHeader> parse_safetensors(std::string_view text, std::int64_t file_bytes);

// Elements times their size; none where that is more than a file can hold.
std::optional<std::int64_t> bytes_of_tensor(DType dtype, const Shape& shape);

// A file of tensors, mapped into memory for as long as it lives: only what is read is loaded.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const SafetensorsHeader& header() const { return header_; }
  std::span<const std::byte> bytes(const FileTensor& tensor) const {
    return {data_ + tensor.begin, static_cast<std::size_t>(tensor.end - tensor.begin)};
  }

 private:
  SafetensorsFile() = default;

  SafetensorsHeader header_;
  std::shared_ptr<const void> memory_;
  const std::byte* data_ = nullptr;  // after the header
};

}  // namespace weft::runtime
