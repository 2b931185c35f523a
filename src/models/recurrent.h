// Recurrent networks, unrolled: one LSTM cell per layer and step, all steps of a layer sharing their
// parameters (the networks of the FlexFlow paper, Jia et al., MLSys'19). The sequence length is the number of
// steps.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "graph/graph.h"
#include "models/transformer.h"

namespace weft {

enum class RecurrentNet : std::uint8_t {
  Classifier,     // RNNTC: the last state is classified
  LanguageModel,  // RNNLM: the next token of every step
  Translator,     // NMT: encoder, decoder, attention over the encoder's states
};

struct RecurrentConfig {
  RecurrentNet net = RecurrentNet::LanguageModel;
  std::int64_t layers = 2;  // Translator: of the encoder, and again of the decoder
  std::int64_t hidden = 1024, vocab = 10'000;
  std::int64_t classes = 2;  // Classifier
  std::int64_t steps = 40;   // unrolled by default
  double dropout = 0;        // between layers

  bool operator==(const RecurrentConfig&) const = default;
};

Status check(const RecurrentConfig& config);
void build_recurrent(GraphBuilder& builder, const RecurrentConfig& config, const StepShape& step);

}  // namespace weft
