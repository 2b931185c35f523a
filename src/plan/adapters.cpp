#include "plan/adapters.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "models/models.h"

namespace weft {

Result<std::optional<Adapters>> parse_train(std::string_view text) {
  if (text.empty() || text == "all") return std::optional<Adapters>();
  constexpr std::string_view kLora = "lora";
  if (text != kLora && !text.starts_with("lora:"))
    return error("--train '{}': write all, or lora:r=16,targets=attn", text.substr(0, 60));
  Adapters adapters;
  std::string_view rest = text.substr(std::min(text.size(), kLora.size() + 1));
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (item.starts_with("r=")) {
      const Result<std::int64_t> rank = parse_integer(item.substr(2), "r");
      if (!rank.ok() || *rank < 1 || *rank > 65'536)
        return error("--train {}: {}: a rank from 1 to 65536", text.substr(0, 60), item.substr(0, 40));
      adapters.rank = *rank;
    } else if (item.starts_with("targets=")) {
      adapters.targets = item.substr(8);
      if (adapters.targets != "attn" && adapters.targets != "mlp" && adapters.targets != "attn+mlp")
        return error("--train {}: {}: write targets=attn, mlp or attn+mlp", text.substr(0, 60), item.substr(0, 40));
    } else {
      return error("--train {}: '{}': write r=16 and targets=attn", text.substr(0, 60), item.substr(0, 40));
    }
  }
  return std::optional(adapters);
}

std::string with_adapters(std::string_view model, const Adapters& adapters) {
  return with_override(with_override(model, "lora", fmt::format("{}", adapters.rank)), "lora_targets",
                       adapters.targets);
}

}  // namespace weft
