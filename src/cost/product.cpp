#include "cost/product.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cost/rounding.h"

namespace weft {
namespace {

constexpr double kStepOfK = 32;  // elements of k per iteration of a tile; k is padded to a multiple

}  // namespace

KernelTime product_time(const Product& product, const DeviceSpec& device, const DeviceTuning& tuning,
                        Arithmetic arithmetic) {
  const ProductRate rate = product_rate(device, arithmetic);
  const double units = compute_units(device).count;
  const double memory = memory_rate(device).peak.value * tuning.stream.value;
  const ProductTuning& known = tuning.products[static_cast<std::size_t>(rate.arithmetic)];
  double shape_rate = product.alignment == Alignment::None   ? known.misaligned.value
                      : product.alignment == Alignment::Word ? known.half_aligned.value
                                                             : 1.0;
  for (int i = 0; i < product.turned; ++i) shape_rate *= known.turned.value;
  const double sustained = rate.peak.value * known.sustained.value * product.efficiency * shape_rate;
  const double unit_rate = sustained / units;

  KernelTime best{std::numeric_limits<double>::infinity(), 0, 0};
  for (const Tile& tile : known.tiles.value) {
    // Tiles may have either orientation.
    for (const auto& [rows, columns] : {std::pair{tile.m, tile.n}, std::pair{tile.n, tile.m}}) {
      const double tiles = product.batch * ceil_ratio(product.m, rows) * ceil_ratio(product.n, columns);
      for (double split = 1; split <= 32; split *= 2) {
        if (split > 1 && (!product.splits || product.k / split < 8 * kStepOfK || tiles * split > 4 * units)) break;
        const double blocks = tiles * split, waves = blocks / units;
        const double full = ceil_ratio(blocks, units);
        const double last = known.wave_quantisation.value * (full - waves);
        const double along = ceil_ratio(product.k / split, kStepOfK) * kStepOfK + known.tile_overhead.value;
        const double tile_seconds = 2.0 * rows * columns * along / (unit_rate * tile.efficiency);
        // Fewer blocks than units: the wave still takes a whole tile's time.
        const double compute = std::max(1.0, waves + last) * tile_seconds;
        const double parts = split > 1 ? 2 * split * product.batch * product.m * product.n * 4 : 0;
        const double seconds = std::max(compute, product.bytes / memory) + parts / memory;
        if (seconds < best.seconds) best = {seconds, std::min(1.0, waves), waves};
      }
      if (tile.m == tile.n) break;
    }
  }
  best.seconds += tuning.kernel.value.value;
  return best;
}

}  // namespace weft
