// What plans a software stack can run, whatever they would cost: the kinds of parallelism, sharding, recomputation and
// schedules it has code for. One entry of presets/stacks.yaml per stack, `can`, with its source.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

struct Parallelism;

enum class Ability : std::uint8_t {
  Tensor,        // tp
  Sequence,      // sp=1 with tp
  Context,       // cp, keys and values gathered
  AllToAll,      // cp_mode=a2a
  Ring,          // cp_mode=ring
  Expert,        // ep
  ExpertTensor,  // etp other than tp
  Pipeline,      // pp, one forward and one backward
  Interleaved,   // vpp
  GPipe,         // schedule=gpipe
  ZeroBubble,    // schedule=zb-h1 and the like: one chunk per rank, split backward pass
  ZeroBubbleV,   // schedule=zb-v, dualpipe and the like: two chunks per rank
  Uneven,        // stages=, other than equal
  Zero1,
  Zero2,
  Zero3,
  Hybrid,         // fsdp= and replicate=
  PipelinedZero,  // zero=2 and 3 with pp
  Selective,      // recompute=selective
  Full,           // recompute=full
  Operators,      // recompute=op: everything but matrix products
  Modules,        // full=: modules of a layer
  Layers,         // recompute= and full= in some layers only
  Offload,        // offload=
  UnevenSamples,  // shares=
  EveryOperator   // a split of its own for every operator
};
inline constexpr int kAbilities = 26;
// As in presets/stacks.yaml: "tp", "sp", "cp", "vpp", "zero3" …
std::string_view name_of(Ability ability);
std::optional<Ability> ability_named(std::string_view name);

class Abilities {
 public:
  constexpr Abilities() = default;
  constexpr Abilities(std::initializer_list<Ability> all) {
    for (Ability each : all) add(each);
  }
  static constexpr Abilities all() {
    Abilities made;
    made.bits_ = (1U << kAbilities) - 1;
    return made;
  }

  constexpr void add(Ability ability) { bits_ |= 1U << static_cast<unsigned>(ability); }
  constexpr bool has(Ability ability) const { return (bits_ >> static_cast<unsigned>(ability) & 1U) != 0; }
  constexpr bool include(Abilities other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr Abilities without(Abilities other) const {
    Abilities made;
    made.bits_ = bits_ & ~other.bits_;
    return made;
  }
  constexpr int count() const { return std::popcount(bits_); }
  bool operator==(const Abilities&) const = default;

 private:
  std::uint32_t bits_ = 0;
};
// "tp sp pp zero1", in the order above; "all"; "dp" where there is none.
std::string print(Abilities abilities);

// What a stack must have code for to run this plan.
Abilities needed_by(const Parallelism& plan);

}  // namespace weft
