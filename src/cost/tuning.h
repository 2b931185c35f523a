// Constants of the analytic model for devices, links and protocols beyond their data sheets, as data
// (presets/cost/*.yaml), each with its source. A device's constants are looked up by its name, else by its
// architecture, else in the entry `default`, whose sources say so.
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

// Memory-bound kernels, classified by what limits them below the full memory bandwidth.
enum class Pass : std::uint8_t {
  Activation,          // functions of many instructions per element: gelu, silu, tanh
  ActivationBackward,  //
  Broadcast,           // a row added to every row
  Convert,             // operands of several types
  Dropout,             // random numbers
  PlainRotary,         // rotary embeddings as a sequence of pointwise kernels
  Turn,                // a transpose that is not a view
  Transform,           // tiles of images, to Winograd's factors and back
  TransformWindows,    // Winograd's transform of windows
  Glu,                 // an activation and a multiplication
  GluBackward,         //
  ColumnSums,          // gradients of biases
  Sums,                // over everything, or along rows: losses, norms of gradients, means
  LayerNorm,           //
  LayerNormBackward,   //
  RmsNorm,             //
  RmsNormBackward,     //
  PlainNorm,           // norms as a sequence of pointwise kernels and means
  PlainNormBackward,   //
  Softmax,             //
  SoftmaxBackward,     //
  CrossEntropy,        // on the logits as stored
  CrossEntropyBackward,
  PlainCrossEntropy,  // on an fp32 copy
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
  double share = 0;     // of the peak memory bandwidth; 0: unknown, pass_share.h has a default
  double elements = 0;  // per second that instructions allow; 0: memory is the bound
  double units = 0;     // per second: rows, elements of windows, indices; 0: they take no time
  Seconds start = {};   // beyond one launch: launches of several kernels, a second stage
  Seconds least = {};   // minimum time of a small pass

  bool operator==(const PassTuning&) const = default;
};

// Products of one arithmetic.
struct ProductTuning {
  Figure<double> sustained;          // share of the dense peak that the main loop reaches in a single call
  Figure<std::vector<Tile>> tiles;   //
  Figure<double> tile_overhead;      // prologue and epilogue of a tile, in elements along k
  Figure<double> wave_quantisation;  // 1: the last wave takes as long as a full one; 0: tiles are balanced evenly
  Figure<double> misaligned;         // relative rate if rows are not multiples of 4 bytes: kernels without wide loads
  Figure<double> half_aligned;       // relative rate if they are multiples of 4, not of 16
  Figure<double> turned;             // relative rate for each factor in which k is not contiguous
  Figure<double> convolution;        // relative rate of an implicit product
};

struct DeviceTuning {
  std::string name;
  std::array<ProductTuning, kArithmetics.size()> products;
  Figure<double> load_clock;        // rate of products and attention inside whole steps relative to single calls: power
  Figure<Seconds> load_delay;       // time scale: in a burst of three times this the clock has fallen half-way
  Figure<double> grouped;           // rate of a grouped product (experts) relative to one with the same tiles
  Figure<Seconds> grouped_start;    // additional time of each of its groups
  Figure<double> blockwise;         // rate of an fp8 product whose sums are scaled block by block
  Figure<double> convolution_thin;  // relative rate of convolutions with fewer than 8 channels, padded to 8
  Figure<double> winograd;          // relative rate of Winograd's products (3 × 3 windows of stride 1 in fp32)
  // Fused attention: rate relative to a product, heads of 128, forward and backward; and the factor for heads of 64.
  Figure<double> attention_forward, attention_backward, attention_narrow;
  // Rate of older kernels relative to the newest: FlashAttention and Triton's of its time, FlashAttention-2.
  Figure<double> attention_flash1, attention_flash2;
  // Prologue and epilogue of a block of queries, in keys; and the load imbalance of masked attention, as a share of its
  // longest block.
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
  std::array<Figure<PassTuning>, kPasses> passes;  // constants of passes that were measured individually
  Figure<Seconds> kernel;                          // an empty kernel, from launch to end
  // Collectives over scale-up links: share of the links' rate, reduced by a share `fill` of a step per member.
  Figure<double> collective, collective_fill;
  Figure<double> nvls;  // share of the links' rate of reductions in the switch; 0: the device has none
  // Interference (simulate/workload.h).
  Figure<double> compute_per_sm, memory_weight, communication_weight, wave_loss, wave_weight;
};

struct LinkTuning {
  Figure<double> efficiency;  // share of the nominal bandwidth that a large message reaches
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
  Figure<double> tree;                        // rate of trees between nodes relative to rings
  Figure<double> grouped;                     // rate of grouped broadcasts or reduces relative to a ring
  Figure<Seconds> nvls_step;                  // a pass through the switch
  Figure<Seconds> transfer;                   // start of a send and its receive
  Figure<Seconds> host_copy;                  // start of a copy engine
  Figure<Seconds> message;                    // each message of an all-to-all or grouped broadcast
  Figure<double> memory_reduce, memory_move;  // memory traffic per byte on the wire, with and without reduction
};

struct Tuning {
  std::vector<DeviceTuning> devices;  // `default` first
  CommunicationTuning communication;

  // The entry for a device. Cost: linear in the entries.
  const DeviceTuning& of(const DeviceSpec& device) const;
};

// A constant by its name in the file, for fitting: `stream`, `sustained.bf16`, `tiles.fp32.0` (efficiency),
// `tile_overhead.tf32`, `layer_norm.share`. Null if there is none.
double* constant(DeviceTuning& tuning, std::string_view name);

// The built-in constants, read once per process.
const Tuning& built_in_tuning();
// The built-in constants overridden by a file in the form of presets/cost/*.yaml. Constants that a device's entry lacks
// are taken from the entry it is `like`, else from `default`.
Result<Tuning> parse_tuning(std::string_view text, std::string_view file);

// A reference to a constant by its path in the files: devices/a100-80-sxm/sustained/bf16, links/nic/efficiency,
// protocols/simple/start, communication/tree. Times are in seconds.
struct TuningConstant {
  double* value = nullptr;
  std::string* source = nullptr;
  double least = 0, most = 1;  // the range that a file may contain
  bool is_time = false;
};
// None if there is no such constant; tiles and channels are not constants in this sense.
std::optional<TuningConstant> find_constant(Tuning& tuning, std::string_view path);

// The peak rate of products on a device, in the wanted arithmetic or the one it falls back on.
struct ProductRate {
  FlopsPerSecond peak;
  Arithmetic arithmetic{};  // the one used
  std::string_view source;
};
ProductRate product_rate(const DeviceSpec& device, Arithmetic wanted);
// The default arithmetic of products of a type.
Arithmetic arithmetic_of(DType dtype);
// Memory bandwidth and compute units, or defaults if a description omits them.
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
