#include "report/local_compute.h"

#include <functional>
#include <numeric>

namespace weft {

LocalCompute local_compute(const Signature& signature, const OpSharding& sharding, const Mesh& mesh, int position) {
  const AxisSlices slices = axis_slices(signature, sharding, mesh, position);
  LocalCompute local;
  for (const AxisSet& contraction : signature.contractions) {
    double product = 2;
    for (std::size_t axis = 0; axis < slices.size(); ++axis)
      if (contraction.contains(static_cast<int>(axis))) product *= static_cast<double>(slices[axis].size());
    local.flops += product;
  }
  for (int i = 0; i < signature.operand_count(); ++i) {
    const Operand& operand = signature.operand(i);
    const Shape& shape = local.shapes.emplace_back(local_shape(signature, operand, slices));
    local.bytes +=
        bytes_of(operand.dtype, std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
  }
  return local;
}

}  // namespace weft
