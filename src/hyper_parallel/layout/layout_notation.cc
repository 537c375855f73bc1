#include "hyper_parallel/layout/layout_notation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/layout/tensor_map.h"

namespace hyper_parallel {
namespace {

constexpr int64_t kNoAxis = -1;

std::vector<int64_t> axes_of(const TensorMapEntry& entry) {
  return std::visit(Overloaded{
                        [](int64_t axis) { return axis == kNoAxis ? std::vector<int64_t>{} : std::vector{axis}; },
                        [](const std::vector<int64_t>& axes) { return axes; },
                    },
                    entry);
}

std::string alias_text(const AliasEntry& entry) {
  const auto quoted = [](const std::string& name) { return str_cat("'", name, "'"); };
  if (const auto* name = std::get_if<std::string>(&entry)) return quoted(*name);
  std::vector<std::string> names;
  for (const std::string& name : std::get<std::vector<std::string>>(entry)) names.push_back(quoted(name));
  return tuple_text(names);
}

std::string aliases_text(const std::vector<AliasEntry>& aliases) {
  std::vector<std::string> entries;
  for (const AliasEntry& entry : aliases) entries.push_back(alias_text(entry));
  return tuple_text(entries);
}

std::vector<std::string> names_of(const AliasEntry& entry) {
  return std::visit(
      Overloaded{
          [](const std::string& name) { return name == kNoAlias ? std::vector<std::string>{} : std::vector{name}; },
          [](const std::vector<std::string>& names) { return names; },
      },
      entry);
}

/// The mesh dim called `name`.
size_t dim_of(const DeviceMesh& mesh, const std::string& name, const std::vector<AliasEntry>& aliases) {
  const auto found = std::ranges::find(mesh.names(), name);
  HP_CHECK(found != mesh.names().end(), kInvalidArgument, "layout aliases ", aliases_text(aliases), " name '", name,
           "', which is not a dim of the mesh; its dims are ", tuple_text(mesh.names()));
  return static_cast<size_t>(found - mesh.names().begin());
}

}  // namespace

Layout layout_from_tensor_map(const DeviceMesh& mesh, const std::vector<TensorMapEntry>& map) {
  TensorMap axes;
  for (const TensorMapEntry& entry : map) axes.entries.push_back(axes_of(entry));
  return tensor_map_to_placement(mesh, axes);
}

Layout layout_from_aliases(const DeviceMesh& mesh, const std::vector<AliasEntry>& aliases) {
  std::vector<Placement> placements(static_cast<size_t>(mesh.ndim()), Replicate{});
  for (size_t tensor_dim = 0; tensor_dim < aliases.size(); ++tensor_dim) {
    std::optional<size_t> outer;
    for (const std::string& name : names_of(aliases[tensor_dim])) {
      const size_t mesh_dim = dim_of(mesh, name, aliases);
      HP_CHECK(is_replicate(placements[mesh_dim]), kInvalidArgument, "layout aliases ", aliases_text(aliases),
               " name mesh dim '", name, "' twice");
      HP_CHECK(!outer || *outer < mesh_dim, kUnimplemented, "layout aliases ", aliases_text(aliases),
               " split tensor dim ", tensor_dim, " by the inner mesh dim '", mesh.names()[outer.value_or(0)],
               "' first, which placements cannot say");
      placements[mesh_dim] = Shard(static_cast<int64_t>(tensor_dim));
      outer = mesh_dim;
    }
  }
  return Layout(mesh, std::move(placements));
}

}  // namespace hyper_parallel
