#pragma once

// Rule: what an operation does with the cells of its operands, as far as that decides how they may lie on the ranks.
//
// An operation runs over *axes*. Each dim of an operand or of a result goes along one axis or along none. Where the
// blocks of an axis lie on different ranks, each rank runs the same operation on its blocks alone:
//
//   parallel   every result goes along the axis: results are sharded as the operands are
//   reduced    no result does: each rank's results are shares, combined by `reduction`
//
// A dim along no axis is needed whole: one element that is broadcast, or cells that meet each other (softmax).
//
//   x @ w                      axes m, k, n   x (m, k), w (k, n) -> (m, n), k reduced by sum
//   x.sum(1)                   axes a, b      x (a, b) -> (a), b reduced by sum
//   softmax(x, 1)              axis a         x (a, -) -> (a, -)
//   x.view(6, 4) of (2, 3, 4)  axes a, b      x (a, -, b) -> (a, b); a has 2 cells and must be cut evenly
//
// A mesh dim is used for one axis, or it keeps a reduction of the operands pending (`Pending`), or every operand is
// whole on it. `propagate.h` chooses.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "hyper_parallel/base/dims.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel {

/// Of a dim: along no axis.
inline constexpr int kNoAxis = -1;

struct Axis {
  enum class Use { kParallel, kReduced };
  /// Even: only where the ranks that it is cut for divide its cells. Dims of unlike sizes can go along one axis then.
  enum class Cut { kAny, kEven };

  int64_t cells = 0;
  Use use = Use::kParallel;
  Cut cut = Cut::kAny;
  friend bool operator==(const Axis&, const Axis&) = default;
};

/// An operand or a result.
struct Operand {
  /// How its values enter the results. What is added must be added once, not by every rank that holds a share; what
  /// says where to take cells from is never a share itself.
  enum class Term { kFactor, kAddend, kIndex };

  Dims shape;
  std::vector<int> axes;  // as many as dims: indices of Rule::axes, or kNoAxis
  Term term = Term::kFactor;
  friend bool operator==(const Operand&, const Operand&) = default;
};

/// A set of reductions.
class ReduceOps {
 public:
  constexpr ReduceOps() = default;
  constexpr ReduceOps(std::initializer_list<ReduceOp> ops) {
    for (const ReduceOp op : ops) bits_ |= bit(op);
  }
  constexpr bool contains(ReduceOp op) const { return (bits_ & bit(op)) != 0; }
  friend constexpr bool operator==(ReduceOps, ReduceOps) = default;

 private:
  static constexpr unsigned bit(ReduceOp op) { return 1U << static_cast<unsigned>(op); }
  unsigned bits_ = 0;
};

inline constexpr ReduceOps kLinearOps{ReduceOp::kSum, ReduceOp::kAvg};
inline constexpr ReduceOps kAllOps{ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin};

/// Which pending reductions of operands may stay pending in the results, because the operation commutes with them.
struct Pending {
  enum class Carriers {
    kNone,   // never
    kEvery,  // every operand is pending alike: a sum of operands, a view of one
    kOne,    // one factor is pending, the others are not: a product
  };

  Carriers carriers = Carriers::kNone;
  ReduceOps ops = {};
  friend bool operator==(const Pending&, const Pending&) = default;
};

struct Rule {
  std::vector<Axis> axes;
  std::vector<Operand> operands;  // the tensor arguments, in order
  std::vector<Operand> results;
  ReduceOp reduction = ReduceOp::kSum;
  Pending pending = {};
  friend bool operator==(const Rule&, const Rule&) = default;
};

/// "(6, 4):(a, b), (4, 5):(b, c) -> (6, 5):(a, c); b reduced by sum": for messages, documentation and tests.
std::string to_string(const Rule& rule);

}  // namespace hyper_parallel
