// A cache of the layouts of split operators and of resharding sequences: the layers of a network are equal, and so are
// their layouts and the collectives between them.
//
// Cost of a hit: one hash of the key; less if an equal operator was looked up just before. Results share their memory
// (shared_vec.h), so that comparing equal layouts costs nothing.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "graph/graph.h"
#include "layout/layout.h"
#include "layout/reshard.h"

namespace weft {

// An operator split in one way, with the layouts of its operands.
struct SplitOp {
  OpSharding sharding;
  std::vector<Layout> inputs, outputs;
};

// The steps from one layout to another, or the error.
struct Resharding {
  std::vector<ReshardStep> steps;
  std::vector<double> sent;  // elements_sent of each step
  std::optional<Error> problem;
};

class SplitMemo {
 public:
  // Refers to the graph. Meshes are identified by their ids.
  explicit SplitMemo(const Graph& graph)
      : graph_(graph), last_split_(graph.signatures().size()), last_split_as_(graph.signatures().size()) {}

  std::shared_ptr<const SplitOp> split(OpId op, const OpSharding& sharding, const Mesh& mesh);
  // An operator on parameter-shaped tensors (one axis per dimension of its first input), split to match `layout`.
  std::shared_ptr<const SplitOp> split_as(OpId op, const Layout& layout, const Mesh& mesh);
  // With the fewest bytes, or the lowest price for elements of a type; a memo is always given the same price.
  std::shared_ptr<const Resharding> reshard(const Layout& from, const Layout& to, const Mesh& mesh,
                                            const StepPrice* price = nullptr, DType dtype = DType::F32);

 private:
  struct SplitKey {
    SignatureId signature;
    OpSharding sharding;
    bool operator==(const SplitKey&) const = default;
  };
  struct LayoutKey {
    SignatureId signature;
    Layout layout;
    bool operator==(const LayoutKey&) const = default;
  };
  struct ReshardKey {
    Layout from, to;
    int bits = 0;  // of an element, if there is a price
    bool operator==(const ReshardKey&) const = default;
  };
  struct Hash {
    std::size_t operator()(const SplitKey& key) const;
    std::size_t operator()(const LayoutKey& key) const;
    std::size_t operator()(const ReshardKey& key) const;
  };

  // The first known mesh with the same axes: results for one are valid for the other.
  MeshId first_with_axes(MeshId id, const Mesh& mesh);

  const Graph& graph_;
  IdVec<SignatureId, std::shared_ptr<const SplitOp>> last_split_;
  IdVec<SignatureId, std::pair<Layout, std::shared_ptr<const SplitOp>>> last_split_as_;
  IdVec<MeshId, MeshId> with_axes_;
  std::vector<std::pair<MeshId, std::vector<MeshAxis>>> shapes_;
  std::unordered_map<SplitKey, std::shared_ptr<const SplitOp>, Hash> splits_;
  std::unordered_map<LayoutKey, std::shared_ptr<const SplitOp>, Hash> splits_as_;
  std::unordered_map<ReshardKey, std::shared_ptr<const Resharding>, Hash> reshardings_;
};

}  // namespace weft
