#pragma once

// Propagation: from the rule of an operation and the layouts of its operands to what each rank has to do.
//
// For each mesh dim one of these is chosen, the same for all operands and results:
//
//   an axis    operands and results that go along it are sharded by it, the other operands are replicated. If the axis
//   is
//              reduced, results are Partial
//   pending    operands that are Partial stay so, results are Partial alike
//   whole      every operand is replicated, and so are the results
//
// Only axes by which an operand is sharded on that mesh dim already are considered, a reduced one only if every operand
// that goes along it is sharded by it or whole there, and a Partial operand leaves no choice but `pending`: nothing is
// reduced, left pending, or spread that the caller did not ask for. Of what is left the
// choice is the one for which the ranks receive the fewest bytes, then the fewest rounds, then the one that comes first
// by the order of operands, an axis before whole.
//
// Pure and equal on all ranks.

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/operations/rule.h"

namespace hyper_parallel {

struct GivenOperand {
  std::string_view name;  // of the argument, for messages
  Layout layout;          // folded to the operand's shape, not ragged
  int64_t item_bytes;     // of one cell
};

/// What becomes of an operand before the operation runs on the local parts.
struct PreparedOperand {
  Layout layout;
  /// How the gradient of the prepared operand lies: as `layout` says, but Partial(sum) on mesh dims where every rank
  /// has a gradient from its own share of the work.
  Layout gradient;
  /// Mesh dims, ascending, on which only the first rank may add it in: an addend whose results are shares.
  std::vector<int64_t> added_once;
  friend bool operator==(const PreparedOperand&, const PreparedOperand&) = default;
};

struct Propagation {
  std::vector<PreparedOperand> operands;
  std::vector<Layout> results;
  friend bool operator==(const Propagation&, const Propagation&) = default;
};

/// `operation` is its name, for messages. `written` is the operand that the operation overwrites with its first result:
/// it stays as it lies.
///
/// Throws kInvalidArgument: operands on unlike meshes; a pending reduction that does not commute with the operation; no
/// choice that leaves the written operand as it lies.
Propagation propagate(std::string_view operation, const Rule& rule, std::span<const GivenOperand> operands,
                      std::optional<size_t> written = std::nullopt);

}  // namespace hyper_parallel
