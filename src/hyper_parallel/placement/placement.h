#pragma once

// Placements: how a tensor lies along one mesh dim.
//
//   Replicate                     every rank holds all of it
//   Shard(d)                      tensor dim d in chunks of ceil(n / p) rows: the first ranks get a full chunk,
//                                 the last fewer or none (5 rows over 4 ranks: 2, 2, 1, 0)
//   Partial(op)                   every rank holds a share; the value is their reduction (sum, avg, max, min)
//   RaggedShard(dims, units)      rank r holds a contiguous run of the row-major tensor, as long as units[r] says
//
// Values: equality, hash, and `parse_placement(to_string(p)) == p`.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hyper_parallel {

struct Replicate {
  friend bool operator==(const Replicate&, const Replicate&) = default;
};

/// `dim` may be negative, counted from the tensor's last dim, until the tensor's rank is known.
struct Shard {
  explicit Shard(int64_t tensor_dim) : dim(tensor_dim) {}
  friend bool operator==(const Shard&, const Shard&) = default;

  int64_t dim;
};

enum class ReduceOp { kSum, kAvg, kMax, kMin };

/// "sum", "avg", "max", "min".
std::string_view to_string(ReduceOp op);
/// The reverse of `to_string`; throws kInvalidArgument for any other text.
ReduceOp parse_reduce_op(std::string_view text);

struct Partial {
  explicit Partial(ReduceOp reduce_op = ReduceOp::kSum) : op(reduce_op) {}
  friend bool operator==(const Partial&, const Partial&) = default;

  ReduceOp op;
};

/// An uneven, possibly empty, contiguous share per rank. `dims` are the leading tensor dims (0, .., k - 1) whose cells
/// are dealt out in row-major order, `local_units[r]` is rank r's relative share. What the units mean for a shape is
/// geometry's matter (`geometry/ragged_split.h`). Immutable and cheap to copy: meshes have up to 100 000 ranks.
class RaggedShard {
 public:
  /// Throws kInvalidArgument: dims empty or not 0, 1, 2, ..; units empty, negative or all zero; a sum beyond int64.
  RaggedShard(const std::vector<int64_t>& dims, std::vector<int64_t> local_units);

  std::vector<int64_t> dims() const;
  /// How many leading tensor dims are dealt out: dims() == (0, .., dim_count() - 1).
  int64_t dim_count() const { return dim_count_; }
  const std::vector<int64_t>& local_units() const { return data_->units; }
  /// cuts()[r] = units[0] + .. + units[r - 1]; one entry more than ranks.
  const std::vector<int64_t>& cuts() const { return data_->cuts; }
  int64_t total_units() const { return data_->cuts.back(); }
  int64_t rank_count() const { return static_cast<int64_t>(data_->units.size()); }

  size_t hash() const;
  friend bool operator==(const RaggedShard& a, const RaggedShard& b) {
    return a.dim_count_ == b.dim_count_ && (a.data_ == b.data_ || a.data_->units == b.data_->units);
  }

 private:
  struct Data {
    std::vector<int64_t> units;
    std::vector<int64_t> cuts;
    size_t hash = 0;
  };

  int64_t dim_count_ = 0;
  std::shared_ptr<const Data> data_;
};

using Placement = std::variant<Replicate, Shard, Partial, RaggedShard>;

size_t hash_value(const Placement& placement);

/// "Replicate()", "Shard(0)", "Partial(sum)", "RaggedShard((0, 1), (1, 2))".
std::string to_string(const Placement& placement);
/// "[Shard(0), Replicate()]".
std::string to_string(const std::vector<Placement>& placements);
/// As `to_string`, but units beyond `kShortTextUnits` are counted instead of listed. Not for parsing.
std::string short_text(const Placement& placement);
std::string short_text(const std::vector<Placement>& placements);
inline constexpr size_t kShortTextUnits = 16;

/// Reads what `to_string` prints, the Python form "RaggedShard(dims=(0,), local_units=(1, 2))", the short forms "R",
/// "S(0)", "P", "P(max)", and units with repetition, "(1*500, 3*500)". Throws kInvalidArgument.
Placement parse_placement(std::string_view text);
/// Reads a list of placements, "[Shard(0), R]", with or without brackets. Throws kInvalidArgument.
std::vector<Placement> parse_placements(std::string_view text);

inline bool is_replicate(const Placement& placement) { return std::holds_alternative<Replicate>(placement); }
inline bool is_shard(const Placement& placement) { return std::holds_alternative<Shard>(placement); }
inline bool is_partial(const Placement& placement) { return std::holds_alternative<Partial>(placement); }
inline bool is_ragged_shard(const Placement& placement) { return std::holds_alternative<RaggedShard>(placement); }

/// A visitor made of lambdas, for std::visit over closed sets.
template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace hyper_parallel
