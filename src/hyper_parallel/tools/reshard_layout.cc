#include "hyper_parallel/tools/reshard_layout.h"

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/fnv1a.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/geometry/distribution.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kMaxRanks = int64_t{1} << 20;

void check_one_layout(const ReshardLayoutOptions& options) {
  const int layouts = (options.units ? 1 : 0) + (options.shard ? 1 : 0) + (options.replicate ? 1 : 0);
  HP_CHECK(layouts <= 1, kInvalidArgument, "--units, --shard and --replicate exclude one another");
  HP_CHECK(!options.dims || options.units, kInvalidArgument, "--dims goes with --units");
}

/// Integers, '*', commas and blanks: what units and dims are written with, so that nothing else of the notation of
/// placements gets in.
void check_list(std::string_view option, std::string_view text) {
  HP_CHECK(text.find_first_not_of("0123456789-*, ") == std::string_view::npos, kInvalidArgument, option, ": ",
           quoted_name(text), " is not a list of integers such as 1,2,0,5");
}

Placement ragged_placement(const std::string& units, const std::string& dims, int64_t ranks) {
  check_list("--units", units);
  check_list("--dims", dims);
  try {
    Placement placement = parse_placement(str_cat("RaggedShard((", dims, ",), (", units, ",))"));
    const int64_t count = std::get<RaggedShard>(placement).rank_count();
    HP_CHECK(count == ranks, kInvalidArgument, count, " units for ", ranks, " ranks; each rank has one (--ranks)");
    return placement;
  } catch (const Error& error) {
    raise(error.code(), "--units: ", error.what());
  }
}

std::optional<Placement> fallback_placement(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  if (*name == "shard") return Shard(0);
  HP_CHECK(*name == "replicate", kInvalidArgument, "--fallback: ", quoted_name(*name),
           " is not one of shard, replicate");
  return Replicate();
}

/// The tensor under the placement, or why it does not fit.
struct Fit {
  std::optional<Distribution> distribution;
  std::string fault;
};

Fit fit(const Placement& placement, int64_t ranks, const Dims& shape) {
  try {
    return {Distribution(Layout(DeviceMesh({ranks}), {placement}), shape), ""};
  } catch (const Error& error) {
    const bool is_misfit = error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kOutOfRange;
    if (!is_misfit) throw;
    return {std::nullopt, error.what()};
  }
}

Distribution distribution_of(const ReshardLayout& layout, const StoredTensor& tensor) {
  Fit wanted = fit(layout.placement, layout.ranks, tensor.shape());
  if (wanted.distribution) return std::move(*wanted.distribution);
  HP_CHECK(layout.fallback.has_value(), kInvalidArgument, "tensor ", quoted_name(tensor.name()), ": ", wanted.fault,
           "; --fallback shard or --fallback replicate lays such tensors out otherwise");
  const bool has_dims = tensor.shape().size() > 0;
  const Placement fallback = has_dims ? *layout.fallback : Placement(Replicate());
  return *fit(fallback, layout.ranks, tensor.shape()).distribution;
}

}  // namespace

ReshardLayout read_reshard_layout(const ReshardLayoutOptions& options) {
  HP_CHECK(options.ranks >= 1 && options.ranks <= kMaxRanks, kInvalidArgument, "--ranks is ", options.ranks,
           ", but must be from 1 to ", kMaxRanks);
  check_one_layout(options);
  ReshardLayout layout{options.ranks, Shard(0), fallback_placement(options.fallback)};
  if (options.units) layout.placement = ragged_placement(*options.units, options.dims.value_or("0"), options.ranks);
  if (options.shard) layout.placement = Shard(*options.shard);
  if (options.replicate) layout.placement = Replicate();
  return layout;
}

std::vector<RankBoxes> stored_boxes(const ReshardLayout& layout, const StoredTensor& tensor) {
  const Distribution distribution = distribution_of(layout, tensor);
  const auto ranks = static_cast<uint64_t>(layout.ranks);
  std::vector<RankBoxes> stored;
  const auto add = [&](int64_t rank) {
    std::vector<Box> boxes = region_boxes(distribution.owned({rank}));
    std::erase_if(boxes, [](const Box& box) { return box.empty(); });
    if (!boxes.empty()) stored.push_back({rank, std::move(boxes)});
  };
  if (std::ranges::any_of(distribution.dim_splits(), splits)) {
    for (int64_t rank = 0; rank < layout.ranks; ++rank) add(rank);
  } else {
    add(static_cast<int64_t>(fnv1a_64(tensor.name()) % ranks));  // the replica that unite_save_plans chooses
  }
  return stored;
}

}  // namespace hyper_parallel
