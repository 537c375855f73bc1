// The module hyper_parallel._torch: the libtorch layer. Needs `_core`, whose classes it takes and hands out.

#include "core_errors.h"
#include "torch_attributes.h"
#include "torch_collectives.h"
#include "torch_communicator.h"
#include "torch_dtensor.h"
#include "torch_factories.h"
#include "torch_function.h"
#include "torch_operation.h"
#include "torch_planner.h"
#include "torch_random.h"

PYBIND11_MODULE(_torch, module) {
  using namespace hyper_parallel::bindings;
  module.doc() = "The libtorch layer of hyper_parallel.";
  // Whose Python classes the signatures below name: ProcessGroup, and the core's values.
  py::module_::import("torch.distributed");
  py::module_::import("hyper_parallel._core");
  register_error_translator();
  bind_communicator(module);
  bind_collectives(module);
  bind_dtensor(module);
  bind_factories(module);
  bind_random(module);
  bind_torch_function(module);
  bind_attributes(module);
  bind_operators(module);
  bind_tensor_planners(module);
}
