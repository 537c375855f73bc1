#pragma once

#include <pybind11/pybind11.h>

namespace hyper_parallel::bindings {

/// What a redistribution does and costs: plan_text, plan_traffic.
void bind_plan(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
