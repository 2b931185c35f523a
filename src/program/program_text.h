// Programs as text: parse∘print = identity.
//
//   program of gpt2-124m
//   mesh m0 dp=2 tp=4: 0…7                                  devices row by row, the last axis fastest; "0…56 by 8"
//   mesh m1 world=8: 0…7
//   world m1
//   buffer b0 input tokens m0 [4:dp][8]                     kind, tensor, mesh and layout (layout/layout.h)
//   buffer b7 temporary layers.0.mlp.flat.y m0 [32:dp][512] views b6
//   buffer b8 saved layers.0.mlp.act.y m0 [4:dp][8][512:tp] as f8      held in a narrower type than the tensor's
//   buffer b9 state fc.weight_master' m0 [512:tp] updates b8, on host
//   transfer t0: b4 -> b5
//   stage 0 forward:
//     #0 m0 compute: b2 = op embed.tokens(b0, b1) by b:dp v:tp
//     #1 m0 tensor: b3 = all-reduce over tp(b2) after #0
//     #2 m0: free b2 after #1
//     #3 m0 send: send b4 by t0 after #1
//     #4 m2 receive: b5 = receive by t0
//     #5 m0 compute: wait after #3
//   stage 0 backward:
//     #9 m0 compute weight: b8 = op fc@grad_weight(b3, b7) by k:tp[outer 2] partial(dp:0)
//     #10 m0 data last: b11 = all-reduce over dp(b8) after #9
//     #11 m0 data last: b13 = all-gather over dp(b12) as bf16 padded    wire type; parts of different sizes: or grouped
//   step:
//     #12 m0 compute: b12, b13 = op fc.weight@step(b11, b6) by n:tp outer 1
//
// An instruction's line has its number, mesh, stream (none: a free), `first` or `last` for a guard, `weight` for the
// weight part of backward; what it reads and writes; how an operator is split, by operator axis: mesh axes, [outer n]
// blocks, `partial(mesh axes:inputs)` that pass through; and what it waits for. `outer 1`: blocks are given, all one.
// Tensors and operators are written by name, or as @number where several have the same name.
#pragma once

#include <string>
#include <string_view>

#include "program/program.h"

namespace weft {

// `print` is declared in program.h. It needs a program whose ids all exist, and names of mesh axes without blanks and
// =:,()[].

// What one device executes, of a program that verify accepts: its instructions with the names and local shapes of what
// they read and write, the group it meets in collectives, and the waits that concern it. For reading only.
std::string print_for(const Program& program, const Graph& graph, DeviceId device);

// Errors: "file:line: …". All that is named must exist; verify.h decides whether the program is right. Cost: linear in
// the text and in the meshes' devices, of which a text may name two million.
Result<Program> parse_program(std::string_view text, const Graph& graph, std::string_view file);

}  // namespace weft
