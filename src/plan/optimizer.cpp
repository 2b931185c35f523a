#include "plan/optimizer.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/suggest.h"

namespace weft {

Result<OptimizerChoice> parse_optimizer(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  OptimizerChoice choice;
  std::vector<std::string> names;
  bool known = false;
  for (const OptimizerKind kind :
       {OptimizerKind::AdamW, OptimizerKind::Adam, OptimizerKind::Lamb, OptimizerKind::Momentum, OptimizerKind::Sgd}) {
    names.emplace_back(name_of(kind));
    if (names.back() == name) choice.kind = kind, known = true;
  }
  if (!known)
    return error("--optimizer '{}': write one of {}{}", text.substr(0, 40), fmt::join(names, ", "),
                 did_you_mean(name, names));
  if (colon == text.size()) return choice;
  const std::string_view option = text.substr(colon + 1);
  constexpr std::string_view kMoments = "moments=";
  const auto type = option.starts_with(kMoments) ? dtype_named(option.substr(kMoments.size())) : std::nullopt;
  if (!type || (*type != DType::F32 && *type != DType::BF16))
    return error("--optimizer '{}': after the colon write moments=fp32 or moments=bf16", text.substr(0, 60));
  if (choice.kind == OptimizerKind::Sgd)
    return error("--optimizer '{}': sgd has no moments; leave it out, or use momentum", text.substr(0, 60));
  choice.moments = *type;
  return choice;
}

}  // namespace weft
