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

namespace weft {

// A thread block's part of a matrix product, and the share of the sustained rate it reaches: small tiles reuse less.
struct Tile {
  int m = 0, n = 0;
  double efficiency = 1;

  bool operator==(const Tile&) const = default;
};

struct DeviceTuning {
  std::string name;
  // Matrix products. `sustained`: share of the dense peak that the main loop reaches at the clock under load.
  std::array<Figure<double>, kArithmetics.size()> sustained;
  Figure<std::vector<Tile>> tiles;
  Figure<double> tile_overhead;      // prologue and epilogue of a tile, in steps along k
  Figure<double> wave_quantisation;  // 1: the last wave takes as long as a full one; 0: work is spread evenly
  Figure<double> misaligned;         // rate where rows are not multiples of 16 bytes
  Figure<double> grouped;            // rate of a grouped product (experts) over one of the same tiles
  Figure<double> convolution;        // rate of an implicit product over a plain one
  Figure<double> winograd;           // rate of 3 × 3 windows of stride 1 in fp32 beside: fewer multiplications
  // Attention as one kernel: rate over that of a product, heads of 128, forward and backward; and the factor for 64.
  Figure<double> attention_forward, attention_backward, attention_narrow;
  // Rate of older kernels over the newest: FlashAttention and Triton's of its time, FlashAttention-2.
  Figure<double> attention_flash1, attention_flash2;
  // Masked keys per query at which half of the rate is reached: blocks on the diagonal, prologue and epilogue.
  Figure<double> attention_ramp_forward, attention_ramp_backward;
  Figure<double> accumulating;  // rate of a product that adds to an fp32 accumulator
  // Memory-bound kernels: share of the peak memory bandwidth.
  Figure<double> stream;     // pointwise and copies
  Figure<double> rows;       // norms, softmax, losses
  Figure<double> reduction;  // of columns: gradients of biases, norms' weights, batch statistics
  Figure<double> gather;     // rows by index
  Figure<double> scatter;    // additions to rows by index
  Figure<double> windows;    // pooling
  Figure<double> optimizer;  // several streams at once
  Figure<Seconds> kernel;    // a kernel that does nothing, from start to end
  // Collectives over scale-up links: share of the links' rate, less a share `fill` of a step per member.
  Figure<double> collective, collective_fill;
  Figure<double> nvls;  // share of the links' rate of reductions in the switch; 0: the device has none
  // Interference (simulate/workload.h).
  Figure<double> compute_per_sm, memory_weight, communication_weight;
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
