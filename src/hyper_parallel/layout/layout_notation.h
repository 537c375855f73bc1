#pragma once

// The short notations in which a layout is asked for, one entry per tensor dim:
//
//   tensor map   (1, 0, -1)              an axis as in `tensor_map.h`, -1 for none, a tuple for several
//   aliases      ("dp", "tp", "None")    the name of a mesh dim, "None" for none, a tuple for several
//
// An entry of several is outermost first. Mesh dims that no entry names are Replicate.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hyper_parallel/layout/layout.h"

namespace hyper_parallel {

/// The alias of a tensor dim that no mesh dim splits. A mesh dim of this name cannot be named by an alias.
inline constexpr std::string_view kNoAlias = "None";

using TensorMapEntry = std::variant<int64_t, std::vector<int64_t>>;
using AliasEntry = std::variant<std::string, std::vector<std::string>>;

/// The layout of a tensor map. Throws as `tensor_map_to_placement`: kInvalidArgument for an axis outside the mesh or
/// one that stands twice, kUnimplemented for a tuple that is not outermost first. Example: mesh (2, 2) with {1, 0, -1}
/// -> [Shard(0), Shard(1)].
Layout layout_from_tensor_map(const DeviceMesh& mesh, const std::vector<TensorMapEntry>& map);

/// The layout of alias names. Throws kInvalidArgument for a name that is no dim of the mesh, one that stands twice or
/// "None" among several, and kUnimplemented for names that are not outermost first.
/// Example: mesh ("dp", "tp") with {{"dp", "tp"}, "None"} -> [Shard(0), Shard(0)].
Layout layout_from_aliases(const DeviceMesh& mesh, const std::vector<AliasEntry>& aliases);

}  // namespace hyper_parallel
