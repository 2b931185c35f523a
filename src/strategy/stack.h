// Software stacks: what a framework does with a plan, beyond the plan itself. Named, as data (presets/stacks.yaml),
// every value with its source.
//
// The five dtypes of SEMANTICS — weight, gradient, gradient communication, master weight, moments — give the bytes per
// parameter: 2+2+12 for fp16 with masters, 2+4+12 with fp32 gradients, 4+4+8 for fp32 shards.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "cluster/device.h"
#include "graph/dtype.h"
#include "layout/reshard.h"

namespace weft {

struct SoftwareStack {
  std::string name, title;

  // Gradients.
  Figure<Bytes> gradient_bucket;  // of gradients reduced together; 0: all at once
  Figure<Bytes> scatter_bucket;  // of gradients scattered together where each device keeps a part (ZeRO-2); 0: as above
  Figure<bool> flat_gradients;   // they lie in the buckets that they are reduced in; otherwise they are copied there
  Figure<bool> gradient_overlap;  // buckets are reduced while the backward pass goes on
  // Weights that are spread (ZeRO, FSDP).
  Figure<bool> prefetch_forward;  // the next unit is gathered before it is needed
  Figure<bool> prefetch_backward;
  Figure<int> gathers_in_flight;
  Figure<bool> flat_parameters;  // they are gathered where they lie; otherwise in a buffer that they are copied from
  Figure<bool> reshard_after_forward;  // gathered weights are dropped and gathered again for the backward pass
  // Tensor and pipeline parallelism.
  Figure<bool> tensor_overlap;  // collectives run beside the products they belong to
  Figure<bool> p2p_overlap;     // sends and receives between stages run beside computation
  Figure<bool> p2p_in_parts;    // what tensor-parallel ranks hold alike is sent in parts and gathered on arrival
  // Gathers and scatters of parts of different sizes: padded to the largest, or grouped; none: whichever is cheaper.
  Figure<std::optional<Parts>> uneven_parts;
  Figure<bool> tokens_once;          // a token goes once to a device that has several of its experts (DeepEP, HybridEP)
  Figure<bool> keep_gathered_input;  // sequence parallelism: kept for the weight gradient, not gathered again
  // Kernels that are one, or a sequence of plain ones.
  Figure<bool> fused_attention, fused_norm, fused_cross_entropy, fused_bias_activation, fused_optimizer;
  Figure<bool> fused_accumulation;   // products of weight gradients add to the accumulators themselves
  Figure<bool> fused_batch_norm;     // with the addition and the activation after it
  Figure<bool> channels_last;        // otherwise 16-bit convolutions transpose what they read and write
  Figure<double> product_rate;       // of the device's rate of products that the stack's libraries reach
  Figure<double> collective_rate;    // of the links' rate that the stack's collectives reach
  Figure<int> attention_generation;  // of the fused kernel: 1 FlashAttention and Triton's, 2 FlashAttention-2, 3 newer
  Figure<int> vocabulary_multiple;   // the vocabulary is padded to this times tp; 0: not at all
  Figure<int> kept_per_parameter;    // bytes of flat copies and buffers that the framework keeps beside the states
  // Types; no master weights: none.
  Figure<std::optional<DType>> weight_dtype, weight_communication_dtype, gradient_dtype, gradient_communication_dtype,
      master_dtype, moment_dtype;
  // The host that issues the work.
  Figure<Seconds> host_per_operator, host_per_collective;
  Figure<int> run_ahead;            // operators issued and not yet begun, at most
  Figure<bool> sync_on_norm;        // the host waits for the device once per step, to read the gradient norm
  Figure<bool> graph_capture;       // replayed, without host time per operator
  Figure<bool> nvls;                // in-switch reductions are used where the switch has them
  Figure<bool> smaller_last_batch;  // a smaller last micro-batch is allowed

  // Of weight, gradient and optimizer state (two moments and a master copy), nothing spread.
  int bytes_per_parameter() const;
  bool operator==(const SoftwareStack&) const = default;
};

// One record per knob, in the order of the file: for readers, writers and documentation.
struct Knob {
  using Field =
      std::variant<Figure<Bytes> SoftwareStack::*, Figure<Seconds> SoftwareStack::*, Figure<int> SoftwareStack::*,
                   Figure<double> SoftwareStack::*, Figure<bool> SoftwareStack::*,
                   Figure<std::optional<DType>> SoftwareStack::*, Figure<std::optional<Parts>> SoftwareStack::*>;
  std::string_view name;
  Field field;
};
const std::vector<Knob>& stack_knobs();

std::vector<std::string> stack_names();
// A built-in stack; an unknown name gets the nearest ones.
Result<SoftwareStack> find_stack(std::string_view name);
// Stacks of a file in the form of presets/stacks.yaml. A value may also be written without its source.
Result<std::vector<SoftwareStack>> parse_stacks(std::string_view text, std::string_view file);

// One line per knob: name, value, source.
std::string print(const SoftwareStack& stack);

// The vocabulary as the stack stores it with this degree of tensor parallelism.
std::int64_t padded_vocabulary(const SoftwareStack& stack, std::int64_t vocabulary, std::int64_t tp);

}  // namespace weft
