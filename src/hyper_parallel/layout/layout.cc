#include "hyper_parallel/layout/layout.h"

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/hash.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

const std::string& dim_name(const DeviceMesh& mesh, size_t dim) { return mesh.names()[dim]; }

/// The ragged placement, if there is one; `may_stand_beside` says what the other mesh dims may hold then.
template <typename Allowed>
std::optional<RaggedShardInfo> checked_ragged(const DeviceMesh& mesh, const std::vector<Placement>& placements,
                                              const Allowed& may_stand_beside) {
  std::optional<RaggedShardInfo> found;
  for (size_t dim = 0; dim < placements.size(); ++dim) {
    const auto* ragged = std::get_if<RaggedShard>(&placements[dim]);
    if (ragged == nullptr) continue;
    HP_CHECK(!found, kInvalidArgument, "placements ", short_text(placements),
             " hold several RaggedShard but a layout has at most one");
    HP_CHECK(ragged->rank_count() == mesh.size(static_cast<int64_t>(dim)), kInvalidArgument,
             "RaggedShard local_units has ", ragged->rank_count(), " entries but mesh dim '", dim_name(mesh, dim),
             "' has size ", mesh.size(static_cast<int64_t>(dim)));
    found = RaggedShardInfo{static_cast<int64_t>(dim), *ragged};
  }
  if (!found) return found;
  for (size_t dim = 0; dim < placements.size(); ++dim) {
    HP_CHECK(std::cmp_equal(dim, found->mesh_dim) || may_stand_beside(placements[dim]), kInvalidArgument, "placements ",
             short_text(placements), " have ", to_string(placements[dim]), " on mesh dim '", dim_name(mesh, dim),
             "' but beside RaggedShard every other mesh dim must be Replicate()");
  }
  return found;
}

void check_ragged_dims(const RaggedShard& ragged, int64_t ndim) {
  HP_CHECK(ragged.dim_count() <= ndim, kInvalidArgument, "RaggedShard dims ", tuple_text(ragged.dims()),
           " are more than the tensor's ", ndim, " dims");
}

}  // namespace

Layout::Layout(DeviceMesh mesh, std::vector<Placement> placements)
    : Layout(std::move(mesh), std::move(placements), Beside::kReplicate) {}

Layout Layout::with_partial_beside_ragged(DeviceMesh mesh, std::vector<Placement> placements) {
  return Layout(std::move(mesh), std::move(placements), Beside::kReplicateOrPartial);
}

Layout::Layout(DeviceMesh mesh, std::vector<Placement> placements, Beside beside_ragged) {
  HP_CHECK(std::cmp_equal(placements.size(), mesh.ndim()), kInvalidArgument, "placements ", short_text(placements),
           " are ", placements.size(), " but the mesh has ", mesh.ndim(), " dims ", tuple_text(mesh.names()));
  auto data = std::make_shared<Data>(Data{std::move(mesh), std::move(placements), std::nullopt});
  data->ragged = checked_ragged(data->mesh, data->placements, [&](const Placement& placement) {
    return is_replicate(placement) || (beside_ragged == Beside::kReplicateOrPartial && is_partial(placement));
  });
  data->folded = true;
  data->hash = data->mesh.hash();
  for (const Placement& placement : data->placements) {
    hash_combine(data->hash, hash_value(placement));
    if (const auto* shard = std::get_if<Shard>(&placement)) {
      data->folded = data->folded && shard->dim >= 0;
      data->last_dim = std::max(data->last_dim, shard->dim);
    }
  }
  if (data->ragged) data->last_dim = data->ragged->placement.dim_count() - 1;
  data_ = std::move(data);
}

std::vector<Placement> Layout::normal_placements() const {
  std::vector<Placement> normal = placements();
  if (is_ragged()) normal[static_cast<size_t>(ragged_shard()->mesh_dim)] = Replicate{};
  return normal;
}

bool Layout::has_partial() const { return std::ranges::any_of(placements(), is_partial); }

Layout Layout::with_placements(std::vector<Placement> placements) const {
  return Layout(mesh(), std::move(placements));
}

Layout Layout::folded(int64_t ndim) const {
  if (data_->folded && data_->last_dim < ndim) return *this;
  HP_CHECK(ndim >= 0, kInvalidArgument, "the tensor's ndim is ", ndim, " but must not be negative");
  std::vector<Placement> folded = placements();
  for (Placement& placement : folded) {
    if (auto* shard = std::get_if<Shard>(&placement)) {
      HP_CHECK(shard->dim >= -ndim && shard->dim < ndim, kOutOfRange, "Shard(", shard->dim,
               ") is out of range for a tensor of ", ndim, " dims");
      if (shard->dim < 0) shard->dim += ndim;
    } else if (const auto* ragged = std::get_if<RaggedShard>(&placement)) {
      check_ragged_dims(*ragged, ndim);
    }
  }
  return with_placements(std::move(folded));
}

std::string to_string(const Layout& layout) {
  return str_cat("Layout(", to_string(layout.mesh()), ", ", to_string(layout.placements()), ")");
}

Layout parse_layout(std::string_view text) {
  // The placements are the last bracketed list; the mesh's text never holds "), [" followed by a letter.
  constexpr std::string_view kHead = "Layout(";
  const size_t split = text.rfind("), [");
  HP_CHECK(text.starts_with(kHead) && text.ends_with(")") && split != std::string_view::npos, kInvalidArgument,
           "cannot read '", text, "': expected Layout(DeviceMesh(..), [placements])");
  const std::string_view mesh = text.substr(kHead.size(), split + 1 - kHead.size());
  const std::string_view placements = text.substr(split + 3, text.size() - split - 4);
  DeviceMesh parsed_mesh = parse_device_mesh(mesh);  // first, so that every compiler reports the same error
  return Layout(std::move(parsed_mesh), parse_placements(placements));
}

void check_global_shape(std::span<const int64_t> shape) {
  for (const int64_t size : shape) {
    HP_CHECK(size >= 0, kInvalidArgument, "global shape ", tuple_text(shape), " has the negative size ", size);
  }
  HP_CHECK(try_product(shape), kInvalidArgument, "global shape ", tuple_text(shape),
           " has a number of elements that does not fit in int64");
}

int64_t cells_per_unit(const RaggedShard& ragged, std::span<const int64_t> shape) {
  check_ragged_dims(ragged, std::ssize(shape));
  const int64_t cells = checked_product(shape.first(static_cast<size_t>(ragged.dim_count())));
  HP_CHECK(cells % ragged.total_units() == 0, kInvalidArgument, "RaggedShard local_units sum to ", ragged.total_units(),
           " but dims ", tuple_text(ragged.dims()), " of shape ", tuple_text(shape), " have ", cells,
           " cells, which must be a multiple of it");
  return cells / ragged.total_units();
}

void check_shape(const Layout& layout, std::span<const int64_t> shape) {
  check_global_shape(shape);
  layout.folded(static_cast<int64_t>(shape.size()));
  if (layout.is_ragged()) cells_per_unit(layout.ragged_shard()->placement, shape);
}

}  // namespace hyper_parallel
