// `weft show strategy --costs symbolic`: the computation and traffic of a plan, as expressions in its shapes (SMSG).
//
// Every collective and transfer of the compiled program gives a rational expression in the tensor's axes and the mesh's
// degrees: the bytes each device would send with even parts. The excess of uneven parts — the largest counts — is
// listed separately, as padding; expression plus padding is exactly the program's bytes. No times, no figures of
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

// Equal collectives or transfers, per device of their meshes.
struct SymbolicMove {
  std::string what;                 // "layers.*.attn.out.y"
  std::string how, group;           // "all-reduce", "tp"; "send", "pp"
  Expression sent;                  // bytes per device and execution
  Bindings bindings;                // values of its symbols
  Rational bytes, padding;          // the expression's value; the program's bytes beyond it
  std::vector<std::int64_t> times;  // in a step, by pipeline rank
};

// Equal products.
struct SymbolicProduct {
  std::string what, direction;  // "layers.*.mlp.up", "grad_weight"
  Expression flops;             // per device and execution
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
  // Bytes weighted by mesh axis; axes that are not named have weight 1.
  double weighted(std::size_t rank, const std::map<std::string, double>& tiers) const;
};
SymbolicReport symbolic_costs(const Plan& plan, const CompiledStrategy& compiled);

// "tp=1,dp=8": the weight of a byte sent over a mesh axis.
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
  Rational program;  // bytes that the program sends
};
SymbolicVolume symbolic_volume(const Program& program, const Graph& graph, const Communicate& communicate);
SymbolicVolume symbolic_volume(const Program& program, const Graph& graph, const Send& send);

}  // namespace weft
