#include "hyper_parallel/geometry/distribution.h"

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

std::vector<DimSplit> splits_of(const Layout& layout) {
  std::vector<DimSplit> splits;
  splits.reserve(layout.placements().size());
  for (const Placement& placement : layout.placements()) {
    std::visit([&](const auto& value) { splits.emplace_back(value); }, placement);
  }
  return splits;
}

const Layout& checked_layout(const Layout& layout, const Dims& shape) {
  check_shape(layout, shape);
  return layout;  // NOLINT(bugprone-return-const-ref-from-parameter): read within the expression that calls
}

/// The mesh dims of more than one rank whose split fits `matches`, outermost first.
template <typename Matches>
std::vector<size_t> mesh_dims_where(const Distribution& distribution, const Matches& matches) {
  std::vector<size_t> dims;
  const auto& splits = distribution.dim_splits();
  for (size_t dim = 0; dim < splits.size(); ++dim) {
    if (distribution.mesh().size(static_cast<int64_t>(dim)) > 1 && matches(splits[dim])) dims.push_back(dim);
  }
  return dims;
}

std::vector<size_t> shard_dims(const Distribution& distribution, int64_t tensor_dim) {
  return mesh_dims_where(distribution, [&](const DimSplit& split) {
    const auto* shard = std::get_if<Shard>(&split);
    return shard != nullptr && shard->dim == tensor_dim;
  });
}

/// In the order in which they cut: innermost first.
std::vector<size_t> flat_dims(const Distribution& distribution) {
  auto dims =
      mesh_dims_where(distribution, [](const DimSplit& split) { return std::holds_alternative<FlatSplit>(split); });
  std::ranges::reverse(dims);
  return dims;
}

std::vector<size_t> ragged_dims(const Distribution& distribution) {
  return mesh_dims_where(distribution,
                         [](const DimSplit& split) { return std::holds_alternative<RaggedShard>(split); });
}

bool is_prefix(const std::vector<size_t>& head, const std::vector<size_t>& whole) {
  return head.size() <= whole.size() && std::equal(head.begin(), head.end(), whole.begin());
}

bool same_ragged(const Distribution& a, const Distribution& b) {
  const std::vector<size_t> dims = ragged_dims(a);
  if (dims != ragged_dims(b)) return false;
  return std::ranges::all_of(dims, [&](size_t dim) {
    return same_split(RaggedSplit(std::get<RaggedShard>(a.dim_splits()[dim]), a.shape()),
                      RaggedSplit(std::get<RaggedShard>(b.dim_splits()[dim]), b.shape()));
  });
}

}  // namespace

bool splits(const DimSplit& split) {
  return std::visit(Overloaded{
                        [](const Replicate&) { return false; },
                        [](const Partial&) { return false; },
                        [](const Shard&) { return true; },
                        [](const RaggedShard&) { return true; },
                        [](const FlatSplit&) { return true; },
                    },
                    split);
}

std::string to_string(const DimSplit& split) {
  return std::visit(Overloaded{
                        [](const FlatSplit&) { return std::string("FlatSplit()"); },
                        [](const auto& placement) { return short_text(Placement(placement)); },
                    },
                    split);
}

Distribution::Distribution(const Layout& layout, const Dims& shape)
    : Distribution(checked_layout(layout, shape).mesh(), splits_of(layout.folded(static_cast<int64_t>(shape.size()))),
                   shape) {}

Distribution::Distribution(DeviceMesh mesh, std::vector<DimSplit> splits, Dims shape)
    : mesh_(std::move(mesh)), splits_(std::move(splits)), shape_(std::move(shape)) {
  check_global_shape(shape_);
  HP_CHECK(std::cmp_equal(splits_.size(), mesh_.ndim()), kInvalidArgument, "there are ", splits_.size(),
           " splits but the mesh has ", mesh_.ndim(), " dims");
  bool has_shard = false;
  for (size_t dim = 0; dim < splits_.size(); ++dim) {
    if (const auto* shard = std::get_if<Shard>(&splits_[dim])) {
      HP_CHECK(shard->dim >= 0 && std::cmp_less(shard->dim, shape_.size()), kOutOfRange, "Shard(", shard->dim,
               ") is out of range for a tensor of ", shape_.size(), " dims");
      has_shard = true;
    } else if (const auto* ragged = std::get_if<RaggedShard>(&splits_[dim])) {
      HP_CHECK(!ragged_, kInvalidArgument, "there are several RaggedShard but a distribution has at most one");
      HP_CHECK(ragged->rank_count() == mesh_.size(static_cast<int64_t>(dim)), kInvalidArgument,
               "RaggedShard local_units has ", ragged->rank_count(), " entries but mesh dim '", mesh_.names()[dim],
               "' has size ", mesh_.size(static_cast<int64_t>(dim)));
      ragged_.emplace(*ragged, shape_);
      ragged_dim_ = dim;
    } else if (std::holds_alternative<FlatSplit>(splits_[dim])) {
      flat_dims_.insert(flat_dims_.begin(), dim);
    }
  }
  HP_CHECK(!(has_shard && ragged_), kInvalidArgument, "RaggedShard cannot stand beside Shard");
}

Distribution Distribution::with_split(int64_t mesh_dim, DimSplit split) const {
  std::vector<DimSplit> changed = splits_;
  changed[static_cast<size_t>(mesh_dim)] = std::move(split);
  return Distribution(mesh_, std::move(changed), shape_);
}

Region Distribution::owned(const Dims& coordinate) const {
  Box box = whole_box(shape_);
  for (size_t dim = 0; dim < splits_.size(); ++dim) {
    if (const auto* shard = std::get_if<Shard>(&splits_[dim])) {
      const size_t d = static_cast<size_t>(shard->dim);
      const Interval range = chunk_of(box.range(d), mesh_.size(static_cast<int64_t>(dim)), coordinate[dim]);
      box.offsets[d] = range.begin;
      box.sizes[d] = range.size();
    }
  }
  Region region = region_of(std::move(box));
  if (ragged_) region.flat = ragged_->owned(coordinate[ragged_dim_]);
  for (const size_t dim : flat_dims_) {
    region.flat = even_part_of(region.flat, mesh_.size(static_cast<int64_t>(dim)), coordinate[dim]);
  }
  return region;
}

Dims Distribution::local_shape(const Dims& coordinate) const {
  Region region = owned(coordinate);
  if (ragged_ || !flat_dims_.empty()) return Dims{region.numel()};
  return std::move(region.box.sizes);
}

/// A depth-first walk over the mesh dims that follows only coordinates whose region can meet the wanted one.
class Distribution::OwnerWalk {
 public:
  OwnerWalk(const Distribution& distribution, const Region& wanted, const std::vector<std::optional<int64_t>>& fixed,
            const Visit& visit)
      : distribution_(distribution),
        wanted_(wanted),
        fixed_(fixed),
        visit_(visit),
        wanted_box_(bounding_box(wanted)),
        coordinate_(distribution.splits_.size(), 0),
        box_(whole_box(distribution.shape_)) {}

  void run() { walk(0); }

 private:
  void walk(size_t dim) {
    if (dim == coordinate_.size()) {
      visit_(coordinate_, distribution_.owned(coordinate_));
      return;
    }
    const int64_t parts = distribution_.mesh_.size(static_cast<int64_t>(dim));
    std::visit(Overloaded{
                   [&](const Shard& shard) { walk_shard(dim, static_cast<size_t>(shard.dim), parts); },
                   [&](const RaggedShard&) {
                     walk_range(dim, distribution_.ragged_->owners(flat_hull(wanted_, distribution_.shape_)));
                   },
                   [&](const Replicate&) { walk_range(dim, {0, parts}); },
                   [&](const Partial&) { walk_range(dim, {0, parts}); },
                   [&](const FlatSplit&) { walk_range(dim, {0, parts}); },
               },
               distribution_.splits_[dim]);
  }

  void walk_range(size_t dim, Interval range) {
    if (fixed_[dim]) range = intersect(range, {*fixed_[dim], *fixed_[dim] + 1});
    for (int64_t index = range.begin; index < range.end; ++index) {
      coordinate_[dim] = index;
      walk(dim + 1);
    }
  }

  void walk_shard(size_t dim, size_t tensor_dim, int64_t parts) {
    const Interval whole = box_.range(tensor_dim);
    const Interval needed = intersect(whole, wanted_box_.range(tensor_dim));
    if (needed.empty()) return;
    const int64_t chunk = ceil_div(whole.size(), parts);
    Interval range{(needed.begin - whole.begin) / chunk, (needed.end - 1 - whole.begin) / chunk + 1};
    if (fixed_[dim]) range = intersect(range, {*fixed_[dim], *fixed_[dim] + 1});
    for (int64_t index = range.begin; index < range.end; ++index) {
      const Interval part = chunk_of(whole, parts, index);
      box_.offsets[tensor_dim] = part.begin;
      box_.sizes[tensor_dim] = part.size();
      coordinate_[dim] = index;
      walk(dim + 1);
    }
    box_.offsets[tensor_dim] = whole.begin;
    box_.sizes[tensor_dim] = whole.size();
  }

  const Distribution& distribution_;
  const Region& wanted_;
  const std::vector<std::optional<int64_t>>& fixed_;
  const Visit& visit_;
  Box wanted_box_;  // not wanted_.box, which is the whole tensor for a ragged share
  Dims coordinate_;
  Box box_;
};

void Distribution::for_each_owner(const Region& wanted, const std::vector<std::optional<int64_t>>& fixed,
                                  const Visit& visit) const {
  if (wanted.empty()) return;
  OwnerWalk(*this, wanted, fixed, visit).run();
}

bool Distribution::is_refined_by(const Distribution& finer) const {
  const std::vector<size_t> own_flat = flat_dims(*this);
  const bool has_ragged = !ragged_dims(*this).empty();
  if (has_ragged && !same_ragged(*this, finer)) return false;
  for (int64_t d = 0; std::cmp_less(d, shape_.size()); ++d) {
    const std::vector<size_t> own = shard_dims(*this, d);
    const std::vector<size_t> other = shard_dims(finer, d);
    // Under a flat cut the blocks themselves must agree; otherwise finer may go on cutting where this one stops.
    if (own_flat.empty() ? !is_prefix(own, other) : own != other) return false;
  }
  if (!own_flat.empty() && !same_ragged(*this, finer)) return false;
  return is_prefix(own_flat, flat_dims(finer));
}

std::string short_text(const Distribution& distribution) {
  std::vector<std::string> items;
  for (const DimSplit& split : distribution.dim_splits()) items.push_back(to_string(split));
  return str_cat("[", join(items, ", "), "]");
}

}  // namespace hyper_parallel
