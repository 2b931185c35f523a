// The measured cost model: times from a profile of events (src/profile), else from the analytic model.
//
// An operator's time is looked up exactly, else interpolated over shape within its family, else it is the analytic time
// scaled by the nearest measured ratio — of its family, or of the same operator in other types. A collective's time is
// that of its group's shape and bytes, interpolated over bytes, or extrapolated to larger groups by a fit. Every cost
// has its origin and uncertainty (`Evidence`). Shares of the device and interference are the analytic model's.
//
// The software stack chooses among measured kernels (fused or not, channels last, generation of attention); those it
// would not run are left out. Products measured back to back (variant back_to_back), at the clock under the power
// limit, give the slowdown of large products under load. An optimizer updates all tensors in a few calls, so only its
// rate is used, from large tensors. An operator that is fused into its neighbour's kernel takes no time, as in the
// analytic model.
//
// Cost: construction is linear in events, times their family's size for the uncertainty; a query a few microseconds,
// from memory alone.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "cost/analytic.h"
#include "cost/measured_groups.h"
#include "cost/measured_points.h"
#include "profile/event.h"

namespace weft {

class MeasuredCost final : public CostModel {
 public:
  // `profile` is needed only here; `cluster` and `tuning` outlive the model. An error if the profile has no event of
  // the cluster's devices; its message names `file`.
  static Result<std::unique_ptr<MeasuredCost>> make(std::span<const MeasuredEvent> profile, std::string_view file,
                                                    const Cluster& cluster, const SoftwareStack& stack,
                                                    const Tuning& tuning = built_in_tuning());

  using CostModel::communicate;
  using CostModel::compute;
  void compute(std::span<const ComputeQuery> queries, std::span<ComputeCost> costs) const override;
  void communicate(std::span<const CommunicateQuery> queries, std::span<CommunicateCost> costs) const override;
  // If collectives were measured, links have their nominal bandwidth, and measured times include the efficiency.
  std::int64_t capacity(const Link& link) const override;
  Interference interference(const DeviceSpec& device) const override { return analytic_.interference(device); }

  std::int64_t operators() const { return operators_; }            // events in use
  std::int64_t communications() const { return communications_; }  // likewise

 private:
  struct OfDevice {
    std::map<OperatorFamily, FamilyPoints> families;
    // All points of an operator in one direction, of all types.
    struct Direction {
      std::vector<MeasuredPoint> points;  // by analytic time
      double spread = 0;                  // standard deviation of their ratios
    };
    std::map<std::pair<OpKind, std::string>, Direction> directions;
    std::map<Traffic, MeasuredGroups> groups;
    double model_error = 0;  // relative error of the analytic model over all points
    // Under load, products that take at least `loaded_from` seconds alone take `loaded` times as long.
    double loaded_from = 0, loaded = 1;
  };

  MeasuredCost(const SoftwareStack& stack, const Tuning& tuning) : analytic_(stack, tuning) {}
  void learn(std::span<const MeasuredEvent> profile, const DeviceSpec& device, const SoftwareStack& stack);
  ComputeCost one(const ComputeQuery& query) const;
  CommunicateCost one(const CommunicateQuery& query) const;
  Correction correct(const OfDevice& known, const ComputeQuery& query, double analytic) const;

  AnalyticCost analytic_;
  std::map<const DeviceSpec*, OfDevice> devices_;
  std::int64_t operators_ = 0, communications_ = 0;
};

// Whether a driver's name of a device ("NVIDIA H100 80GB HBM3") denotes this one (h100-sxm).
bool is_device(std::string_view measured, const DeviceSpec& device);

}  // namespace weft
