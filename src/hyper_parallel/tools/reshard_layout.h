#pragma once

// The layout that `hyper-parallel reshard` gives to the tensors of a checkpoint: N ranks in a row, and a placement.
//
// Where the placement does not fit a tensor (ragged dims beyond its rank, prefix cells that the units' sum does not
// divide, a Shard dim that it does not have) that is an error, unless a fallback was allowed:
//
//   shard       Shard(0); a tensor without dims is replicated
//   replicate   Replicate

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel {

/// The options as they were typed; at most one of `units`, `shard` and `replicate`. Without any: Shard(0).
struct ReshardLayoutOptions {
  int64_t ranks = 0;
  std::optional<std::string> units;  // "1,2,0,5"; with repetition: "1*24,3*24"
  std::optional<std::string> dims;   // "0,1": of the units; "0" if not given
  std::optional<int64_t> shard;      // counted from the last dim if negative
  bool replicate = false;
  std::optional<std::string> fallback;  // "shard" or "replicate"
};

struct ReshardLayout {
  int64_t ranks = 0;
  Placement placement;
  std::optional<Placement> fallback;
};

/// Throws kInvalidArgument, the option in front, for ranks outside [1, 2^20], units that are not one for each rank or
/// not the units of a RaggedShard, dims without units or that are not a prefix, and more than one layout.
ReshardLayout read_reshard_layout(const ReshardLayoutOptions& options);

/// The boxes of a tensor that one rank stores, in row-major order.
struct RankBoxes {
  int64_t rank = 0;
  std::vector<Box> boxes;
};

/// Who stores what, as a save under this layout decides it: each box once, ranks in ascending order, none that stores
/// nothing. Throws kInvalidArgument, naming the tensor, if the layout does not fit and there is no fallback.
std::vector<RankBoxes> stored_boxes(const ReshardLayout& layout, const StoredTensor& tensor);

}  // namespace hyper_parallel
