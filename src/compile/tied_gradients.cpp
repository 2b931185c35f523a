#include "compile/tied_gradients.h"

namespace weft {

Status TiedGradients::sum() {
  GroupCode &code = *group_.code, *const before = group_.before;
  // What stays in the step is told apart by meshes alone, which takes one parameter.
  group_.keeps = group_.keeps && code.homes.size() == 1 && before->homes.size() == 1;
  for (auto& [parameter, homes] : code.homes) {
    const bool tied = homes.size() > 1;
    if (group_.keeps && tied != (before->homes.begin()->second.size() > 1))
      for (Home& home : homes) home.fresh = true;
    for (Home& home : homes) {
      home.total = home.others.empty() ? home.gradient : home.reduced;
      home.read = home.reduced;
    }
    if (!tied) continue;
    const TensorId gradient = tensors_.gradient_of[parameter];
    Tie tie{homes, gradient, sequence_.turns()[tensors_.terms_of[gradient].front()].op};
    for (Home& home : homes) {
      const auto make = [&] { return reduce_own(tie, home); };
      WEFT_TRY(const Reuse::Part own, reuse_.part(home.mesh, home.mesh, !home.fresh, make));
      home.fresh = home.fresh || own.lowered;
      tie.own.push_back(own.result);
    }
    WEFT_TRY_OK(homes.size() == 2 ? exchange(tie) : collect(tie));
    buffers_.of(gradient).clear();
  }
  return Ok{};
}

InstructionId TiedGradients::add(const Tie& tie, MeshId on, BufferId a, BufferId b, BufferId sum) {
  const Layout& layout = program_.buffers[sum].layout;
  return emitter_.emit(on, Compute{tie.op, splits_.on(tie.op, layout)->sharding, {a, b}, {sum}});
}

// What a home has of the gradient, in all layouts, as one buffer without partial sums. Of a weight that is tied within a
// pipeline it is the whole gradient that is exchanged (Megatron-LM: an all-reduce over the embedding's group). Routes
// exchange those of all parameters, each device only what it updates.
Result<BufferId> TiedGradients::reduce_own(const Tie& tie, const Home& home) {
  Layout whole = program_.buffers[home.gradient].layout;
  for (auto& reducer : whole.partial) reducer.reset();
  if (sequence_.routes() > 1) whole = homes_.step_layout(home);
  buffers_.of(tie.gradient) = {home.gradient};
  WEFT_TRY(BufferId sum, buffers_.as(tie.gradient, whole));
  for (BufferId other : home.others) {
    buffers_.of(tie.gradient) = {other};
    WEFT_TRY(const BufferId term, buffers_.as(tie.gradient, whole));
    const BufferId next = emitter_.add_buffer(tie.gradient, whole, BufferKind::Temporary);
    add(tie, home.mesh, sum, term, next);
    sum = next;
  }
  return sum;
}

// What `held` has of the gradient, in the layout of another home.
Result<BufferId> TiedGradients::bring_term(const Tie& tie, std::size_t to, BufferId held) {
  buffers_.of(tie.gradient) = {held};
  return buffers_.as(tie.gradient, program_.buffers[tie.own[to]].layout);
}

Status TiedGradients::exchange(Tie& tie) {
  Home &first = tie.homes[0], &second = tie.homes[1];
  const bool stay = group_.keeps && group_.before->homes.begin()->second.size() == 2 && !first.fresh && !second.fresh;
  for (std::size_t i = 0; i < 2; ++i) {
    Home& home = tie.homes[i];
    const auto make = [&]() -> Result<BufferId> {
      WEFT_TRY(const BufferId term, bring_term(tie, i, tie.own[1 - i]));
      const Layout layout = program_.buffers[tie.own[i]].layout;
      const BufferId sum = emitter_.add_buffer(tie.gradient, layout, BufferKind::Temporary);
      passages_.set_adder(add(tie, home.mesh, tie.own[i], term, sum));
      return sum;
    };
    WEFT_TRY(const Reuse::Part part, reuse_.part(home.mesh, tie.homes[1 - i].mesh, stay, make));
    home.total = part.result;
    home.fresh = home.fresh || part.lowered;
  }
  return Ok{};
}

Status TiedGradients::collect(Tie& tie) {
  std::vector<Home>& homes = tie.homes;
  GroupCode &code = *group_.code, *const before = group_.before;
  // On the mesh with the most devices, which is the nearest to most.
  std::size_t at = 0;
  for (std::size_t i = 1; i < homes.size(); ++i)
    if (splits_.mesh(homes[i].mesh).size() > splits_.mesh(homes[at].mesh).size()) at = i;
  const bool same_collector = group_.keeps && before->collector == homes[at].mesh;
  if (before && before->total.valid()) numbering_.remember_origin(before->total);
  BufferId total;
  InstructionId summed;
  for (std::size_t i = 0; i < homes.size(); ++i) {
    if (i == at) continue;
    const bool begins = !total.valid();
    const auto make = [&]() -> Result<BufferId> {
      WEFT_TRY(const BufferId term, bring_term(tie, at, tie.own[i]));
      const BufferId so_far = begins ? tie.own[at] : total;
      if (begins) {
        const Layout layout = program_.buffers[so_far].layout;
        total = emitter_.add_buffer(tie.gradient, layout, BufferKind::Temporary);
      }
      passages_.set_adder(add(tie, homes[at].mesh, so_far, term, total));
      return total;
    };
    const bool may_stay = same_collector && !homes[i].fresh &&
                          (begins ? !homes[at].fresh && before->first_term == homes[i].mesh
                                  : total == before->total && before->first_term != homes[i].mesh);
    WEFT_TRY(const Reuse::Part part, reuse_.part(homes[at].mesh, homes[i].mesh, may_stay, make));
    total = part.result;
    summed = part.adder;
    if (begins) code.first_term = homes[i].mesh;
  }
  origins_.set_writer(total, summed);
  const bool same_sum = same_collector && total == before->total && summed == before->summed;
  homes[at].total = total;
  homes[at].fresh = homes[at].fresh || !same_sum;
  for (std::size_t i = 0; i < homes.size(); ++i) {
    if (i == at) continue;
    const auto make = [&] { return bring_term(tie, i, total); };
    WEFT_TRY(const Reuse::Part part, reuse_.part(homes[i].mesh, homes[at].mesh, same_sum && !homes[i].fresh, make));
    homes[i].total = part.result;
    homes[i].fresh = homes[i].fresh || part.lowered;
  }
  code.collector = homes[at].mesh;
  code.total = total;
  code.summed = summed;
  return Ok{};
}

}  // namespace weft
