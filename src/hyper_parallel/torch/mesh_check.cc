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

std::string describe(const Layout& layout, std::span<const int64_t> shape, at::ScalarType dtype, bool requires_grad) {
  // The placements' hash stands for units too many to list; ranks of one job run one program and hash alike.
  return str_cat(short_text(layout.placements()), " ", layout.hash(), " of ", tuple_text(shape), " ",
                 c10::toString(dtype), requires_grad ? " with" : " without", " gradient");
}

}  // namespace hyper_parallel
