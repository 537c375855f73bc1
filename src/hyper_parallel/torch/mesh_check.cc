#include "hyper_parallel/torch/mesh_check.h"

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/torch/group_check.h"

namespace hyper_parallel {

void check_mesh_together(const MeshCommunicator& mesh, std::string_view operation,
                         const std::function<void()>& validate, const std::function<std::string()>& describe) {
  if (!check_enabled() || !mesh.is_member()) {
    validate();
    return;
  }
  validate_together(Participants(mesh.group(), mesh.mesh_group_ranks()), operation, validate,
                    [&] { return RankReport{describe(), ""}; });
}

std::string describe(const Layout& layout, std::span<const int64_t> shape, const at::Tensor& local) {
  const DeviceMesh& mesh = layout.mesh();
  const std::string placements = short_text(layout.placements());
  const bool is_short = mesh.size() <= static_cast<int64_t>(kShortTextUnits);
  const std::string where = is_short ? to_string(mesh) : str_cat("a mesh of shape ", tuple_text(mesh.shape()));
  // The hash stands for units and ranks too many to list; ranks of one job run one program and hash alike.
  const bool is_whole = is_short && placements == to_string(layout.placements());
  return str_cat("shape ", tuple_text(shape), " ", c10::toString(local.scalar_type()),
                 local.requires_grad() ? " with" : " without", " gradient, ", placements, " on ", where,
                 is_whole ? "" : str_cat(", layout hash ", layout.hash()));
}

}  // namespace hyper_parallel
