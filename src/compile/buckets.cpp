#include "compile/buckets.h"

#include <algorithm>
#include <map>

namespace weft {

const GradientTerm* Buckets::term_of(TurnId turn, const IdVec<GroupId, GroupCode>& groups) const {
  for (const GradientTerm& term : groups[sequence_.operands(turn).front().group].terms)
    if (term.turn == turn) return &term;
  return nullptr;
}

void Buckets::assign(const IdVec<GroupId, GroupCode>& groups, const std::vector<int>& given) {
  struct Open {
    int bucket = 0;
    std::int64_t bytes = 0;
  };
  std::map<GradientTerm::Key, Open> open;
  std::size_t next = 0;
  int buckets = 0, last = 0;
  for (TurnId turn : sequence_.turns().ids()) {
    if (sequence_.turns()[turn].kind != TurnKind::Accumulate) continue;
    int bucket = last;
    if (!given.empty()) {
      bucket = given[next++];
    } else if (const GradientTerm* term = term_of(turn, groups)) {
      const auto [found, added] = open.try_emplace(term->key);
      Open& into = found->second;
      if (added || (sync_.bucket.value > 0 && into.bytes >= sync_.bucket.value)) into = {buckets++, 0};
      const Buffer& input =
          program_.buffers[std::get<Communicate>(program_.instructions[term->steps.front()].what).inputs[0]];
      into.bytes += bytes_of(graph_.tensors()[input.tensor].type.dtype,
                             largest_local_elements(input.layout, program_.meshes[input.layout.mesh]));
      bucket = into.bucket;
    }
    last = bucket_of_[turn] = bucket;
    turns_.resize(std::max(turns_.size(), static_cast<std::size_t>(bucket) + 1));
    turns_[static_cast<std::size_t>(bucket)].push_back(turn);
  }
}

std::vector<int> Buckets::assignment() const {
  std::vector<int> list;
  for (TurnId turn : sequence_.turns().ids())
    if (sequence_.turns()[turn].kind == TurnKind::Accumulate) list.push_back(bucket_of_[turn]);
  return list;
}

BucketCode Buckets::join(int bucket, const IdVec<GroupId, GroupCode>& groups, const BucketCode& before,
                         Lowering& lowering, const std::function<void(InstructionId)>& touched) {
  BucketCode pieces;
  for (TurnId turn : turns_[static_cast<std::size_t>(bucket)]) {
    const GradientTerm* term = term_of(turn, groups);
    if (!term) continue;
    auto piece =
        std::find_if(pieces.begin(), pieces.end(), [&](const BucketPiece& each) { return each.key == term->key; });
    if (piece == pieces.end()) piece = pieces.insert(pieces.end(), {term->key, {}, {}, {}});
    piece->turn = sync_.overlap || term->reduce_first ? turn : sequence_.reduction();
    piece->members.push_back(turn);
  }
  for (BucketPiece& piece : pieces) {
    const auto old =
        std::find_if(before.begin(), before.end(), [&](const BucketPiece& each) { return each.key == piece.key; });
    for (std::size_t s = 0; s < piece.key.steps.size(); ++s) {
      Instruction joined;
      for (TurnId turn : piece.members) {
        const Instruction& one = program_.instructions[term_of(turn, groups)->steps[s]];
        const auto& step = std::get<Communicate>(one.what);
        if (turn == piece.members.front()) {
          joined = one;
          continue;
        }
        auto& all = std::get<Communicate>(joined.what);
        all.inputs.push_back(step.inputs[0]);
        all.outputs.push_back(step.outputs[0]);
      }
      InstructionId id;
      if (old != before.end()) {
        id = old->joined[s];
        touched(id);
        program_.instructions[id] = std::move(joined);
      } else {
        id = lowering.new_instruction(std::move(joined));
      }
      piece.joined.push_back(id);
      for (TurnId turn : piece.members) lowering.set_joined(term_of(turn, groups)->steps[s], id);
      lowering.add_waits(id);
      for (BufferId output : std::get<Communicate>(program_.instructions[id].what).outputs)
        lowering.set_writer(output, id);
    }
  }
  return pieces;
}

}  // namespace weft
