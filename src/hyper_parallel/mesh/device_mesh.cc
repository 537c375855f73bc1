#include "hyper_parallel/mesh/device_mesh.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/hash.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

// Far beyond any machine; the limit keeps a mistyped shape such as (9000000000,) from eating the memory.
constexpr int64_t kMaxRanks = 1 << 24;

std::vector<int64_t> first_ranks(int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return ranks;
}

int64_t checked_mesh_size(const std::vector<int64_t>& shape) {
  HP_CHECK(!shape.empty(), kInvalidArgument, "DeviceMesh shape is () but a mesh has at least one dim");
  for (const int64_t size : shape) {
    HP_CHECK(size >= 1, kInvalidArgument, "DeviceMesh shape is ", tuple_text(shape),
             " but every dim must be at least 1");
  }
  const int64_t size = checked_product(shape);
  HP_CHECK(size <= kMaxRanks, kInvalidArgument, "DeviceMesh shape is ", tuple_text(shape), " but a mesh has at most ",
           kMaxRanks, " ranks");
  return size;
}

bool is_identifier(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::vector<std::string> checked_names(std::vector<std::string> names, size_t ndim) {
  if (names.empty()) {
    for (size_t dim = 0; dim < ndim; ++dim) names.push_back(str_cat("dim_", dim));
  }
  HP_CHECK(names.size() == ndim, kInvalidArgument, "DeviceMesh has ", names.size(), " names ", tuple_text(names),
           " but ", ndim, " dims");
  for (const std::string& name : names) {
    HP_CHECK(is_identifier(name), kInvalidArgument, "DeviceMesh name '", name,
             "' must be made of letters, digits and underscores");
    HP_CHECK(std::ranges::count(names, name) == 1, kInvalidArgument, "DeviceMesh name '", name, "' stands twice in ",
             tuple_text(names));
  }
  return names;
}

/// Positions by ascending rank, or nothing where rank equals position everywhere.
std::vector<int64_t> checked_sorted_positions(const std::vector<int64_t>& ranks, int64_t size) {
  HP_CHECK(std::cmp_equal(ranks.size(), size), kInvalidArgument, "DeviceMesh has ", ranks.size(),
           " ranks but its shape has room for ", size);
  std::vector<int64_t> order = first_ranks(size);
  if (ranks == order) return {};
  std::ranges::sort(order, {}, [&](int64_t position) { return ranks[static_cast<size_t>(position)]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t rank = ranks[static_cast<size_t>(order[i])];
    HP_CHECK(rank >= 0, kInvalidArgument, "DeviceMesh rank ", rank, " must not be negative");
    HP_CHECK(i == 0 || ranks[static_cast<size_t>(order[i - 1])] != rank, kInvalidArgument, "DeviceMesh rank ", rank,
             " stands twice in the rank list");
  }
  return order;
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> names) {
  const int64_t size = checked_mesh_size(shape);
  names = checked_names(std::move(names), shape.size());  // refused before the rank list is made
  *this = DeviceMesh(std::move(shape), std::move(names), first_ranks(size));
}

DeviceMesh::DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> names, std::vector<int64_t> ranks) {
  auto data = std::make_shared<Data>();
  const int64_t size = checked_mesh_size(shape);
  data->names = checked_names(std::move(names), shape.size());
  data->sorted_positions = checked_sorted_positions(ranks, size);
  data->shape = std::move(shape);
  data->ranks = std::move(ranks);
  hash_combine_range(data->hash, data->shape);
  hash_combine_range(data->hash, data->names);
  hash_combine_range(data->hash, data->ranks);
  data_ = std::move(data);
}

int64_t DeviceMesh::dim_index(std::string_view name) const {
  const auto found = std::ranges::find(data_->names, name);
  HP_CHECK(found != data_->names.end(), kInvalidArgument, "'", name, "' is not a dim of the mesh; its dims are ",
           tuple_text(data_->names));
  return found - data_->names.begin();
}

std::optional<int64_t> DeviceMesh::position(int64_t rank) const {
  const auto& order = data_->sorted_positions;
  if (order.empty()) return rank >= 0 && rank < size() ? std::optional(rank) : std::nullopt;
  const auto rank_of = [this](int64_t position) { return data_->ranks[static_cast<size_t>(position)]; };
  const auto found = std::ranges::lower_bound(order, rank, {}, rank_of);
  if (found == order.end() || rank_of(*found) != rank) return std::nullopt;
  return *found;
}

std::optional<Dims> DeviceMesh::coordinate(int64_t rank) const {
  const auto found = position(rank);
  return found ? std::optional(coordinate_at(*found)) : std::nullopt;
}

Dims DeviceMesh::coordinate_at(int64_t position) const {
  Dims coordinate(data_->shape.size(), 0);
  for (size_t dim = coordinate.size(); dim-- > 0;) {
    coordinate[dim] = position % data_->shape[dim];
    position /= data_->shape[dim];
  }
  return coordinate;
}

int64_t DeviceMesh::rank_at(std::span<const int64_t> coordinate) const {
  HP_DCHECK(coordinate.size() == data_->shape.size());
  int64_t position = 0;
  for (size_t dim = 0; dim < coordinate.size(); ++dim) position = position * data_->shape[dim] + coordinate[dim];
  return data_->ranks[static_cast<size_t>(position)];
}

int64_t DeviceMesh::check_position(int64_t rank) const {
  const auto found = position(rank);
  HP_CHECK(found.has_value(), kInvalidArgument, "rank ", rank, " is not in ", to_string(*this));
  return *found;
}

std::vector<int64_t> DeviceMesh::group(int64_t dim, int64_t rank) const {
  HP_CHECK(dim >= 0 && dim < ndim(), kOutOfRange, "mesh dim ", dim, " is out of range for a mesh of ", ndim(), " dims");
  return sub_mesh({names()[static_cast<size_t>(dim)]}, rank).ranks();
}

DeviceMesh DeviceMesh::sub_mesh(const std::vector<std::string>& names, int64_t rank) const {
  HP_CHECK(!names.empty(), kInvalidArgument, "sub_mesh names is () but must name at least one dim");
  const Dims origin = coordinate_at(check_position(rank));
  std::vector<int64_t> shape;
  for (const std::string& name : names) shape.push_back(size(dim_index(name)));
  const int64_t count = checked_mesh_size(shape);
  const DeviceMesh grid(shape, names);  // refuses a name that stands twice
  std::vector<int64_t> ranks;
  for (int64_t position = 0; position < count; ++position) {
    Dims coordinate = origin;
    const Dims inner = grid.coordinate_at(position);
    for (size_t i = 0; i < names.size(); ++i) coordinate[static_cast<size_t>(dim_index(names[i]))] = inner[i];
    ranks.push_back(rank_at(coordinate));
  }
  return DeviceMesh(std::move(shape), names, std::move(ranks));
}

DeviceMesh DeviceMesh::flatten(std::string name) const {
  if (name.empty()) name = join(data_->names, "_");
  return DeviceMesh({size()}, {std::move(name)}, data_->ranks);
}

bool DeviceMesh::same_ranks(const DeviceMesh& other) const {
  if (data_ == other.data_ || data_->ranks == other.data_->ranks) return true;
  return size() == other.size() &&
         std::ranges::all_of(data_->ranks, [&](int64_t rank) { return other.contains(rank); });
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.data_ == b.data_) return true;
  return a.data_->hash == b.data_->hash && a.data_->shape == b.data_->shape && a.data_->names == b.data_->names &&
         a.data_->ranks == b.data_->ranks;
}

std::string to_string(const DeviceMesh& mesh) {
  std::vector<std::string> quoted;
  for (const std::string& name : mesh.names()) quoted.push_back(str_cat("'", name, "'"));
  std::string text = str_cat("DeviceMesh(", tuple_text(mesh.shape()), ", ", tuple_text(quoted));
  if (mesh.ranks() != first_ranks(mesh.size())) text += str_cat(", [", join(mesh.ranks(), ", "), "]");
  return text + ")";
}

DeviceMesh parse_device_mesh(std::string_view text) {
  Scanner in(text);
  in.expect("DeviceMesh");
  in.expect("(");
  std::vector<int64_t> shape = in.integer_tuple();
  std::vector<std::string> names;
  in.expect(",");
  in.expect("(");
  while (!in.accept(")")) {
    in.expect("'");
    names.push_back(in.identifier());
    in.expect("'");
    if (!in.accept(",")) {
      in.expect(")");
      break;
    }
  }
  std::vector<int64_t> ranks = in.accept(",") ? in.integer_tuple("[", "]") : first_ranks(checked_mesh_size(shape));
  in.expect(")");
  in.finish();
  return DeviceMesh(std::move(shape), std::move(names), std::move(ranks));
}

}  // namespace hyper_parallel
