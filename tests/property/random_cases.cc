#include "tests/property/random_cases.h"

#include <algorithm>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>

#include "hyper_parallel/base/text.h"

namespace hyper_parallel::test {
namespace {

int64_t product_of(const std::vector<int64_t>& factors) {
  return std::accumulate(factors.begin(), factors.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t candidate = 1; candidate <= number; ++candidate) {
    if (number % candidate == 0) divisors.push_back(candidate);
  }
  return divisors;
}

template <typename T>
std::vector<T> shuffled(std::vector<T> items) {
  for (size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[left - 1 - draw_index(left)]);
  }
  return items;
}

std::vector<std::string> draw_names(size_t count) {
  std::vector<std::string> names = shuffled(std::vector<std::string>{"dp", "tp", "pp"});
  names.resize(count);
  return names;
}

/// 0, 1, 2, .. or a permutation of ranks that leaves some out.
std::vector<int64_t> draw_ranks(int64_t count) {
  std::vector<int64_t> ranks;
  const bool plain = !draw_chance(50);
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    next += plain ? 0 : draw(0, 2);
    ranks.push_back(next++);
  }
  return plain ? ranks : shuffled(std::move(ranks));
}

ReduceOp draw_op() { return draw_of<ReduceOp>({ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}); }

Placement draw_normal_placement(const Dims& shape) {
  const int64_t ndim = static_cast<int64_t>(shape.size());
  if (ndim == 0 || !draw_chance(65)) return Replicate{};
  const int64_t dim = draw(0, ndim - 1);
  return Shard(draw_chance(10) ? dim - ndim : dim);
}

/// `parts` numbers from 0 that sum to `total`.
std::vector<int64_t> draw_parts(int64_t total, int64_t parts) {
  std::vector<int64_t> cuts{0, total};
  for (int64_t i = 1; i < parts; ++i) cuts.push_back(draw(0, total));
  std::ranges::sort(cuts);
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < cuts.size(); ++i) sizes.push_back(cuts[i] - cuts[i - 1]);
  return sizes;
}

bool linear(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kAvg; }

/// True if the reduction on mesh dim `outer` need not wait for the one on `inner`.
bool may_overtake(const Placement& outer, const Placement& inner) {
  const ReduceOp a = std::get<Partial>(outer).op;
  const ReduceOp b = std::get<Partial>(inner).op;
  return a == b || (linear(a) && linear(b));
}

/// `target` with some Partial of `source` put back: from the outermost on, such that none waits for one that stays.
std::vector<Placement> keep_some_partial(const std::vector<Placement>& source, std::vector<Placement> target) {
  std::vector<size_t> resolved;
  for (size_t dim = 0; dim < source.size(); ++dim) {
    if (!is_partial(source[dim])) continue;
    const auto waits = [&](size_t outer) { return !may_overtake(source[outer], source[dim]); };
    if (!std::ranges::any_of(resolved, waits) && draw_chance(60)) {
      target[dim] = source[dim];
    } else {
      resolved.push_back(dim);
    }
  }
  return target;
}

}  // namespace

DeviceMesh draw_mesh() {
  const int64_t ndim = draw(1, 3);
  std::vector<int64_t> shape;
  for (int64_t dim = 0; dim < ndim; ++dim)
    shape.push_back(draw(1, std::min<int64_t>(4, kMostRanks / product_of(shape))));
  const std::vector<int64_t> sizes = shuffled(std::move(shape));
  return DeviceMesh(sizes, draw_names(sizes.size()), draw_ranks(product_of(sizes)));
}

DeviceMesh draw_mesh_over_ranks_of(const DeviceMesh& mesh) {
  std::vector<int64_t> shape;
  int64_t left = mesh.size();
  for (int64_t more = draw(0, 2); more > 0; --more) {
    shape.push_back(draw_of(divisors_of(left)));
    left /= shape.back();
  }
  shape.push_back(left);
  return DeviceMesh(shape, draw_names(shape.size()), shuffled(mesh.ranks()));
}

Dims draw_shape(int64_t least_ndim) {
  const int64_t ndim = draw(least_ndim, 4);
  std::vector<int64_t> shape;
  int64_t numel = 1;
  for (int64_t dim = 0; dim < ndim; ++dim) {
    shape.push_back(draw(1, std::min<int64_t>(ndim <= 2 ? 13 : 6, kMostElements / numel)));
    numel *= shape.back();
  }
  if (ndim > 0 && draw_chance(6)) shape[static_cast<size_t>(draw(0, ndim - 1))] = 0;
  return shuffled(std::move(shape));
}

RaggedShard draw_ragged_shard(const Dims& shape, int64_t ranks) {
  const int64_t count = draw(1, static_cast<int64_t>(shape.size()));
  std::vector<int64_t> dims(static_cast<size_t>(count));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  const int64_t cells = product_of({shape.begin(), shape.begin() + count});
  const int64_t units = cells == 0 ? draw(1, 9) : draw_of(divisors_of(cells));
  return RaggedShard(dims, draw_parts(units, ranks));
}

Layout draw_normal_layout(const DeviceMesh& mesh, const Dims& shape) {
  std::vector<Placement> placements;
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) placements.push_back(draw_normal_placement(shape));
  return Layout(mesh, std::move(placements));
}

Layout draw_ragged_layout(const DeviceMesh& mesh, const Dims& shape) {
  std::vector<Placement> placements(static_cast<size_t>(mesh.ndim()), Replicate{});
  const int64_t dim = draw(0, mesh.ndim() - 1);
  placements[static_cast<size_t>(dim)] = draw_ragged_shard(shape, mesh.size(dim));
  return Layout(mesh, std::move(placements));
}

Layout draw_layout_without_partial(const DeviceMesh& mesh, const Dims& shape) {
  return !shape.empty() && draw_chance(45) ? draw_ragged_layout(mesh, shape) : draw_normal_layout(mesh, shape);
}

Layout draw_partial_layout(const DeviceMesh& mesh, const Dims& shape) {
  std::vector<Placement> placements = draw_normal_layout(mesh, shape).placements();
  const ReduceOp common = draw_op();
  const bool mixed = draw_chance(40);
  const size_t sure = static_cast<size_t>(draw(0, mesh.ndim() - 1));
  for (size_t dim = 0; dim < placements.size(); ++dim) {
    if (dim == sure || draw_chance(50)) placements[dim] = Partial(mixed ? draw_op() : common);
  }
  return Layout(mesh, std::move(placements));
}

std::ostream& operator<<(std::ostream& out, const LayoutOfShape& value) {
  return out << "shape " << tuple_text(value.shape) << " as " << to_string(value.layout);
}

LayoutOfShape draw_layout_of_shape() {
  const DeviceMesh mesh = draw_mesh();
  const Dims shape = draw_shape();
  return {draw_chance(30) ? draw_partial_layout(mesh, shape) : draw_layout_without_partial(mesh, shape), shape};
}

Distribution draw_distribution(const DeviceMesh& mesh, const Dims& shape) {
  std::vector<DimSplit> splits;
  const Layout layout = draw_layout_without_partial(mesh, shape).folded(static_cast<int64_t>(shape.size()));
  for (const Placement& placement : layout.placements()) {
    std::visit([&](const auto& value) { splits.emplace_back(value); }, placement);
  }
  for (DimSplit& split : splits) {
    if (draw_chance(25)) split = FlatSplit{};
    if (std::holds_alternative<Replicate>(split) && draw_chance(20)) split = Partial(draw_op());
  }
  return Distribution(mesh, std::move(splits), shape);
}

Interval draw_interval(int64_t size) {
  const int64_t begin = draw(0, size);
  return {begin, draw(begin, size)};
}

Region draw_region(const Dims& shape) {
  Box box = whole_box(shape);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (!draw_chance(60)) continue;
    const Interval range = draw_interval(shape[dim]);
    box.offsets[dim] = range.begin;
    box.sizes[dim] = range.size();
  }
  Region region = region_of(std::move(box));
  if (draw_chance(60)) region.flat = draw_interval(region.flat.end);
  return region;
}

std::ostream& operator<<(std::ostream& out, const DistributionPair& pair) {
  return out << "shape " << tuple_text(pair.source.shape()) << " on " << to_string(pair.source.mesh()) << "\n  from "
             << short_text(pair.source) << "\n  to   " << short_text(pair.target);
}

DistributionPair draw_distributions() {
  const DeviceMesh mesh = draw_mesh();
  const Dims shape = draw_shape();
  Distribution source = draw_distribution(mesh, shape);
  Distribution target = draw_distribution(mesh, shape);
  bool has_flat_split = false;
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const size_t d = static_cast<size_t>(dim);
    if (std::holds_alternative<Partial>(target.dim_splits()[d])) target = target.with_split(dim, Replicate{});
    has_flat_split = has_flat_split || std::holds_alternative<FlatSplit>(source.dim_splits()[d]);
    const bool is_pending = std::holds_alternative<Partial>(source.dim_splits()[d]);
    if (is_pending && has_flat_split) source = source.with_split(dim, Replicate{});
  }
  return {std::move(source), std::move(target)};
}

std::ostream& operator<<(std::ostream& out, const Redistribution& pair) {
  return out << "shape " << tuple_text(pair.shape) << "\n  from " << to_string(pair.source) << "\n  to   "
             << to_string(pair.target);
}

Redistribution draw_redistribution_without_partial() {
  const DeviceMesh mesh = draw_mesh();
  const Dims shape = draw_shape();
  Layout source = draw_layout_without_partial(mesh, shape);
  if (!source.is_ragged() && draw_chance(25)) {
    return {source, draw_normal_layout(draw_mesh_over_ranks_of(mesh), shape), shape};
  }
  return {source, draw_layout_without_partial(mesh, shape), shape};
}

Redistribution draw_redistribution_of_partial() {
  const DeviceMesh mesh = draw_mesh();
  const Dims shape = draw_shape();
  Layout source = draw_partial_layout(mesh, shape);
  if (draw_chance(15)) return {source, draw_normal_layout(draw_mesh_over_ranks_of(mesh), shape), shape};
  Layout target = draw_layout_without_partial(mesh, shape);
  if (target.is_ragged() || !draw_chance(40)) return {source, target, shape};
  return {source, Layout(mesh, keep_some_partial(source.placements(), target.placements())), shape};
}

}  // namespace hyper_parallel::test
