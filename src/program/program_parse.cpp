// Programs as text: parse.
#include <algorithm>
#include <optional>

#include "program/program_names.h"
#include "program/program_text.h"
#include "program/scanner.h"

namespace weft {
namespace {

// More positions in all meshes together than any cluster has; bounds what a short text can ask for.
constexpr std::size_t kMostPositions = std::size_t{1} << 21;

class Parser {
 public:
  explicit Parser(const Graph& graph) : graph_(graph), tensors_(graph, graph.tensors()), ops_(graph, graph.ops()) {}

  Status parse_line(std::string_view text, int line) {
    line_ = line;
    Scanner in(text);
    if (in.at_end()) return Ok{};
    if (!headed_) return parse_header(in);
    if (in.at("#")) return parse_instruction(in);
    if (in.take("mesh ")) return parse_mesh(in);
    if (in.take("world ")) return parse_world(in);
    if (in.take("buffer ")) return parse_buffer(in);
    if (in.take("transfer ")) return parse_transfer(in);
    if (in.take("stage ")) return parse_stage(in);
    if (in.take("step:")) return parse_last_body(in, Section::Step);
    if (in.take("nowhere:")) return parse_last_body(in, Section::Nowhere);
    return error(
        "expected mesh, world, buffer, transfer, stage, step, nowhere or an instruction such as '#0 m0 …', found {}",
        in.here());
  }

  // References to what may stand further down; an error's line is left in line().
  Result<Program> finish() {
    if (!headed_) return error("no program; begin with 'program of {}'", graph_.name());
    if (section_ != Section::Step && section_ != Section::Nowhere) return error("no step; end with 'step:'");
    for (BufferId id : p_.buffers.ids())
      for (BufferId other : {p_.buffers[id].storage, p_.buffers[id].memory})
        if (!p_.buffers.contains(other)) {
          line_ = buffer_line_[id];
          return lacks("buffer", 'b', other.index(), p_.buffers.size());
        }
    p_.instructions.resize(lines_.size());
    IdVec<InstructionId, char> defined(lines_.size(), 0);
    for (InstructionLine& each : lines_) {
      line_ = each.line;
      if (!defined.contains(each.id))
        return error("instruction #{}: there are {}, numbered from #0 without gaps", each.id.index(), lines_.size());
      if (defined[each.id]++) return error("instruction #{} is there twice", each.id.index());
      for (InstructionId before : each.instruction.after)
        if (!defined.contains(before)) return error("instruction #{} is not there", before.index());
      p_.instructions[each.id] = std::move(each.instruction);
    }
    for (const auto& [id, line] : again_) {
      line_ = line;
      if (!defined.contains(id)) return error("instruction #{} is not there", id.index());
    }
    return std::move(p_);
  }
  int line() const { return line_; }

 private:
  enum class Section { Tables, Forward, Backward, Step, Nowhere };
  struct InstructionLine {
    InstructionId id;
    int line = 0;
    Instruction instruction;
  };

  static Error lacks(std::string_view what, char letter, std::uint64_t index, std::size_t count) {
    if (count == 0) return error("{} {}{}: there are none", what, letter, index);
    return error("{} {}{}: there are {}0 to {}{}", what, letter, index, letter, letter, count - 1);
  }
  static Status end(Scanner& in) {
    if (in.at_end()) return Ok{};
    return error("expected the end of the line, found {}", in.here());
  }
  // "b12" of `column`.
  template <class I, class T>
  static Result<I> reference(Scanner& in, std::string_view what, char letter, const IdVec<I, T>& column) {
    WEFT_TRY(const I id, forward_reference<I>(in, what, letter));
    if (!column.contains(id)) return lacks(what, letter, id.index(), column.size());
    return id;
  }
  template <class I>
  static Result<I> forward_reference(Scanner& in, std::string_view what, char letter) {
    in.skip_blanks();
    const Scanner found = in;
    const std::optional<std::uint32_t> index =
        in.take(std::string_view(&letter, 1)) ? in.number<std::uint32_t>() : std::nullopt;
    if (!index || !I(*index).valid()) return error("expected a {} such as {}0, found {}", what, letter, found.here());
    return I(*index);
  }
  // The number of a definition: they come in order.
  template <class I, class T>
  static Status next(Scanner& in, std::string_view what, char letter, const IdVec<I, T>& column) {
    WEFT_TRY(const I id, forward_reference<I>(in, what, letter));
    if (id.index() != column.size())
      return error("{} {}{}: the next one is {}{}; they are numbered in order", what, letter, id.index(), letter,
                   column.size());
    return Ok{};
  }
  template <class E>
  static std::optional<E> one_of(std::string_view word, std::initializer_list<E> all) {
    for (E each : all)
      if (word == name_of(each)) return each;
    return std::nullopt;
  }
  Status in_tables(std::string_view what) const {
    if (section_ == Section::Tables) return Ok{};
    return error("a {} after the first body; write it before 'stage 0 forward:'", what);
  }

  Status parse_header(Scanner& in) {
    if (!in.take("program of ") || !in.take(graph_.name()) || !in.at_end())
      return error("expected 'program of {}', the graph at hand, found {}", graph_.name(), in.here());
    headed_ = true;
    return Ok{};
  }

  // "m0 dp=2 tp=4: 0…7"
  Status parse_mesh(Scanner& in) {
    WEFT_TRY_OK(in_tables("mesh"));
    WEFT_TRY_OK(next(in, "mesh", 'm', p_.meshes));
    std::vector<MeshAxis> axes;
    while (!in.take_after_blanks(":")) {
      const Scanner found = in;
      MeshAxis axis;
      axis.name = in.word(" \t\r=:,()[]");
      const std::optional<std::int32_t> size = in.take("=") ? in.number() : std::nullopt;
      if (axis.name.empty() || !size || *size < 1)
        return error("expected a mesh axis such as dp=2, found {}", found.here());
      axis.size = *size;
      axes.push_back(std::move(axis));
      if (axes.size() > kMaxMeshAxes) return error("a mesh has at most {} axes", kMaxMeshAxes);
    }
    std::vector<DeviceId> devices;
    do {
      in.skip_blanks();
      const Scanner found = in;
      const std::optional<std::int32_t> first = in.number(), last = first && in.take("…") ? in.number() : first;
      const std::optional<std::int32_t> step = last && in.take(" by ") ? in.number() : 1;
      if (!first || !last || !step || *first > *last || *step < 1)
        return error("expected devices such as 0…7, 16 or 0…56 by 8, found {}", found.here());
      positions_ += static_cast<std::size_t>((*last - *first) / *step) + 1;
      if (positions_ > kMostPositions) return error("the meshes name more than {} devices", kMostPositions);
      for (std::int64_t device = *first; device <= *last; device += *step)
        devices.emplace_back(static_cast<std::size_t>(device));
    } while (in.take_after_blanks(","));
    WEFT_TRY(Mesh mesh, Mesh::make(std::move(axes), std::move(devices)));
    p_.meshes.push_back(std::move(mesh));
    return end(in);
  }

  Status parse_world(Scanner& in) {
    WEFT_TRY_OK(in_tables("world"));
    if (p_.world.valid()) return error("the world is m{} already", p_.world.index());
    WEFT_TRY(p_.world, reference(in, "mesh", 'm', p_.meshes));
    return end(in);
  }

  static Result<DType> parse_type(Scanner& in, std::string_view done) {
    const Scanner found = in;
    if (const std::optional<DType> type = dtype_named(in.word(" \t\r"))) return *type;
    return error("expected the type that is {}, such as bf16, found {}", done, found.here());
  }

  // "b0 input tokens m0 [4:dp][8]"
  Status parse_buffer(Scanner& in) {
    WEFT_TRY_OK(in_tables("buffer"));
    WEFT_TRY_OK(next(in, "buffer", 'b', p_.buffers));
    const BufferId id(p_.buffers.size());
    const std::string_view kind_name = in.word(" \t\r");
    const auto kind =
        one_of(kind_name, {BufferKind::Input, BufferKind::Scalar, BufferKind::Parameter, BufferKind::State,
                           BufferKind::Saved, BufferKind::Temporary, BufferKind::Result});
    if (!kind)
      return error("expected input, scalar, parameter, state, saved, temporary or result after the buffer's number");
    WEFT_TRY(const TensorId tensor, tensors_.find(in.word(" \t\r")));
    WEFT_TRY(const MeshId mesh, reference(in, "mesh", 'm', p_.meshes));
    in.skip_blanks();
    WEFT_TRY(Layout layout, parse_layout(in.rest(), mesh, p_.meshes[mesh]));
    Buffer buffer{tensor, std::move(layout), *kind, id, id, false};
    if (in.take_after_blanks("updates ")) {
      WEFT_TRY(buffer.storage, forward_reference<BufferId>(in, "buffer", 'b'));
      buffer.memory = buffer.storage;
    }
    if (in.take_after_blanks("views ")) {
      WEFT_TRY(buffer.memory, forward_reference<BufferId>(in, "buffer", 'b'));
    }
    if (in.take_after_blanks("as ")) {
      WEFT_TRY(buffer.narrow, parse_type(in, "held"));
    }
    buffer.on_host = in.take_after_blanks("on host");
    p_.buffers.push_back(std::move(buffer));
    buffer_line_.push_back(line_);
    return end(in);
  }

  // "t0: b4 -> b5"
  Status parse_transfer(Scanner& in) {
    WEFT_TRY_OK(in_tables("transfer"));
    WEFT_TRY_OK(next(in, "transfer", 't', p_.transfers));
    if (!in.take_after_blanks(":")) return error("expected ':' after the transfer's number, found {}", in.here());
    Transfer transfer;
    WEFT_TRY(transfer.from, reference(in, "buffer", 'b', p_.buffers));
    if (!in.take_after_blanks("->")) return error("expected '->' between the buffers, found {}", in.here());
    WEFT_TRY(transfer.to, reference(in, "buffer", 'b', p_.buffers));
    p_.transfers.push_back(transfer);
    return end(in);
  }

  // "0 forward:"
  Status parse_stage(Scanner& in) {
    const std::optional<std::int32_t> stage = in.number();
    const bool backward = in.take(" backward:");
    if (!stage || (!backward && !in.take(" forward:")))
      return error("expected 'stage 0 forward:' or 'stage 0 backward:'");
    const bool before_backward = section_ == Section::Forward;
    const auto next_stage = static_cast<std::int32_t>(p_.stages.size()) - (before_backward ? 1 : 0);
    const bool follows = before_backward || section_ == Section::Backward || section_ == Section::Tables;
    if (!follows || *stage != next_stage || backward != before_backward)
      return error("stage {} {}: stages come in order, each forward and then backward, and before the step", *stage,
                   backward ? "backward" : "forward");
    if (backward) {
      section_ = Section::Backward;
    } else {
      p_.stages.emplace_back();
      section_ = Section::Forward;
    }
    return end(in);
  }
  Status parse_last_body(Scanner& in, Section section) {
    const bool follows = section == Section::Nowhere ? section_ == Section::Step
                                                     : section_ == Section::Tables || section_ == Section::Backward;
    if (!follows) return error("expected the bodies of all stages, then 'step:' and, if need be, 'nowhere:'");
    section_ = section;
    return end(in);
  }
  void place(InstructionId id) {
    if (section_ == Section::Forward) p_.stages.back().forward.push_back(id);
    if (section_ == Section::Backward) p_.stages.back().backward.push_back(id);
    if (section_ == Section::Step) p_.step.push_back(id);
  }

  // "#1 m0 tensor last weight: b3 = all-reduce over tp(b2) after #0"
  Status parse_instruction(Scanner& in) {
    if (section_ == Section::Tables)
      return error("an instruction before the first body; write 'stage 0 forward:' first");
    WEFT_TRY(const InstructionId id, forward_reference<InstructionId>(in, "instruction", '#'));
    if (in.take_after_blanks("again")) {
      again_.emplace_back(id, line_);
      place(id);
      return end(in);
    }
    Instruction instruction;
    WEFT_TRY(instruction.mesh, reference(in, "mesh", 'm', p_.meshes));
    bool on_stream = false;
    while (!in.take_after_blanks(":")) {
      const Scanner found = in;
      const std::string_view word = in.word();
      if (const auto stream =
              one_of(word, {Stream::Compute, Stream::Tensor, Stream::Data, Stream::Send, Stream::SendBack,
                            Stream::Receive, Stream::ReceiveBack, Stream::CopyOut, Stream::CopyIn});
          stream && !on_stream) {
        instruction.stream = *stream;
        on_stream = true;
      } else if (word == "first") {
        instruction.guard = Guard::FirstMicroBatch;
      } else if (word == "last") {
        instruction.guard = Guard::LastMicroBatch;
      } else if (word == "weight") {
        instruction.weight_part = true;
      } else {
        return error("expected a stream, first, last, weight or ':', found {}", found.here());
      }
    }
    WEFT_TRY_OK(parse_what(in, instruction));
    if (in.take_after_blanks("after ")) {
      do {
        WEFT_TRY(const InstructionId before, forward_reference<InstructionId>(in, "instruction", '#'));
        instruction.after.push_back(before);
      } while (in.take_after_blanks(","));
    }
    WEFT_TRY_OK(end(in));
    if (!on_stream && !std::holds_alternative<Free>(instruction.what))
      return error(
          "only a free is on no stream; write compute, tensor, data, send, receive or copy-out after the mesh");
    lines_.push_back({id, line_, std::move(instruction)});
    place(id);
    return Ok{};
  }

  Result<BufferList> parse_buffers(Scanner& in) {
    BufferList list;
    do {
      WEFT_TRY(const BufferId id, reference(in, "buffer", 'b', p_.buffers));
      list.push_back(id);
    } while (in.take_after_blanks(","));
    return list;
  }
  // "(b0, b1)"
  Result<BufferList> parse_arguments(Scanner& in) {
    if (!in.take("(")) return error("expected '(', found {}", in.here());
    if (in.take(")")) return BufferList();
    WEFT_TRY(BufferList list, parse_buffers(in));
    if (!in.take_after_blanks(")")) return error("expected ')', found {}", in.here());
    return list;
  }
  static Result<BufferId> single(const BufferList& list, std::string_view what) {
    if (list.size() != 1) return error("{} has one buffer, not {}", what, list.size());
    return list.front();
  }

  Status parse_what(Scanner& in, Instruction& instruction) {
    in.skip_blanks();
    BufferList outputs;
    const Scanner start = in;
    if (in.take("free ")) {
      WEFT_TRY(const BufferId buffer, reference(in, "buffer", 'b', p_.buffers));
      instruction.what = Free{buffer};
      return Ok{};
    }
    if (in.take("wait")) {
      instruction.what = Wait{};
      return Ok{};
    }
    if (in.take("send ")) {
      WEFT_TRY(const BufferId buffer, reference(in, "buffer", 'b', p_.buffers));
      WEFT_TRY(const TransferId transfer, parse_half(in, buffer, &Transfer::from));
      instruction.what = Send{transfer};
      return Ok{};
    }
    if (in.at("b")) {
      WEFT_TRY(outputs, parse_buffers(in));
      if (!in.take_after_blanks("=")) return error("expected '=' after the outputs, found {}", in.here());
      in.skip_blanks();
    }
    if (in.take("op ")) return parse_compute(in, std::move(outputs), instruction);
    if (in.take("receive")) {
      WEFT_TRY(const BufferId buffer, single(outputs, "a receive"));
      WEFT_TRY(const TransferId transfer, parse_half(in, buffer, &Transfer::to));
      instruction.what = Receive{transfer};
      return Ok{};
    }
    if (in.take("sum scalars")) {
      SumScalars sum;
      if (!in.take("(")) return error("expected '(', found {}", in.here());
      do {
        WEFT_TRY(const BufferList terms, parse_buffers(in));
        sum.counts.push_back(static_cast<std::uint32_t>(terms.size()));
        sum.inputs.append(terms.begin(), terms.end());
      } while (in.take_after_blanks(";"));
      if (!in.take_after_blanks(")")) return error("expected ')' or ';' and the next sum, found {}", in.here());
      sum.outputs = std::move(outputs);
      instruction.what = std::move(sum);
      return Ok{};
    }
    if (in.take("copy")) {
      Copy copy;
      WEFT_TRY(copy.to, single(outputs, "a copy"));
      WEFT_TRY(const BufferList inputs, parse_arguments(in));
      WEFT_TRY(copy.from, single(inputs, "a copy"));
      instruction.what = copy;
      return Ok{};
    }
    if (in.take("combine ")) {
      Combine combine;
      const auto reducer =
          one_of(in.word(" \t\r("), {Reducer::Sum, Reducer::Max, Reducer::LogSumExp, Reducer::SoftmaxMerge});
      if (!reducer) return error("expected combine sum(…) or combine softmax-merge(…)");
      combine.reducer = *reducer;
      WEFT_TRY(combine.inputs, parse_arguments(in));
      combine.outputs = std::move(outputs);
      instruction.what = std::move(combine);
      return Ok{};
    }
    return parse_communicate(in, start, std::move(outputs), instruction);
  }

  // " by t0", whose buffer on this side is `buffer`.
  Result<TransferId> parse_half(Scanner& in, BufferId buffer, BufferId Transfer::*side) {
    if (!in.take(" by ")) return error("expected ' by t0', found {}", in.here());
    WEFT_TRY(const TransferId transfer, reference(in, "transfer", 't', p_.transfers));
    if (const BufferId moved = p_.transfers[transfer].*side; moved != buffer)
      return error("transfer t{} is of b{} here, not of b{}", transfer.index(), moved.index(), buffer.index());
    return transfer;
  }

  Status parse_communicate(Scanner& in, const Scanner& start, BufferList outputs, Instruction& instruction) {
    const auto collective =
        one_of(in.word(" \t\r"),
               {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather, Collective::AllToAll,
                Collective::Slice, Collective::HaloExchange, Collective::HaloSum, Collective::Shift});
    if (!collective)
      return error(
          "expected 'b1 = op NAME(b0)', a collective, 'receive by t0', 'copy(b0)', 'sum scalars(b0)', 'combine sum(b0, "
          "b1)', "
          "'send b0 by t0', 'wait' or 'free b0', found {}",
          start.here());
    Communicate communicate;
    communicate.collective = *collective;
    std::string_view word = in.word(" \t\r");
    if (const auto reducer = one_of(word, {Reducer::Max, Reducer::LogSumExp, Reducer::SoftmaxMerge})) {
      communicate.reducer = *reducer;
      word = in.word(" \t\r");
    }
    const Mesh& mesh = p_.meshes[instruction.mesh];
    bool axes_there = word == "over";
    do {
      const int axis = mesh.axis_named(in.word(" \t\r(,"));
      axes_there = axes_there && axis >= 0 && (communicate.axes & axis_set(axis)) == 0;
      if (axes_there) communicate.axes |= axis_set(axis);
    } while (axes_there && in.take(","));
    if (!axes_there)
      return error("expected 'over' and axes of mesh m{}, such as 'over dp,cp', after {}", instruction.mesh.index(),
                   name_of(*collective));
    WEFT_TRY(communicate.inputs, parse_arguments(in));
    communicate.outputs = std::move(outputs);
    if (in.take_after_blanks("as ")) {
      WEFT_TRY(communicate.wire, parse_type(in, "sent"));
    }
    communicate.tokens_once = in.take_after_blanks("once");
    for (Parts parts : {Parts::Padded, Parts::Grouped})
      if (communicate.parts == Parts::Even && in.take_after_blanks(name_of(parts))) communicate.parts = parts;
    communicate.staged = in.take_after_blanks("staged");
    instruction.what = std::move(communicate);
    return Ok{};
  }

  Status parse_compute(Scanner& in, BufferList outputs, Instruction& instruction) {
    Compute compute;
    WEFT_TRY(compute.op, ops_.find(in.word(" \t\r(")));
    WEFT_TRY(compute.inputs, parse_arguments(in));
    compute.outputs = std::move(outputs);
    const Signature& signature = graph_.signature(compute.op);
    OpSharding& sharding = compute.sharding;
    sharding.mesh = instruction.mesh;
    sharding.axes.resize(signature.axes.size());
    if (in.take_after_blanks("by ")) {
      if (in.take_after_blanks("on ")) {
        WEFT_TRY(sharding.mesh, reference(in, "mesh", 'm', p_.meshes));
      }
      const Mesh& mesh = p_.meshes[sharding.mesh];
      for (in.skip_blanks(); !in.at_end() && !in.at("after ") && !in.at("in ") && !in.at("begins"); in.skip_blanks())
        WEFT_TRY_OK(parse_split(in, signature, mesh, sharding));
    }
    if (in.take_after_blanks("in ")) {
      const Scanner found = in;
      compute.products = arithmetic_named(in.word(" \t\r"));
      if (!compute.products) return error("expected what products run in, such as tf32, found {}", found.here());
    }
    compute.begins = in.take_after_blanks("begins");
    instruction.what = std::move(compute);
    return Ok{};
  }

  // "n:tp[outer 2]", "partial(dp:0,1)", "outer 1"
  Status parse_split(Scanner& in, const Signature& signature, const Mesh& mesh, OpSharding& sharding) {
    const auto with_blocks = [&] { sharding.outer.resize(signature.axes.size(), 1); };
    if (in.take("outer 1")) {
      with_blocks();
      return Ok{};
    }
    if (in.take("partial(")) return parse_partial(in, mesh, sharding);
    const Scanner found = in;
    const int axis = signature.axis_named(in.word(" \t\r:["));
    if (axis < 0)
      return error("expected an axis of the operator ({}), found {}", axis_sizes_of(signature), found.here());
    const auto a = static_cast<std::size_t>(axis);
    const bool cut = in.take(":");
    if (cut) {
      WEFT_TRY(sharding.axes[a], parse_cuts(in.rest(), mesh));
    }
    if (in.take("[outer ")) {
      const std::optional<std::int64_t> outer = in.number<std::int64_t>();
      if (!outer || *outer < 1 || !in.take("]")) return error("expected blocks such as [outer 2], found {}", in.here());
      with_blocks();
      sharding.outer[a] = *outer;
    } else if (!cut) {
      return error("expected how {} is split, such as :dp, found {}", signature.axes[a].name, in.here());
    }
    return Ok{};
  }
  // "dp:0,1)", "dp,cp:all)"
  Status parse_partial(Scanner& in, const Mesh& mesh, OpSharding& sharding) {
    while (!in.take(":")) {
      const Scanner found = in;
      const int axis = mesh.axis_named(in.word(" \t\r:,"));
      if (axis < 0) return error("expected a mesh axis, found {}", found.here());
      sharding.partial |= MeshAxes{1} << axis;
      in.take(",");
    }
    if (in.take("all")) sharding.partial_inputs = ~std::uint64_t{0};
    while (!in.take(")")) {
      const std::optional<std::int32_t> input = in.number();
      if (!input || *input >= 64) return error("expected inputs such as 0,1 below 64, or all, found {}", in.here());
      sharding.partial_inputs |= std::uint64_t{1} << *input;
      in.take(",");
    }
    return Ok{};
  }

  const Graph& graph_;
  const NameTable<TensorId> tensors_;
  const NameTable<OpId> ops_;
  Program p_;
  bool headed_ = false;
  Section section_ = Section::Tables;
  std::size_t positions_ = 0;  // in all meshes
  int line_ = 0;
  IdVec<BufferId, int> buffer_line_;
  std::vector<InstructionLine> lines_;  // as they come
  std::vector<std::pair<InstructionId, int>> again_;
};

}  // namespace

Result<Program> parse_program(std::string_view text, const Graph& graph, std::string_view file) {
  Parser parser(graph);
  int line = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    ++line;
    if (const Status status = parser.parse_line(rest.substr(0, end), line); !status.ok())
      return status.error().at(file, line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  Result<Program> program = parser.finish();
  if (!program.ok()) return program.error().at(file, parser.line());
  return program;
}

}  // namespace weft
