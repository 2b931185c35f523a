// torch.autocast as operators: which of a forward graph's tensors are wide (fp32), and where types are cast.
//
// Matrix products, convolutions and attention run in the narrow type, on inputs that are cast where they are wide; norms,
// softmax, losses, sums and functions that grow fast run in fp32, on inputs that are cast where they are narrow; embeddings
// give what their fp32 tables hold; everything else follows its inputs, the widest of them (pytorch.org/docs, "Automatic
// Mixed Precision", op lists of CUDA; cross-entropy takes its logarithms in the type of the logits). So the residual
// stream of a transformer is fp32, and what its products read is a narrow copy.
//
// Parameters keep the graph's narrow type, with fp32 masters beside them: the copies that autocast makes of them, which
// live until the backward pass has read them. What making them costs is in src/cost. Cost: linear in the operators.
#pragma once

#include "graph/graph.h"

namespace weft {

// The forward graph under autocast to `narrow`, the type that it stores everything in. Casts are operators named after
// the operator and operand they serve, "fc1_x_cast", in its module; all other names stay.
Result<Graph> with_autocast(const Graph& forward, DType narrow);

// Whether the operator makes nothing but the same numbers in another type, forward or backward.
bool is_cast(const Signature& signature);
// Whether autocast casts a weight for the operator: to its type before it, its gradient to fp32 after it.
bool casts_weight(const Signature& signature);

}  // namespace weft
