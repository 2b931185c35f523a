// `weft show strategy --costs symbolic`: what a plan computes and sends, as expressions of its shapes (SMSG).
//
// Every collective and transfer of the compiled program gives a rational expression of the tensor's axes and the mesh's
// degrees: the bytes each device sends, if parts were even. What uneven parts add — a device counts by the largest — is
// told apart, as padding; expression and padding together are the program's bytes, exactly. No times, no figures of
// devices or links.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compile/from_strategy.h"
#include "cost/symbolic.h"
#include "plan/plan.h"
#include "report/traffic.h"

namespace weft {

// Collectives or transfers that are alike, by each device of their meshes.
struct SymbolicMove {
  std::string what;                 // "layers.*.attn.out.y"
  std::string how, group;           // "all-reduce", "tp"; "send", "pp"
  Expression sent;                  // bytes by a device, once
  Bindings bindings;                // of its symbols
  Rational bytes, padding;          // the expression's value; what the program sends beyond it
  std::vector<std::int64_t> times;  // in a step, by pipeline rank
};

// Products that are alike.
struct SymbolicProduct {
  std::string what, direction;  // "layers.*.mlp.up", "grad_weight"
  Expression flops;             // of a device, once
  Bindings bindings;
  std::vector<std::int64_t> times;
};

struct SymbolicReport {
  std::vector<SymbolicProduct> products;
  std::vector<SymbolicMove> moves;

  // Of a pipeline rank in a step.
  Rational flops(std::size_t rank) const;
  Rational bytes(std::size_t rank) const;
  Rational padding(std::size_t rank) const;
  // Bytes weighted by what one counts over each mesh axis; axes that are not named count once.
  double weighted(std::size_t rank, const std::map<std::string, double>& tiers) const;
};
SymbolicReport symbolic_costs(const Plan& plan, const CompiledStrategy& compiled);

// "tp=1,dp=8": what a byte counts over a mesh axis.
Result<std::map<std::string, double>> parse_tiers(const std::string& text);

std::string describe(const Plan& plan, const CompiledStrategy& compiled, const SymbolicReport& report,
                     const std::map<std::string, double>& tiers);

// docs/schema/show-costs.schema.json. Expressions as text, with the values of their symbols; bytes and FLOPs of a
// device.
nlohmann::json to_json(const Plan& plan, const CompiledStrategy& compiled, const SymbolicReport& report,
                       const std::map<std::string, double>& tiers);

// One instruction's volume: for tests and for `symbolic_costs`.
struct SymbolicVolume {
  Expression sent;
  Bindings bindings;
  Rational program;  // what the program sends
};
SymbolicVolume symbolic_volume(const Program& program, const Graph& graph, const Communicate& communicate);
SymbolicVolume symbolic_volume(const Program& program, const Graph& graph, const Send& send);

}  // namespace weft
