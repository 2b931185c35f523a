#include "compile/buckets.h"

#include <algorithm>
#include <functional>
#include <map>

#include "compile/uneven_parts.h"

namespace weft {

Buckets::Buckets(const Graph& graph, const Sequence& sequence, const CompileOptions& options, Program& program)
    : graph_(graph),
      sequence_(sequence),
      options_(options),
      program_(program),
      bucket_of_(sequence.turns().size()),
      at_(sequence.turns().size()),
      of_group_(sequence.groups()) {}

BucketId Buckets::new_bucket() {
  unit_.push_back({});
  return sources_.push_back({});
}

void Buckets::assign(const IdVec<GroupId, GroupCode>& groups) {
  assign_by_size(groups);
  if (options_.memory.most_zero() >= 3 && !options_.parameters.unit.empty()) assign_units();
  for (BucketId bucket : sources_.ids())
    for (const Source& source : sources_[bucket])
      if (std::vector<BucketId>& known = of_group_[source.group]; known.empty() || known.back() != bucket)
        known.push_back(bucket);
}

void Buckets::assign_by_size(const IdVec<GroupId, GroupCode>& groups) {
  struct Open {
    BucketId bucket;
    std::int64_t bytes = 0;
  };
  std::map<Chain::Key, Open> open;
  std::map<int, BucketId> of_unit;
  // Bytes at which a bucket is full; 0: never. Sums that must not overlap with backward share one, which starts when
  // the last of them is ready.
  const auto limit_of = [&](Chain::Purpose purpose) {
    const GradientSync& sync = options_.gradients;
    if (purpose == Chain::Purpose::ReduceSum && !sync.overlap) return std::int64_t{0};
    return purpose == Chain::Purpose::ReduceTerm && sync.term_bucket.value > 0 ? sync.term_bucket.value
                                                                               : sync.bucket.value;
  };
  std::size_t next = 0;
  BucketId last;
  for (TurnId turn : sequence_.turns().ids()) {
    if (!by_size(sequence_.turns()[turn].kind)) continue;
    const GroupId group = sequence_.operands(turn).front().group;
    BucketId bucket = last;
    if (!options_.buckets.empty()) {
      bucket = BucketId(static_cast<std::size_t>(options_.buckets[next++]));
    } else {
      const std::vector<Chain>& chains = groups[group].chains;
      const auto chain = std::find_if(chains.begin(), chains.end(), [&](const Chain& each) {
        return each.turn == turn && each.key.purpose != Chain::Purpose::Gather;
      });
      const bool in_units =
          chain != chains.end() && chain->key.purpose == Chain::Purpose::ReduceTerm && in_unit(chain->tensor);
      if (in_units) {  // gradients are reduced in the units in which their parameters are gathered
        const auto [found, added] = of_unit.try_emplace(options_.parameters.unit[chain->tensor]);
        if (added) found->second = new_bucket();
        bucket = found->second;
      } else if (chain != chains.end()) {
        const auto [found, added] = open.try_emplace(chain->key);
        Open& into = found->second;
        const std::int64_t limit = limit_of(chain->key.purpose);
        if (added || (limit > 0 && into.bytes >= limit)) into = {new_bucket(), 0};
        const Buffer& input =
            program_.buffers[std::get<Communicate>(program_.instructions[chain->steps.front()].what).inputs[0]];
        into.bytes += bytes_of(graph_.tensors()[input.tensor].type.dtype,
                               largest_local_elements(input.layout, program_.meshes[input.layout.mesh]));
        bucket = into.bucket;
      }
    }
    if (!bucket.valid()) bucket = new_bucket();
    while (!sources_.contains(bucket)) new_bucket();
    last = bucket_of_[turn] = bucket;
    if (sequence_.turns()[turn].kind == TurnKind::Optimizer && options_.memory.most_zero() == 0)
      continue;  // nothing to publish
    sources_[bucket].push_back({group, turn});
    at_[turn].push_back(bucket);
    if (std::vector<BucketId>& late = at_[sequence_.reduction()];
        std::find(late.begin(), late.end(), bucket) == late.end())
      late.push_back(bucket);
  }
}

// One bucket for every unit, phase and route. A unit is used first by the first turn that needs one of its parameters.
void Buckets::assign_units() {
  const ParameterSync& sync = options_.parameters;
  std::map<std::tuple<Phase, int, int>, BucketId> known;
  std::vector<BucketId> order;
  IdVec<BucketId, std::pair<TurnId, TurnId>> uses(sources_.size());  // first and last
  for (TurnId turn : sequence_.turns().ids()) {
    const Turn& described = sequence_.turns()[turn];
    if (described.kind != TurnKind::Operator) continue;
    const auto inputs = graph_.inputs(described.op);
    for (TensorId input : inputs) {
      const int unit = sync.unit[input];
      if (unit < 0 || graph_.tensors()[input].kind != TensorKind::Parameter) continue;
      const auto [found, added] = known.try_emplace({described.phase, described.route, unit});
      if (added) {
        found->second = new_bucket();
        unit_[found->second] = {unit, described.route, described.phase, turn, {}};
        order.push_back(found->second);
        uses.push_back({turn, turn});
      }
      uses[found->second].second = turn;
      const GroupId group = sequence_.group_of(input, described.route);
      std::vector<Source>& sources = sources_[found->second];
      if (std::none_of(sources.begin(), sources.end(), [&](const Source& each) { return each.group == group; }))
        sources.push_back({group, TurnId()});
    }
  }
  // Each is issued where the one before it is used first, and no more are gathered at a time than may be in flight.
  for (std::size_t i = 0; i < order.size(); ++i) {
    Unit& unit = unit_[order[i]];
    const auto alike = [&](std::size_t j) {
      return unit_[order[j]].phase == unit.phase && unit_[order[j]].route == unit.route;
    };
    const bool ahead = unit.phase == Phase::Forward ? sync.prefetch_forward : sync.prefetch_backward;
    if (ahead && i > 0 && alike(i - 1)) unit.host = uses[order[i - 1]].first;
    const auto limit = static_cast<std::size_t>(std::max(sync.in_flight, 1));
    // (The unit of what is outside the layers is used first and last, so it stays gathered throughout: no wait.)
    if (i >= limit && alike(i - limit) && uses[order[i - limit]].second < unit.host)
      unit.wait_for = uses[order[i - limit]].second;
    at_[unit.host].push_back(order[i]);
  }
}

std::vector<int> Buckets::assignment() const {
  std::vector<int> list;
  for (TurnId turn : sequence_.turns().ids())
    if (by_size(sequence_.turns()[turn].kind)) list.push_back(static_cast<int>(bucket_of_[turn].index()));
  return list;
}

std::vector<BucketId> Buckets::of(GroupId group) const { return of_group_[group]; }

bool Buckets::belongs(const Chain& chain, BucketId bucket, const Source& source) const {
  const bool gathers = chain.key.purpose == Chain::Purpose::Gather;
  if (source.turn.valid()) return chain.turn == source.turn && !gathers;
  const Unit& unit = unit_[bucket];
  const Turn& turn = sequence_.turns()[chain.turn];
  return gathers && options_.parameters.unit[chain.tensor] == unit.unit && turn.phase == unit.phase &&
         turn.route == unit.route;
}

// Whether the members of a bucket are not contiguous and are copied into a buffer of its own. Terms that fill a bucket
// of a given size are made and reduced in it (gradient_sums.h), so they are contiguous.
bool Buckets::is_staged(Chain::Purpose purpose, const Chain& member) const {
  switch (purpose) {
    case Chain::Purpose::ReduceSum:
      return !options_.gradients.flat;
    case Chain::Purpose::ReduceTerm:
      return in_unit(member.tensor) && !options_.gradients.flat;
    case Chain::Purpose::Publish:
    case Chain::Purpose::Gather:
      return !options_.parameters.flat;
  }
  return false;
}

BucketCode Buckets::join(BucketId bucket, const IdVec<GroupId, GroupCode>& groups, const BucketCode& before,
                         Lowering& lowering, const std::function<void(InstructionId)>& touched) const {
  BucketCode pieces;
  const Unit& unit = unit_[bucket];
  for (const Source& source : sources_[bucket]) {
    const std::vector<Chain>& chains = groups[source.group].chains;
    for (std::size_t c = 0; c < chains.size(); ++c) {
      const Chain& chain = chains[c];
      if (!belongs(chain, bucket, source)) continue;
      auto piece =
          std::find_if(pieces.begin(), pieces.end(), [&](const BucketPiece& each) { return each.key == chain.key; });
      if (piece == pieces.end()) piece = pieces.insert(pieces.end(), {chain.key, {}, false, {}, {}});
      // Issued at the turn of its last chain; a sum that must not overlap with backward, after the last backward.
      const bool late = chain.key.purpose == Chain::Purpose::ReduceSum && !options_.gradients.overlap;
      piece->ahead = chain.key.purpose == Chain::Purpose::Gather;
      piece->turn = piece->ahead ? unit.host : late ? sequence_.reduction() : chain.turn;
      piece->members.push_back({source.group, static_cast<std::uint32_t>(c)});
    }
  }
  for (BucketPiece& piece : pieces) {
    const auto old =
        std::find_if(before.begin(), before.end(), [&](const BucketPiece& each) { return each.key == piece.key; });
    for (std::size_t s = 0; s < piece.key.steps.size(); ++s) {
      Instruction joined;
      for (std::size_t m = 0; m < piece.members.size(); ++m) {
        const Chain& chain = groups[piece.members[m].group].chains[piece.members[m].chain];
        const Instruction& one = program_.instructions[chain.steps[s]];
        if (m == 0) {
          joined = one;
          continue;
        }
        const auto& step = std::get<Communicate>(one.what);
        auto& all = std::get<Communicate>(joined.what);
        all.inputs.push_back(step.inputs[0]);
        all.outputs.push_back(step.outputs[0]);
        if (step.parts != Parts::Even) all.parts = step.parts;
      }
      auto& all = std::get<Communicate>(joined.what);
      // Uneven if one of them is; padded or grouped is chosen for all of them together.
      if (all.parts != Parts::Even && piece.members.size() > 1)
        all.parts = settled_parts(program_, graph_, all, options_);
      all.staged = all.collective != Collective::Slice &&
                   is_staged(piece.key.purpose, groups[piece.members[0].group].chains[piece.members[0].chain]);
      InstructionId id;
      if (old != before.end()) {
        id = old->joined[s];
        touched(id);
        program_.instructions[id] = std::move(joined);
      } else {
        id = lowering.numbering().new_instruction(std::move(joined));
      }
      piece.joined.push_back(id);
      lowering.waits().write(id);
      Instruction& written = program_.instructions[id];
      if (s == 0 && unit.wait_for.valid()) written.after.push_back(lowering.main(unit.wait_for));
      for (BufferId output : std::get<Communicate>(written.what).outputs) lowering.origins().set_writer(output, id);
      for (const BucketPiece::Member& member : piece.members)
        lowering.waits().set_joined(groups[member.group].chains[member.chain].steps[s], id);
    }
  }
  return pieces;
}

}  // namespace weft
