#include "compile/uneven_parts.h"

namespace weft {

Parts settled_parts(const Program& program, const Graph& graph, const Communicate& communicate,
                    const CompileOptions& options) {
  if (!has_uneven_parts(program, communicate)) return Parts::Even;
  if (options.uneven_parts) return *options.uneven_parts;
  if (!options.prices) return Parts::Grouped;
  const PartSizes bytes = part_bytes(program, graph, communicate);
  const Mesh& mesh = program.meshes[program.buffers[communicate.inputs[0]].layout.mesh];
  const auto price = [&](Parts parts) {
    return options.prices->of_parts(communicate.collective, communicate.axes, parts, bytes, mesh);
  };
  return price(Parts::Padded) < price(Parts::Grouped) ? Parts::Padded : Parts::Grouped;
}

}  // namespace weft
