#include "graph/notation.h"

#include <cctype>

namespace weft {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool done() const { return at_ == text_.size(); }
  bool take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  // A name: letters, digits and underscores, starting with a letter; empty when there is none.
  std::string name() {
    const std::size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_') &&
           (at_ > start || std::isalpha(static_cast<unsigned char>(text_[at_]))))
      ++at_;
    return std::string(text_.substr(start, at_ - start));
  }
  Error wrong(std::string_view expected) const {
    return error("notation '{}': expected {} at '{}'", text_, expected, text_.substr(at_));
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

Result<NotationDim> read_dim(Reader& reader) {
  NotationDim dim;
  if (reader.take("...")) {
    dim.ellipsis = true;
    return dim;
  }
  if (reader.take("1")) return dim;
  do {
    dim.factors.push_back(reader.name());
    if (dim.factors.back().empty()) return reader.wrong("an axis");
  } while (reader.take("."));
  if (reader.take("~")) {
    dim.kernel = reader.name();
    if (dim.kernel.empty() || dim.factors.size() != 1) return reader.wrong("axis~kernel");
  }
  return dim;
}

Result<NotationOperand> read_operand(Reader& reader) {
  NotationOperand operand;
  operand.name = reader.name();
  if (operand.name.empty()) return reader.wrong("an operand");
  if (!reader.take("[")) return reader.wrong("'['");
  if (!reader.take("]")) {
    do {
      WEFT_TRY(NotationDim dim, read_dim(reader));
      operand.dims.push_back(std::move(dim));
    } while (reader.take(","));
    if (!reader.take("]")) return reader.wrong("',' or ']'");
  }
  if (reader.take(":")) {
    operand.dtype = dtype_named(reader.name());
    if (!operand.dtype) return reader.wrong("an element type");
  }
  return operand;
}

}  // namespace

Result<Notation> parse_notation(std::string_view text) {
  Reader reader(text);
  Notation notation;
  bool outputs = false;
  for (reader.skip_spaces(); !reader.done(); reader.skip_spaces()) {
    if (!outputs && reader.take("->")) {
      outputs = true;
      continue;
    }
    WEFT_TRY(NotationOperand operand, read_operand(reader));
    (outputs ? notation.outputs : notation.inputs).push_back(std::move(operand));
  }
  if (!outputs || notation.outputs.empty()) return reader.wrong("'->' and an output");
  return notation;
}

}  // namespace weft
