// Software stacks: how a framework executes a plan, as named data (presets/stacks.yaml), every value with its source.
//
// The types of weight, gradient, gradient communication, master weight and moments are separate. They give the bytes
// per parameter: 2+2+12 for fp16 with master weights, 2+4+12 with fp32 gradients, 4+4+8 for fp32 shards.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/recipe.h"
#include "base/result.h"
#include "base/units.h"
#include "cluster/device.h"
#include "graph/dtype.h"
#include "layout/reshard.h"
#include "strategy/abilities.h"

namespace weft {

inline constexpr int kAnySoftmaxKeys = 1'000'000;

struct SoftwareStack {
  std::string name, title;
  std::string in_bf16;  // the stack that describes its runs in bf16, where it trains otherwise in that type; or empty

  // Gradients.
  Figure<Bytes> gradient_bucket;  // size of a bucket of gradients; 0: one bucket for all
  Figure<Bytes> scatter_bucket;   // the same for reduce-scatters (ZeRO-2); 0: as above
  Figure<bool> flat_gradients;    // gradients are stored in their buckets, not copied there
  Figure<bool> gradient_overlap;  // buckets are reduced during the backward pass
  // Sharded weights (ZeRO, FSDP).
  Figure<bool> prefetch_forward;  // the next unit is gathered before it is needed
  Figure<bool> prefetch_backward;
  Figure<int> gathers_in_flight;
  Figure<bool> flat_parameters;        // weights are gathered in place, not in a buffer and copied
  Figure<bool> reshard_after_forward;  // gathered weights are dropped and gathered again for the backward pass
  // Tensor and pipeline parallelism.
  // Collectives on activations run beside what is issued after them and does not need them: the gradient of a linear
  // layer's input is summed while the gradient of its weight is computed, its input gathered beside the former.
  Figure<bool> tensor_overlap;
  Figure<bool> tensor_chunks;  // and in chunks beside the products that they belong to (price/pipelined.h)
  Figure<bool> p2p_overlap;    // sends and receives between stages overlap with computation
  Figure<bool> p2p_in_parts;   // tensors replicated over tp are sent in parts and gathered on arrival
  // All-gathers and reduce-scatters of parts of different sizes: padded or grouped; none: whichever is cheaper.
  Figure<std::optional<Parts>> uneven_parts;
  Figure<bool> tokens_once;          // a token is sent once to a device with several of its experts (DeepEP, HybridEP)
  Figure<bool> keep_gathered_input;  // sequence parallelism: saved for the weight gradient, not gathered again
  // Operations that are one fused kernel, or a sequence of elementary ones.
  Figure<bool> fused_attention, fused_norm, fused_cross_entropy, fused_bias_activation, fused_optimizer, fused_rotary;
  // Most keys over which scaling, masking and softmax of plain attention are one kernel; kAnySoftmaxKeys: a compiler's.
  Figure<int> softmax_keys;
  Figure<bool> wide_logits;  // a cross-entropy of plain kernels works on fp32 logits; else in the type that they have
  // fp32 copies of the logits (their logarithms, gradients) that a cross-entropy of plain kernels holds at its peak.
  Figure<int> logit_copies;
  Figure<bool> fused_pointwise;     // additions, dropout and casts are part of the kernel before them
  Figure<bool> head_copies;         // plain attention copies heads side by side for its batched products, and back
  Figure<bool> fused_accumulation;  // weight-gradient products add to the accumulators (beta = 1)
  Figure<bool> fused_batch_norm;    // fused with the addition and the activation after it
  Figure<bool> channels_last;       // otherwise 16-bit convolutions transpose their inputs and outputs
  Figure<int> passes_between;       // passes through memory over a product's result, which let the clock recover
  Figure<double> product_rate;      // the share of the device's rate of products that the stack's libraries reach
  Figure<double> collective_rate;   // the share of the links' rate that the stack's collectives reach
  Figure<bool> weft_kernels;  // every operator is one kernel of src/run, each tensor's update and sum a call of its own
  Figure<int> attention_generation;  // of the fused kernel: 1 FlashAttention and Triton's, 2 FlashAttention-2, 3 newer
  Figure<int> vocabulary_multiple;   // the vocabulary is padded to this times tp; 0: not at all
  Figure<int> kept_per_parameter;    // bytes of flat copies and buffers that the framework keeps besides the states
  Figure<Bytes> kept_most;           // the most that they take on a device; 0: no limit
  Figure<bool> autocast;        // fp32 weights, cast where they are used; fp32 norms and residuals (graph/autocast.h)
  Figure<bool> held_gradients;  // also where no gradient is yet; else from backward to the step (set_to_none)
  Figure<bool> narrow_weights;  // weights of fp8 products are stored in fp8 alone, beside their masters
  Figure<bool> narrow_gathers;  // they are cast before they are gathered, where one copy serves all products
  Figure<Recipe> recipe;        // how fp8 products cast their factors; --dtype fp8-current and the like say another
  Figure<bool> keeps_casts;     // they keep what they read as it was cast; else as it was, and cast it again
  Figure<int> dense_dispatch;   // experts' rows are made by products with masks over so many tokens; 0: moved
  // Choosing experts, and putting rows in their order, as fused kernels; else scores, masks and sorts one by one.
  Figure<bool> fused_router, fused_permutation;
  Figure<bool> pads_by_copy;  // dropless rows of experts are copied to be padded for fp8; else padded as they are moved
  Figure<bool> sync_on_counts;  // dropless: the host waits to know how many rows every expert has
  // What the driver's memory holds besides the allocator's: context and kernels, buffers of a communicator; and the share
  // of activations and buffers that the allocator loses to fragmentation.
  Figure<Bytes> context, communicator;
  Figure<double> fragmentation;
  // Element types; a stack without master weights has no master type.
  Figure<std::optional<DType>> weight_dtype, weight_communication_dtype, gradient_dtype, gradient_communication_dtype,
      master_dtype, moment_dtype;
  // The host that issues the work.
  Figure<Seconds> host_per_operator;  // a call of the forward pass, with the module around it
  Figure<Seconds> host_per_gradient;  // a kernel of the backward pass
  Figure<Seconds> host_per_cast;      // a cast by autocast, or another call from inside an operator
  Figure<Seconds> host_per_update;    // each tensor of the optimizer step
  Figure<Seconds> host_per_collective;
  Figure<int> run_ahead;            // most operators issued and not yet begun
  Figure<bool> blocking_launches;   // the host waits for the end of every kernel (CUDA_LAUNCH_BLOCKING=1)
  Figure<bool> host_computes;       // operators run on the host that issues them, one after the other
  Figure<bool> clip_gradients;      // by their norm, where the optimizer is one of Adam's
  Figure<bool> sync_on_norm;        // the host waits for the device once per step, to read the gradient norm
  Figure<bool> graph_capture;       // CUDA graphs: no host time per operator
  Figure<bool> nvls;                // in-switch reductions are used where the switch has them
  Figure<bool> smaller_last_batch;  // a smaller last micro-batch is allowed
  Figure<Abilities> can;            // what plans it has code for; searches keep to them where the stack is named

  // Bytes of flat copies and buffers of that many parameters.
  Bytes kept_for(std::int64_t parameters) const;
  // Bytes of weight, gradient and optimizer state (two moments and a master weight), unsharded.
  int bytes_per_parameter() const;
  bool operator==(const SoftwareStack&) const = default;
};

// One record per knob, in the order of the file: for readers, writers and documentation.
struct Knob {
  using Field =
      std::variant<Figure<Bytes> SoftwareStack::*, Figure<Seconds> SoftwareStack::*, Figure<int> SoftwareStack::*,
                   Figure<double> SoftwareStack::*, Figure<bool> SoftwareStack::*,
                   Figure<std::optional<DType>> SoftwareStack::*, Figure<std::optional<Parts>> SoftwareStack::*,
                   Figure<Recipe> SoftwareStack::*, Figure<Abilities> SoftwareStack::*>;
  std::string_view name;
  Field field;
};
const std::vector<Knob>& stack_knobs();

std::vector<std::string> stack_names();
// A built-in stack; the error for an unknown name suggests the nearest ones.
Result<SoftwareStack> find_stack(std::string_view name);
// Stacks of a file in the form of presets/stacks.yaml. A value may also be written without its source.
Result<std::vector<SoftwareStack>> parse_stacks(std::string_view text, std::string_view file);

// One line per knob: name, value, source.
std::string print(const SoftwareStack& stack);

// The vocabulary as the stack stores it with this degree of tensor parallelism.
std::int64_t padded_vocabulary(const SoftwareStack& stack, std::int64_t vocabulary, std::int64_t tp);

}  // namespace weft
