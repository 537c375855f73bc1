#pragma once

// The truth: who owns which element of a distributed tensor, found by walking over all of them.
//
// Everything here follows the definitions of the placements word by word, cell by cell, and knows no formula: rows are
// dealt out by counting, ragged units by walking over cells. It shares no code with the geometry and the planner, whose
// results it judges, and it is slow on purpose. For tensors of a few hundred elements.
//
//   element      a position in the row-major order of the global tensor
//   coordinate   a rank's position in the mesh, the mesh being row-major over its rank list
//   share        a rank's local storage, flat

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hyper_parallel::reference {

/// What one mesh dim does with the tensor.
struct Rule {
  enum class Kind { kReplicate, kShard, kPartial, kRagged };

  Kind kind = Kind::kReplicate;
  int64_t tensor_dim = 0;      // kShard: the dim whose rows are dealt out, not negative
  std::string op;              // kPartial: "sum", "avg", "max" or "min"
  int64_t prefix_dims = 0;     // kRagged: how many leading dims make a cell
  std::vector<int64_t> units;  // kRagged: for each rank of the mesh dim
};

/// A tensor of `shape` on a mesh: a rule for each mesh dim, outermost first.
struct Scheme {
  std::vector<int64_t> mesh_shape;
  std::vector<int64_t> ranks;
  std::vector<Rule> rules;
  std::vector<int64_t> shape;
};

/// Rank -> its local storage.
using Shares = std::map<int64_t, std::vector<double>>;

/// A number in [low, high].
using Draw = std::function<int64_t(int64_t low, int64_t high)>;

/// How many elements the tensor has, by counting them.
int64_t element_count(const Scheme& scheme);

/// The rank's coordinate; nothing if the mesh does not hold it.
std::optional<std::vector<int64_t>> coordinate_of(const Scheme& scheme, int64_t rank);

/// The elements that the rank owns, in the order of its local storage. None for a rank outside the mesh.
std::vector<int64_t> owned_elements(const Scheme& scheme, int64_t rank);

/// Where the rank holds the element in its local storage; nothing if it does not own it.
std::optional<int64_t> owner_offset(const Scheme& scheme, int64_t element, int64_t rank);

/// Shares of every rank whose value is `values`. On Partial dims they are drawn at random, the same for all replicas.
/// If the values are multiples of the mesh's size, so are the shares, and every reduction of them, in part or in whole,
/// is exact.
Shares distribute(const Scheme& scheme, const std::vector<double>& values, const Draw& draw);

/// The value of every element: Partial mesh dims reduced, the innermost first. Throws std::runtime_error where a share
/// has the wrong length, replicas differ or an element has no owner.
std::vector<double> reduce(const Scheme& scheme, const Shares& shares);

}  // namespace hyper_parallel::reference
