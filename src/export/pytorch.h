// Standalone scripts on torch.distributed: presets/targets/train_decoder.py for decoders, train_decoder_fsdp.py
// for those that are sharded (torch 2.4 and later), train_network.py for convolutional networks, with a model and a plan filled in. Scripts are written, never read back.
#pragma once

#include "export/targets.h"

namespace weft {

// The script with `settings` in the place that it has for them.
std::string filled_script(std::string_view path, std::string_view settings);

// Networks that are no decoders: a script of their own operators, in order.
std::optional<std::string> no_network_strategy(const ExportSubject& subject);
std::optional<std::string> why_not_network(const Parallelism& plan);
Result<std::string> write_network(const ExportSubject& subject, const Parallelism& plan);

}  // namespace weft
