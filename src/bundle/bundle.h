// A bundle: one training run as a rank plays it. The graph of a micro-batch, the program of all ranks, the schedule, the
// numbers that enter a step, and the words it was made from, for messages.
//
//   weft bundle 1
//   model gpt2-124m:layers=2
//   strategy tp=2,dp=2
//   numbers as-stored
//   learning-rate 0.001
//   seed 1
//   vocabulary 50257
//   begin graph
//   graph gpt2-124m                        graph/text.h
//   …
//   end graph
//   begin program … end program            program/program_text.h
//   begin schedule … end schedule          program/schedule.h
//   begin last-graph …, begin last-program …   where the last micro-batch is smaller
//
// Text, so that it can be read, compared and mended; parse∘print = identity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "graph/graph.h"
#include "program/program.h"

namespace weft {

// Whether floating-point tensors are held in the types that the graph stores them in, or all of them in fp64: then a
// step on many ranks and on one differ by the order of their sums alone, and a mistake shows.
enum class Numbers : std::uint8_t { AsStored, Float64 };
std::string_view name_of(Numbers numbers);  // "as-stored", "float64"

struct Bundle {
  std::string model, strategy;  // words, one line each
  Numbers numbers = Numbers::AsStored;
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;       // of samples and of weights as training begins
  std::int64_t vocabulary = 0;  // tokens stay below it where a stack pads the tables; 0: below what tables have
  Graph graph;                  // of one micro-batch of all replicas, with backward and optimizer
  Program program;
  Schedule schedule;

  // The last micro-batch of a step, where it has fewer samples (program/last_micro_batch.h).
  struct Last {
    Graph graph;
    Program program;

    bool operator==(const Last&) const = default;
  };
  std::optional<Last> last = {};

  int world_size() const { return program.meshes[program.world].size(); }
  bool operator==(const Bundle&) const = default;
};

// The program with its devices numbered by rank, 0 … n−1: their places in the world. (A plan's are those of its
// cluster, of which it may use some.)
Program numbered_by_rank(Program program);

std::string print(const Bundle& bundle);
// Errors: "file:line: …", the line counted from the top of the bundle. What comes back has a program that the verifier
// accepts under its schedule, on devices 0 … n−1. Cost: that of parsing and verifying.
Result<Bundle> parse_bundle(std::string_view text, std::string_view file);

// The file is there whole or not at all.
Status write_bundle(const Bundle& bundle, const std::string& path);
Result<Bundle> read_bundle(const std::string& path);

}  // namespace weft
