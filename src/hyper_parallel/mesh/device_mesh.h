#pragma once

// DeviceMesh: ranks laid out on a named grid.
//
// A *rank* is a process's number in the job. A *coordinate* is a position in the mesh; positions are row-major over the
// mesh's rank list. The rank list may hold any of the job's ranks, once each and in any order: coordinates and groups
// follow it, never the sorted ranks. The *group* of a mesh dim at a coordinate are the ranks that differ from it in
// that dim alone, in mesh order.
//
// Two meshes are equal only if shape, names and the whole rank list are. A mesh is immutable and cheap to copy.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/base/dims.h"

namespace hyper_parallel {

class DeviceMesh {
 public:
  /// A mesh over ranks 0 .. prod(shape) - 1. Empty `names` become "dim_0", "dim_1", ...
  /// Throws kInvalidArgument: no dim, a size < 1, more than 2^24 ranks, names that are not as many as dims, not unique
  /// or not made of letters, digits and underscores.
  explicit DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> names = {});

  /// A mesh over `ranks`, row-major. Throws kInvalidArgument as above and where the ranks are not prod(shape) different
  /// non-negative numbers.
  DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> names, std::vector<int64_t> ranks);

  int64_t ndim() const { return static_cast<int64_t>(data_->shape.size()); }
  const std::vector<int64_t>& shape() const { return data_->shape; }
  const std::vector<std::string>& names() const { return data_->names; }
  const std::vector<int64_t>& ranks() const { return data_->ranks; }
  /// How many ranks the mesh has.
  int64_t size() const { return static_cast<int64_t>(data_->ranks.size()); }
  /// How many ranks lie along mesh dim `dim`; dim in [0, ndim).
  int64_t size(int64_t dim) const { return data_->shape[static_cast<size_t>(dim)]; }

  /// The dim called `name`; throws kInvalidArgument if there is none.
  int64_t dim_index(std::string_view name) const;

  bool contains(int64_t rank) const { return position(rank).has_value(); }
  /// The rank's index in the rank list, nothing if the mesh does not hold it.
  std::optional<int64_t> position(int64_t rank) const;
  /// The rank's coordinate, one entry per mesh dim, nothing if the mesh does not hold it.
  std::optional<Dims> coordinate(int64_t rank) const;
  /// The coordinate of the rank list's entry `position`, in [0, size()).
  Dims coordinate_at(int64_t position) const;
  /// The rank at a coordinate of the mesh.
  int64_t rank_at(std::span<const int64_t> coordinate) const;

  /// The ranks of the group along mesh dim `dim` through `rank`, in mesh order. Throws kOutOfRange for a dim outside
  /// [0, ndim) and kInvalidArgument if the mesh does not hold the rank.
  std::vector<int64_t> group(int64_t dim, int64_t rank) const;

  /// The mesh of the dims `names`, in the order given, through `rank`. Throws kInvalidArgument for no name, an unknown
  /// or repeated one, or a rank outside the mesh. Example: DeviceMesh({2, 2}, {"dp", "tp"}).sub_mesh({"tp"}, 3) ==
  /// DeviceMesh({2}, {"tp"}, {2, 3}).
  DeviceMesh sub_mesh(const std::vector<std::string>& names, int64_t rank) const;

  /// The 1-D mesh over the same rank list; an empty `name` joins the names with '_' ("dp_tp").
  DeviceMesh flatten(std::string name = {}) const;

  /// True if both meshes hold the same set of ranks, in whatever order and shape.
  bool same_ranks(const DeviceMesh& other) const;

  size_t hash() const { return data_->hash; }
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);

 private:
  struct Data {
    std::vector<int64_t> shape;
    std::vector<std::string> names;
    std::vector<int64_t> ranks;
    std::vector<int64_t> sorted_positions;  // positions by ascending rank; empty where ranks are 0 .. size - 1
    size_t hash = 0;
  };

  int64_t check_position(int64_t rank) const;

  std::shared_ptr<const Data> data_;
};

/// "DeviceMesh((2, 2), ('dp', 'tp'))", with the rank list behind where it is not 0 .. size - 1.
std::string to_string(const DeviceMesh& mesh);

/// Reads what `to_string` prints; throws kInvalidArgument.
DeviceMesh parse_device_mesh(std::string_view text);

}  // namespace hyper_parallel

template <>
struct std::hash<hyper_parallel::DeviceMesh> {
  size_t operator()(const hyper_parallel::DeviceMesh& mesh) const { return mesh.hash(); }
};
