// Checks that layouts are well formed, and that every collective makes the layouts of its outputs from those of its
// inputs.
//
// What a collective must give is found by writing a dimension in mixed radix. The dimension [1024: dp, tp] on dp=2 and
// tp=4 has the digits dp·2, tp·4, 128, outer first: a device holds the positions whose dp and tp digits are its
// coordinates and whose third digit is anything. To gather axes is to set their digits free, to scatter along them the
// reverse; two dimensions are held alike if their digits are the same, neighbouring free ones taken as one. An uneven
// cut and what follows it in a factor have no digits: they are one of its own kind, from which only the last cuts can
// be taken. Its shares are of any size, so that it includes what is free behind it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "program/verify_parts.h"

namespace weft {
namespace {

constexpr int kFree = -1;

struct Digit {
  std::int64_t size = 1;
  int axis = kFree;
  std::vector<Cut> uneven = {};  // an uneven cut, and all that follow it in its factor

  bool operator==(const Digit&) const = default;
};
using Digits = std::vector<Digit>;

// `gathered`: mesh axes to be taken as free.
Digits digits_of(const DimLayout& dim, const Mesh& mesh, MeshAxes gathered) {
  Digits digits;
  const auto add = [&](Digit digit) {
    if (digit.size == 1 && digit.uneven.empty()) return;
    const bool free = digit.axis == kFree && digit.uneven.empty();
    if (free && !digits.empty() && digits.back().axis == kFree)
      digits.back().size *= digit.size;
    else
      digits.push_back(std::move(digit));
  };
  for (Factor factor : dim) {
    while (!factor.cuts.empty() && (gathered & axis_set(factor.cuts.back().mesh_axis)) != 0) factor.cuts.pop_back();
    std::int64_t rest = factor.size;
    auto cut = factor.cuts.begin();
    for (; cut != factor.cuts.end() && cut->shares.empty(); ++cut) {
      const int parts = mesh.axes()[static_cast<std::size_t>(cut->mesh_axis)].size;
      add({parts, (gathered & axis_set(cut->mesh_axis)) != 0 ? kFree : cut->mesh_axis});
      rest /= parts;
    }
    add({rest, kFree, {cut, factor.cuts.end()}});
  }
  return digits;
}

bool has_halo(const Cut& cut) { return cut.halo_low != 0 || cut.halo_high != 0 || cut.halo_sum; }

bool has_halo_along(const Layout& layout, MeshAxes axes) {
  for (const DimLayout& dim : layout.dims)
    for (const Factor& factor : dim)
      for (const Cut& cut : factor.cuts)
        if ((axes & axis_set(cut.mesh_axis)) != 0 && has_halo(cut)) return true;
  return false;
}

class LayoutChecker {
 public:
  LayoutChecker(const Program& program, const Graph& graph) : program_(program), graph_(graph) {}

  Status check() const {
    for (BufferId id : program_.buffers.ids())
      if (const std::string problem = problem_of(id); !problem.empty())
        return error("{}: {}", described(program_, graph_, id), problem);
    for (TransferId id : program_.transfers.ids()) WEFT_TRY_OK(check_transfer(id));
    for (InstructionId id : program_.instructions.ids()) WEFT_TRY_OK(check_instruction(id));
    return Ok{};
  }

 private:
  const Layout& layout(BufferId id) const { return program_.buffers[id].layout; }
  TensorId tensor(BufferId id) const { return program_.buffers[id].tensor; }
  // The same value: one tensor, or one that is updated in place.
  bool same_value(BufferId a, BufferId b) const {
    return graph_.tensors()[tensor(a)].storage == graph_.tensors()[tensor(b)].storage;
  }

  std::string problem_of(BufferId id) const {
    const Layout& of = layout(id);
    const Mesh& mesh = program_.meshes[of.mesh];
    const std::size_t axes = mesh.axes().size();
    const Shape& shape = graph_.tensors()[tensor(id)].type.shape;
    if (of.dims.size() != shape.size()) return "its layout is of another shape";
    const BufferKind kind = program_.buffers[id].kind;
    if (kind == BufferKind::Scalar || kind == BufferKind::Result) {
      if (!shape.empty() || is_partial(of))
        return fmt::format("is no {}: one number, the same everywhere", name_of(kind));
      if (kind == BufferKind::Result && of.mesh != program_.world) return "is no result: every device must have it";
    }
    if (of.partial.size() != axes || of.local >> axes != 0) return "its layout is of another mesh";
    MeshAxes used = of.local;
    for (std::size_t axis = 0; axis < axes; ++axis)
      if (of.partial[axis]) {
        if (used >> axis & 1u) return fmt::format("is both local and partial along {}", mesh.axes()[axis].name);
        used |= MeshAxes{1} << axis;
      }
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::int64_t extent = 1;
      for (const Factor& factor : of.dims[d]) {
        if (factor.size < 1 || shape[d] % factor.size != 0 || extent > shape[d] / factor.size)
          return "its layout is of another shape";
        extent *= factor.size;
        std::int64_t unit = factor.size;  // all parts so far are multiples of it
        for (const Cut& cut : factor.cuts) {
          if (cut.mesh_axis < 0 || static_cast<std::size_t>(cut.mesh_axis) >= axes) return "is cut by no mesh axis";
          const MeshAxis& by = mesh.axes()[static_cast<std::size_t>(cut.mesh_axis)];
          if (used >> cut.mesh_axis & 1u) return fmt::format("has two uses for mesh axis {}", by.name);
          used |= MeshAxes{1} << cut.mesh_axis;
          if (cut.halo_low < 0 || cut.halo_high < 0) return "has a negative halo";
          if (cut.rotate < 0 || cut.rotate >= by.size)
            return fmt::format("is handed on beyond the ring of {}", by.name);
          const std::optional<std::int64_t> units = checked_units(cut, by.size);
          if (!units || unit % *units != 0)
            return fmt::format("the parts along {} do not make up dimension {}", by.name, d);
          unit /= *units;
        }
      }
      if (extent != shape[d]) return "its layout is of another shape";
    }
    return "";
  }
  // The number of equal units that the cut's shares consist of; none where the shares are not `degree` in number.
  static std::optional<std::int64_t> checked_units(const Cut& cut, int degree) {
    if (cut.shares.empty()) return degree;
    if (cut.shares.size() != static_cast<std::size_t>(degree)) return std::nullopt;
    std::optional<std::int64_t> units = 0;
    for (std::int64_t share : cut.shares) {
      units = share < 0 ? std::nullopt : checked_add(*units, share);
      if (!units) return std::nullopt;
    }
    return *units > 0 ? units : std::nullopt;
  }

  Status check_transfer(TransferId id) const {
    const auto [from, to] = program_.transfers[id];
    if (!same_value(from, to))
      return error("transfer t{} turns {} into {}", id.index(), described(program_, graph_, from),
                   described(program_, graph_, to));
    for (BufferId each : {from, to})
      if (is_partial(layout(each)) || is_rotated(layout(each)) || layout(each) != without_halos(layout(each)))
        return error("transfer t{}: {} is a contribution or has halos; only whole values cross from mesh to mesh",
                     id.index(), described(program_, graph_, each));
    return Ok{};
  }

  // A scalar that every device of the world has.
  bool had_by_all(BufferId id) const {
    return layout(id).mesh == program_.world && layout(id).dims.empty() && !is_partial(layout(id));
  }

  Status check_instruction(InstructionId id) const {
    const Instruction& instruction = program_.instructions[id];
    const bool everywhere = std::holds_alternative<SumScalars>(instruction.what);
    const bool copies = std::holds_alternative<Copy>(instruction.what);
    const auto named = [&](BufferId buffer) { return described(program_, graph_, buffer); };
    const std::span<const BufferId> reads = reads_of(program_, instruction), writes = writes_of(program_, instruction);
    for (const auto* list : {&reads, &writes})
      for (BufferId buffer : *list) {
        if (!everywhere && layout(buffer).mesh != instruction.mesh && !(list == &reads && had_by_all(buffer)))
          return error("{} is used by an instruction of another mesh, {}", named(buffer),
                       described(program_, graph_, id));
        if (program_.buffers[buffer].on_host && !copies)
          return error("{} is on the host, where only copies reach it, and is used by {}", named(buffer),
                       described(program_, graph_, id));
      }
    if (const auto* compute = std::get_if<Compute>(&instruction.what))
      for (BufferId buffer : reads)
        if (const auto& narrow = program_.buffers[buffer].narrow; narrow && narrow != factor_type(compute->products))
          return error("{} is held as {} and read by {}, which does not round its factors to that", named(buffer),
                       name_of(*narrow), described(program_, graph_, id));
    if (const auto* free = std::get_if<Free>(&instruction.what))
      if (layout(free->buffer).mesh != instruction.mesh)
        return error("{} is freed by another mesh than holds it", named(free->buffer));
    if (const auto* compute = std::get_if<Compute>(&instruction.what)) return check_compute(id, *compute);
    if (const auto* communicate = std::get_if<Communicate>(&instruction.what))
      return check_communicate(id, *communicate);
    if (const auto* combine = std::get_if<Combine>(&instruction.what)) return check_combine(id, *combine);
    if (const auto* sum = std::get_if<SumScalars>(&instruction.what)) {
      std::size_t terms = 0;
      for (std::uint32_t count : sum->counts) terms += count;
      if (sum->counts.size() != sum->outputs.size() || terms != sum->inputs.size())
        return error("{} has {} sums of {} terms in all, but {} results and {} inputs", described(program_, graph_, id),
                     sum->counts.size(), terms, sum->outputs.size(), sum->inputs.size());
    }
    if (const auto* copy = std::get_if<Copy>(&instruction.what)) {
      if (program_.buffers[copy->from].on_host == program_.buffers[copy->to].on_host)
        return error("{} does not copy between device and host", described(program_, graph_, id));
      if (layout(copy->from) != layout(copy->to) || !same_value(copy->from, copy->to))
        return error("{}: a copy leaves tensor and layout as they are", described(program_, graph_, id));
    }
    return Ok{};
  }

  // Operands have the operator's shapes. (Copies of a tied gradient are added by an accumulation of other tensors.)
  Status check_compute(InstructionId id, const Compute& compute) const {
    const auto inputs = graph_.inputs(compute.op), outputs = graph_.outputs(compute.op);
    if (compute.inputs.size() != inputs.size() || compute.outputs.size() != outputs.size())
      return error("{} has {} inputs and {} outputs; the operator has {} and {}", described(program_, graph_, id),
                   compute.inputs.size(), compute.outputs.size(), inputs.size(), outputs.size());
    if (compute.sharding.mesh != program_.instructions[id].mesh ||
        compute.sharding.axes.size() != graph_.signature(compute.op).axes.size())
      return error("{}: its sharding is of another mesh or operator", described(program_, graph_, id));
    const std::vector<MeshAxis>& axes = program_.meshes[compute.sharding.mesh].axes();
    for (const std::vector<Cut>& cuts : compute.sharding.axes)
      for (const Cut& cut : cuts)
        if (!checked_units(cut, axes[static_cast<std::size_t>(cut.mesh_axis)].size))
          return error("{}: its shares are not those of the parts along {}", described(program_, graph_, id),
                       axes[static_cast<std::size_t>(cut.mesh_axis)].name);
    const auto check = [&](const BufferList& buffers, std::span<const TensorId> tensors) -> Status {
      for (std::size_t i = 0; i < buffers.size(); ++i)
        if (graph_.tensors()[tensor(buffers[i])].type.shape != graph_.tensors()[tensors[i]].type.shape)
          return error("{} uses {} for {}", described(program_, graph_, id), described(program_, graph_, buffers[i]),
                       graph_.name(tensors[i]));
      return Ok{};
    };
    WEFT_TRY_OK(check(compute.inputs, inputs));
    WEFT_TRY_OK(check(compute.outputs, outputs));
    // What begins a sum is all of it: an accumulation's term, laid out as the sum is.
    if (compute.begins &&
        (graph_.kind(compute.op) != OpKind::Accumulate || layout(compute.inputs[1]) != layout(compute.outputs[0]) ||
         program_.instructions[id].guard != Guard::Always))
      return error("{} does not begin a sum: it is no accumulation of every micro-batch whose term is laid out like it",
                   described(program_, graph_, id));
    return Ok{};
  }

  // Terms and result are the same tensors in the same layouts.
  Status check_combine(InstructionId id, const Combine& combine) const {
    const std::size_t results = combine.reducer == Reducer::Sum ? 1 : 2;
    if (combine.reducer != Reducer::Sum && combine.reducer != Reducer::SoftmaxMerge)
      return error("{}: what is combined is added or softmax-merged", described(program_, graph_, id));
    if (combine.outputs.size() != results || combine.inputs.size() != 2 * results)
      return error("{} takes {} buffers and gives {}, not {} and {}", described(program_, graph_, id),
                   combine.inputs.size(), combine.outputs.size(), 2 * results, results);
    for (std::size_t i = 0; i < combine.inputs.size(); ++i) {
      const BufferId in = combine.inputs[i], out = combine.outputs[i % results];
      if (tensor(in) != tensor(out) || layout(in) != layout(out))
        return error("{}: {} is combined into {}, which is another tensor or layout", described(program_, graph_, id),
                     described(program_, graph_, in), described(program_, graph_, out));
    }
    // Values and their weights: y[b,q,h.d], lse[b,h,q].
    if (results == 2) {
      const Shape &y = graph_.tensors()[tensor(combine.outputs[0])].type.shape,
                  &lse = graph_.tensors()[tensor(combine.outputs[1])].type.shape;
      if (y.size() != 3 || lse.size() != 3 || y[0] != lse[0] || y[1] != lse[2] || lse[1] < 1 || y[2] % lse[1] != 0)
        return error("{}: {} does not weigh {}", described(program_, graph_, id),
                     described(program_, graph_, combine.outputs[1]), described(program_, graph_, combine.outputs[0]));
    }
    return Ok{};
  }

  Status check_communicate(InstructionId id, const Communicate& communicate) const {
    const Mesh& mesh = program_.meshes[program_.instructions[id].mesh];
    const auto named = [&] { return described(program_, graph_, id); };
    if (communicate.axes == 0 || communicate.axes >> mesh.axes().size() != 0)
      return error("{} is over no mesh axes", named());
    const bool weighed = communicate.reducer == Reducer::SoftmaxMerge;
    if (communicate.outputs.empty() || communicate.inputs.size() != communicate.outputs.size() + (weighed ? 1 : 0))
      return error("{} takes {} buffers and gives {}", named(), communicate.inputs.size(), communicate.outputs.size());
    for (std::size_t i = 0; i < communicate.outputs.size(); ++i) {
      const BufferId in = communicate.inputs[i], out = communicate.outputs[i];
      if (!same_value(in, out))
        return error("{} turns {} into {}", named(), described(program_, graph_, in), described(program_, graph_, out));
      if (const std::string problem = change_problem(communicate, layout(in), layout(out), mesh); !problem.empty())
        return error("{}: {} becomes {}, but {}", named(), print(layout(in), mesh), print(layout(out), mesh), problem);
    }
    const bool uneven = has_uneven_parts(program_, communicate);
    if (uneven && communicate.parts == Parts::Even)
      return error("{} is of parts of different sizes along {}, which are padded or grouped", named(),
                   mesh.names_of(communicate.axes));
    if (!uneven && communicate.parts != Parts::Even)
      return error("{} is {}, but its parts along {} are of one size", named(), name_of(communicate.parts),
                   mesh.names_of(communicate.axes));
    return Ok{};
  }

  // What is wrong with a change of layout that this collective claims to make.
  std::string change_problem(const Communicate& communicate, const Layout& in, const Layout& out,
                             const Mesh& mesh) const {
    const MeshAxes axes = communicate.axes;
    const auto along = [&] { return mesh.names_of(axes); };
    const bool halos =
        communicate.collective == Collective::HaloExchange || communicate.collective == Collective::HaloSum;
    const bool reduces =
        communicate.collective == Collective::AllReduce || communicate.collective == Collective::ReduceScatter;
    if (in.local != out.local) return "what is local to a device stays so";
    for (std::size_t axis = 0; axis < in.partial.size(); ++axis) {
      const bool own = (axes >> axis & 1u) != 0;
      if (!own && in.partial[axis] != out.partial[axis])
        return fmt::format("it changes nothing along {}", mesh.axes()[axis].name);
      if (own && (reduces ? in.partial[axis] != communicate.reducer || out.partial[axis]
                          : in.partial[axis] != out.partial[axis]))
        return fmt::format("the result must {} along {}",
                           reduces ? fmt::format("be whole, the {} of what is partial", name_of(communicate.reducer))
                                   : std::string("be partial or whole as before"),
                           mesh.axes()[axis].name);
    }
    const int axis = std::countr_zero(axes);
    if ((halos || communicate.collective == Collective::Shift) && axes != axis_set(axis))
      return fmt::format("it goes along one mesh axis, not {}", along());
    if (halos) return halo_problem(communicate.collective, in, out, axis);

    if (communicate.collective == Collective::Shift)
      return (split_axes(in) & axes) != 0 && rotated(in, axis, 1, mesh) == out
                 ? ""
                 : fmt::format("it hands each part along {} to the next device", along());
    if (is_rotated(in) || is_rotated(out)) return "what is on its way around a ring is only shifted";

    const MeshAxes before = split_axes(in) & axes, after = split_axes(out) & axes;
    const auto is = [&](bool cut_before, bool cut_after) {
      return before == (cut_before ? axes : 0) && after == (cut_after ? axes : 0);
    };
    switch (communicate.collective) {
      case Collective::AllReduce:
        if (!is(false, false)) return fmt::format("it leaves no cut along {}", along());
        break;
      case Collective::AllGather:
        if (!is(true, false)) return fmt::format("it takes a cut along {} away", along());
        break;
      case Collective::ReduceScatter:
      case Collective::Slice:
        if (!is(false, true)) return fmt::format("it makes a cut along {}", along());
        break;
      case Collective::AllToAll:
        if (!is(true, true)) return fmt::format("it moves a cut along {}", along());
        break;
      default:
        break;
    }
    if (has_halo_along(in, axes) || has_halo_along(out, axes)) return "halos are exchanged or summed apart";
    // With the axes free on both sides the digits are equal: the group together holds what it held before.
    for (std::size_t d = 0; d < in.dims.size(); ++d)
      if (digits_of(in.dims[d], mesh, axes) != digits_of(out.dims[d], mesh, axes))
        return fmt::format("the groups along {} do not have together what dimension {} needs", along(), d);
    return "";
  }

  static std::string halo_problem(Collective collective, const Layout& in, const Layout& out, int axis) {
    const bool sum = collective == Collective::HaloSum;
    // The layout with the halo must equal the other but for the halo.
    const Layout& with = sum ? in : out;
    Layout expected = with;
    bool found = false;
    for (DimLayout& dim : expected.dims)
      for (Factor& factor : dim)
        for (Cut& cut : factor.cuts)
          if (cut.mesh_axis == axis) {
            found = has_halo(cut) && cut.halo_sum == sum;
            cut = {.mesh_axis = cut.mesh_axis, .shares = cut.shares, .rotate = cut.rotate};
          }
    if (!found) return sum ? "it adds up a halo of sums" : "it fills a halo";
    return expected == (sum ? out : in) ? "" : "it changes nothing but the halo";
  }

  const Program& program_;
  const Graph& graph_;
};

}  // namespace

Status check_layouts(const Program& program, const Graph& graph) { return LayoutChecker(program, graph).check(); }

}  // namespace weft
