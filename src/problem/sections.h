// The sections of a model: its layers, and the pieces before, between and after them, in the order of the network.
// Costs of a section are read from one instance of its kind (hybrid/probe.h); pipelines are cut between layers.
//
//   decoder            embedding, layers …, head
//   encoder-decoder    embedding, layers …, norm, embedding and position bias of the decoder, layers …, head
//   ResNet             stem, blocks of every stage …, pooling and classifier
//   no layers          one piece
//
// Sections of one kind have equal operators in equal order, that read as many parameters for the first time.
// Cost: linear in operators.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/signature.h"
#include "strategy/layers.h"

namespace weft {

struct Section {
  int kind = 0;
  // The layer; of a piece, the last layer that it depends on: −1 none, the number of layers if no layer depends on it.
  // A pipeline has the section in that layer's stage (strategy/stages.h), in the first stage or in the last.
  std::int64_t layer = -1;
  bool is_layer = false;

  bool operator==(const Section&) const = default;
};

// Numbers what sections do, equally in several graphs: in a model and in a shorter one.
class SectionKinds {
 public:
  // What an operator does, and how many parameters it is the first to read.
  struct Step {
    std::size_t signature = 0;
    int parameters = 0;

    auto operator<=>(const Step&) const = default;
  };

  std::size_t number_of(const Signature& signature);
  int kind_of(bool is_layer, std::vector<Step> steps);  // of a section that does this
  int count() const { return static_cast<int>(known_.size()); }

 private:
  std::vector<Signature> signatures_;
  std::vector<std::pair<bool, std::vector<Step>>> known_;
};

struct Sections {
  std::vector<Section> list;
  IdVec<OpId, int> of;  // index into `list` of forward operators and of their backward operators; −1: of neither
  // No layer is interrupted by another one. If not, there is one section, and no pipeline can be cut from it.
  bool apart = true;
};

// Of a forward graph; of a training graph, backward and optimizer operators that belong to a section's forward
// operators make it another kind too (frozen layers).
Sections find_sections(const Graph& graph, SectionKinds& kinds);

}  // namespace weft
