// hyper_parallel._core: the values of the library and its errors, free of any framework.

#include <pybind11/pybind11.h>

#include "core_checkpoint_types.h"
#include "core_checkpointer.h"
#include "core_errors.h"
#include "core_exchange.h"
#include "core_geometry.h"
#include "core_layout.h"
#include "core_mesh.h"
#include "core_placement.h"
#include "core_plan.h"
#include "core_planner.h"
#include "core_redistribute.h"
#include "core_storage.h"

PYBIND11_MODULE(_core, core) {
  using namespace hyper_parallel::bindings;
  core.doc() = "The C++ core of hyper_parallel: placements, meshes, layouts, geometry, checkpoints and errors.";
  core.attr("__version__") = HYPER_PARALLEL_VERSION;
  bind_errors(core);
  register_error_translator();
  bind_placements(core);
  bind_mesh(core);
  bind_layout(core);
  bind_geometry(core);
  bind_plan(core);
  bind_redistribute(core);
  bind_checkpoint_types(core);
  bind_planners(core);
  bind_storages(core);
  bind_exchanges(core);
  bind_checkpointer(core);
}
