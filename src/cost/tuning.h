// What the analytic model knows of devices, links and protocols beyond their data sheets: constants as data
// (presets/cost/*.yaml), every one with its source. A device's constants are looked up by its name, else by its
// architecture, else the `default` entry stands in and its figures say so.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/device.h"
#include "cost/communicator.h"
#include "graph/dtype.h"

namespace weft {

// A thread block's part of a matrix product, and the share of the sustained rate it reaches: small tiles reuse less.
struct Tile {
  int m = 0, n = 0;
  double efficiency = 1;

  bool operator==(const Tile&) const = default;
};

// Kernels that pass tensors through memory, by what keeps them from its full bandwidth.
enum class Pass : std::uint8_t {
  Activation,          // functions that take many instructions an element: gelu, silu, tanh
  ActivationBackward,  //
  Broadcast,           // a row added to every row
  Convert,             // operands of several types
  Dropout,             // random numbers
  Turn,                // a transpose that is not a view
  Transform,           // tiles of images, to Winograd's factors and back
  TransformWindows,    // and of its windows
  Glu,                 // as an activation and a multiplication
  GluBackward,         //
  ColumnSums,          // gradients of biases
  Sums,                // of everything, or along rows: losses, norms of gradients, means
  LayerNorm,           //
  LayerNormBackward,   //
  RmsNorm,             //
  RmsNormBackward,     //
  PlainNorm,           // as a sequence of pointwise kernels and means
  PlainNormBackward,   //
  Softmax,             //
  SoftmaxBackward,     //
  CrossEntropy,        // of the logits as they are
  CrossEntropyBackward,
  PlainCrossEntropy,  // of a copy in fp32
  PlainCrossEntropyBackward,
  BatchNorm,  // channels last
  BatchNormBackward,
  BatchNormFirst,  // channels first
  BatchNormFirstBackward,
  Pool,  // channels last
  PoolBackward,
  PoolFirst,  // channels first
  PoolFirstBackward,
  Gather,   // rows by index
  Scatter,  // additions to rows by index
  Optimizer,
  PlainOptimizer,  // a kernel for each moment and the update
  LstmGates,
  PlainLstmGates,
};
inline constexpr std::size_t kPasses = static_cast<std::size_t>(Pass::PlainLstmGates) + 1;
std::string_view name_of(Pass pass);

// seconds = start + max(least, bytes / (share · bandwidth), elements / `elements`) + units / `units`
struct PassTuning {
  double share = 0;     // of the peak memory bandwidth; 0: not known, a plainer constant stands in
  double elements = 0;  // per second that instructions allow; 0: memory is the bound
  double units = 0;     // per second: rows, elements of windows, indices; 0: they take no time
  Seconds start = {};   // beyond one kernel's: launches of several, a second stage
  Seconds least = {};   // however small

  bool operator==(const PassTuning&) const = default;
};

// Products of one arithmetic.
struct ProductTuning {
  Figure<double> sustained;          // share of the dense peak that the main loop reaches in a single call
  Figure<std::vector<Tile>> tiles;   //
  Figure<double> tile_overhead;      // prologue and epilogue of a tile, in elements along k
  Figure<double> wave_quantisation;  // 1: the last wave takes as long as a full one; 0: work is spread evenly
  Figure<double> misaligned;         // rate where rows are not multiples of 4 bytes: kernels without wide loads
  Figure<double> half_aligned;       // rate where they are multiples of 4, not of 16
  Figure<double> turned;             // rate for each factor whose rows do not lie along the sum
  Figure<double> convolution;        // rate of an implicit product over a plain one
};

struct DeviceTuning {
  std::string name;
  std::array<ProductTuning, kArithmetics.size()> products;
  Figure<double> load_clock;        // rate of products and attention inside whole steps over single calls: power
  Figure<Seconds> load_delay;       // a burst of three times this has fallen half-way
  Figure<double> grouped;           // rate of a grouped product (experts) over one of the same tiles
  Figure<Seconds> grouped_start;    // and what each of its groups takes beside
  Figure<double> convolution_thin;  // rate of convolutions of fewer channels than 8, as which they count
  Figure<double> winograd;          // rate of Winograd's products (3 × 3 windows of stride 1 in fp32) over plain ones
  // Attention as one kernel: rate over that of a product, heads of 128, forward and backward; and the factor for 64.
  Figure<double> attention_forward, attention_backward, attention_narrow;
  // Rate of older kernels over the newest: FlashAttention and Triton's of its time, FlashAttention-2.
  Figure<double> attention_flash1, attention_flash2;
  // Prologue and epilogue of a block of queries, in keys; and how much of its longest block a masked one ends later
  // than evenly spread work would.
  Figure<double> attention_ramp_forward, attention_ramp_backward, attention_tail;
  Figure<double> accumulating;  // rate of a product that adds to an fp32 accumulator
  // Memory-bound kernels: share of the peak memory bandwidth.
  Figure<double> stream;                           // pointwise and copies
  Figure<double> rows;                             // norms, softmax, losses
  Figure<double> reduction;                        // of columns: gradients of biases, norms' weights, batch statistics
  Figure<double> gather;                           // rows by index
  Figure<double> scatter;                          // additions to rows by index
  Figure<double> windows;                          // pooling
  Figure<double> optimizer;                        // several streams at once
  std::array<Figure<PassTuning>, kPasses> passes;  // where these were measured one by one
  Figure<Seconds> kernel;                          // a kernel that does nothing, from start to end
  // Collectives over scale-up links: share of the links' rate, less a share `fill` of a step per member.
  Figure<double> collective, collective_fill;
  Figure<double> nvls;  // share of the links' rate of reductions in the switch; 0: the device has none
  // Interference (simulate/workload.h).
  Figure<double> compute_per_sm, memory_weight, communication_weight, wave_loss, wave_weight;
};

struct LinkTuning {
  Figure<double> efficiency;  // of the nominal bandwidth that a large message reaches
  Figure<int> channels;       // compute units that a collective limited by such links keeps busy
};

struct ProtocolTuning {
  Figure<double> efficiency;                  // share of the links' rate
  Figure<Seconds> start;                      // once
  Figure<Seconds> step_inside, step_between;  // per message, beyond the links' own latency
};

struct CommunicationTuning {
  std::array<LinkTuning, kLinkKinds> links;
  std::array<ProtocolTuning, kProtocols> protocols;
  Figure<double> tree;                        // rate of trees between nodes over that of rings
  Figure<double> grouped;                     // rate of broadcasts or reductions by each member over that of a ring
  Figure<Seconds> nvls_step;                  // a pass through the switch
  Figure<Seconds> transfer;                   // start of a send and its receive
  Figure<Seconds> host_copy;                  // start of a copy engine
  Figure<Seconds> message;                    // of an all-to-all or a broadcast among many, each
  Figure<double> memory_reduce, memory_move;  // memory traffic per byte on the wire, with and without reduction
};

struct Tuning {
  std::vector<DeviceTuning> devices;  // `default` first
  CommunicationTuning communication;

  // The entry for a device. Cost: linear in the entries.
  const DeviceTuning& of(const DeviceSpec& device) const;
};

// A constant by its name in the file, for whoever fits them: `stream`, `sustained.bf16`, `tiles.fp32.0` (efficiency),
// `tile_overhead.tf32`, `layer_norm.share`. Null where there is none.
double* constant(DeviceTuning& tuning, std::string_view name);

// The built-in constants, read once per process.
const Tuning& built_in_tuning();
// The built-in constants with those of a file in the form of presets/cost/*.yaml laid over them. A device takes what it
// does not say from the entry it is `like`, else from `default`.
Result<Tuning> parse_tuning(std::string_view text, std::string_view file);

// A constant where it lives, by its path in the files: devices/a100-80-sxm/sustained/bf16, links/nic/efficiency,
// protocols/simple/start, communication/tree. Times are in seconds.
struct TuningConstant {
  double* value = nullptr;
  std::string* source = nullptr;
  double least = 0, most = 1;  // what a file may say
  bool is_time = false;
};
// None: there is no such constant. Tiles and channels are none.
std::optional<TuningConstant> find_constant(Tuning& tuning, std::string_view path);

// What a device multiplies at, with the arithmetic it falls back on where it lacks one.
struct ProductRate {
  FlopsPerSecond peak;
  Arithmetic arithmetic{};  // the one used
  std::string_view source;
};
ProductRate product_rate(const DeviceSpec& device, Arithmetic wanted);
// What products of a type run in, where nothing else is said.
Arithmetic arithmetic_of(DType dtype);
// Memory bandwidth and compute units, or what stands in for them where a description leaves them out.
struct MemoryRate {
  BytesPerSecond peak;
  std::string_view source;
};
MemoryRate memory_rate(const DeviceSpec& device);
struct ComputeUnits {
  int count = 1;
  std::string_view source;
};
ComputeUnits compute_units(const DeviceSpec& device);

}  // namespace weft
