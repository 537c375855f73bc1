#include "hyper_parallel/placement/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/hash.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

// A million ranks is beyond any machine; the limit keeps "(1*9000000000)" from eating the memory.
constexpr int64_t kMaxParsedUnits = 1 << 24;

void check_prefix(const std::vector<int64_t>& dims) {
  HP_CHECK(!dims.empty(), kInvalidArgument, "RaggedShard dims is () but must name at least one dim");
  for (size_t i = 0; i < dims.size(); ++i) {
    HP_CHECK(std::cmp_equal(dims[i], i), kInvalidArgument, "RaggedShard dims is ", tuple_text(dims),
             " but must be the leading dims (0, 1, ..) in order");
  }
}

std::vector<int64_t> checked_cuts(const std::vector<int64_t>& units) {
  HP_CHECK(!units.empty(), kInvalidArgument, "RaggedShard local_units is () but must have an entry for each rank");
  std::vector<int64_t> cuts{0};
  cuts.reserve(units.size() + 1);
  for (size_t rank = 0; rank < units.size(); ++rank) {
    HP_CHECK(units[rank] >= 0, kInvalidArgument, "RaggedShard local_units[", rank, "] is ", units[rank],
             " but units must not be negative");
    cuts.push_back(checked_add(cuts.back(), units[rank]));
  }
  HP_CHECK(cuts.back() > 0, kInvalidArgument, "RaggedShard local_units is ",
           units.size() > kShortTextUnits ? str_cat(units.size(), " zeros") : tuple_text(units),
           " but at least one unit must be positive");
  return cuts;
}

std::vector<int64_t> parse_units(Scanner& in) {
  std::vector<int64_t> units;
  in.expect("(");
  while (!in.accept(")")) {
    const int64_t value = in.integer();
    const int64_t count = in.accept("*") ? in.integer() : 1;
    HP_CHECK(count >= 0, kInvalidArgument, "RaggedShard local_units repeats ", value, " ", count,
             " times but a count must not be negative");
    HP_CHECK(count <= kMaxParsedUnits - static_cast<int64_t>(units.size()), kInvalidArgument,
             "RaggedShard local_units repeats ", value, " ", count, " times but at most ", kMaxParsedUnits,
             " units can be read");
    units.insert(units.end(), static_cast<size_t>(count), value);
    if (!in.accept(",")) {
      in.expect(")");
      break;
    }
  }
  return units;
}

Placement parse_ragged(Scanner& in) {
  in.expect("(");
  if (in.accept("dims")) in.expect("=");
  const std::vector<int64_t> dims = in.integer_tuple();
  in.expect(",");
  if (in.accept("local_units")) in.expect("=");
  std::vector<int64_t> units = parse_units(in);
  in.expect(")");
  return RaggedShard(dims, std::move(units));
}

Placement parse_one(Scanner& in) {
  const std::string name = in.identifier();
  if (name == "RaggedShard" || name == "Ragged") return parse_ragged(in);
  if (name == "Replicate" || name == "R") {
    if (in.accept("(")) in.expect(")");
    return Replicate{};
  }
  if (name == "Shard" || name == "S") {
    in.expect("(");
    if (in.accept("dim")) in.expect("=");
    const int64_t dim = in.integer();
    in.expect(")");
    return Shard(dim);
  }
  if (name == "Partial" || name == "P") {
    if (!in.accept("(") || in.accept(")")) return Partial{};
    const ReduceOp op = parse_reduce_op(in.identifier());
    in.expect(")");
    return Partial(op);
  }
  raise(ErrorCode::kInvalidArgument, "'", name,
        "' is not a placement; placements are Replicate(), Shard(dim), Partial(op) and RaggedShard(dims, local_units)");
}

std::string ragged_text(const RaggedShard& ragged, size_t most_units) {
  const auto& units = ragged.local_units();
  return str_cat("RaggedShard(", tuple_text(ragged.dims()), ", ",
                 units.size() > most_units ? str_cat("<", units.size(), " units>") : tuple_text(units), ")");
}

std::string placement_text(const Placement& placement, size_t most_units) {
  return std::visit(Overloaded{
                        [](const Replicate&) { return std::string("Replicate()"); },
                        [](const Shard& shard) { return str_cat("Shard(", shard.dim, ")"); },
                        [](const Partial& partial) { return str_cat("Partial(", to_string(partial.op), ")"); },
                        [&](const RaggedShard& ragged) { return ragged_text(ragged, most_units); },
                    },
                    placement);
}

std::string list_text(const std::vector<Placement>& placements, size_t most_units) {
  std::vector<std::string> items;
  for (const Placement& placement : placements) items.push_back(placement_text(placement, most_units));
  return str_cat("[", join(items, ", "), "]");
}

}  // namespace

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  raise(ErrorCode::kInternal, "unknown reduce op");
}

ReduceOp parse_reduce_op(std::string_view text) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
    if (text == to_string(op)) return op;
  }
  raise(ErrorCode::kInvalidArgument, "Partial op is '", text, "' but must be one of sum, avg, max, min");
}

RaggedShard::RaggedShard(const std::vector<int64_t>& dims, std::vector<int64_t> local_units) {
  check_prefix(dims);
  dim_count_ = static_cast<int64_t>(dims.size());
  auto data = std::make_shared<Data>();
  data->cuts = checked_cuts(local_units);
  data->units = std::move(local_units);
  hash_combine_range(data->hash, data->units);
  data_ = std::move(data);
}

std::vector<int64_t> RaggedShard::dims() const {
  std::vector<int64_t> dims(static_cast<size_t>(dim_count_));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  return dims;
}

size_t RaggedShard::hash() const {
  size_t seed = data_->hash;
  hash_combine(seed, dim_count_);
  return seed;
}

size_t hash_value(const Placement& placement) {
  size_t seed = placement.index();
  std::visit(Overloaded{
                 [](const Replicate&) {},
                 [&](const Shard& shard) { hash_combine(seed, shard.dim); },
                 [&](const Partial& partial) { hash_combine(seed, static_cast<int>(partial.op)); },
                 [&](const RaggedShard& ragged) { hash_combine(seed, ragged.hash()); },
             },
             placement);
  return seed;
}

std::string to_string(const Placement& placement) { return placement_text(placement, SIZE_MAX); }

std::string to_string(const std::vector<Placement>& placements) { return list_text(placements, SIZE_MAX); }

std::string short_text(const Placement& placement) { return placement_text(placement, kShortTextUnits); }

std::string short_text(const std::vector<Placement>& placements) { return list_text(placements, kShortTextUnits); }

Placement parse_placement(std::string_view text) {
  Scanner in(text);
  Placement placement = parse_one(in);
  in.finish();
  return placement;
}

std::vector<Placement> parse_placements(std::string_view text) {
  Scanner in(text);
  std::vector<Placement> placements;
  const bool bracketed = in.accept("[");
  const auto closes = [&] { return bracketed ? in.accept("]") : in.at_end(); };
  while (!closes()) {
    placements.push_back(parse_one(in));
    if (closes()) break;
    in.expect(",");
  }
  in.finish();
  return placements;
}

}  // namespace hyper_parallel
