#pragma once

// The random numbers of this process: one state for all meshes, as torch has a default generator.

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>

#include "hyper_parallel/torch/random_state.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel::bindings {

/// The state for communicators. It lives as long as the process, so that a seed may be given before there is a process
/// group. Needs the GIL, as the function below.
const std::shared_ptr<RandomState>& process_random_state();

/// Tells that `group` is the process group in use. Under another one than before every mesh starts again from its seed:
/// the ranks may be other processes, that have drawn nothing yet.
void random_state_goes_under(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

void bind_random(py::module_& module);

}  // namespace hyper_parallel::bindings
