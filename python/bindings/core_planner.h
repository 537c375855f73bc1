#pragma once

// The planners' roles in Python: classes that a user derives from, and C++ classes whose methods he overrides.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <utility>
#include <vector>

#include "core_checkpoint_types.h"
#include "core_override.h"

namespace hyper_parallel::bindings {

/// `Base` with the methods that a Python class defines: each is asked first, and `Base` answers for the others.
template <typename Base>
class PythonSavePlanner : public Base {
 public:
  using Base::Base;

  SavePlan build_local_plan() override {
    return with_python([&]() -> SavePlan {
      if (const auto method = pybind11::get_override(base(), "build_local_plan"))
        return method().template cast<SavePlan>();
      return build_in_cpp();
    });
  }

  GlobalSavePlan build_global_plan(const std::vector<SavePlan>& plans) override {
    return with_python([&]() -> GlobalSavePlan {
      if (const auto method = pybind11::get_override(base(), "build_global_plan")) {
        return method(plans).template cast<GlobalSavePlan>();
      }
      return Base::build_global_plan(plans);
    });
  }

  HeldBytes get_data(const WriteItem& item) override {
    return with_python([&]() -> HeldBytes {
      const auto method = pybind11::get_override(base(), "get_data");
      if (!method) return data_in_cpp(item);
      const WriteItemObject object{{item.tensor->name, item.tensor->dtype, item.tensor->shape, {item.extent()}}};
      return held_bytes(method(object), item.bytes(), "what get_data returns");
    });
  }

  bool may_cache_plan() const override {
    return with_python([&]() -> bool {
      if (const auto method = pybind11::get_override(base(), "may_cache_plan")) return method().template cast<bool>();
      // A plan that Python made, local or global, may depend on anything.
      return !pybind11::get_override(base(), "build_local_plan") &&
             !pybind11::get_override(base(), "build_global_plan") && Base::may_cache_plan();
    });
  }

 private:
  const Base* base() const { return static_cast<const Base*>(this); }

  SavePlan build_in_cpp() {
    if constexpr (std::is_abstract_v<Base>) {
      raise(ErrorCode::kUnimplemented, "a SavePlanner must define the method build_local_plan");
    } else {
      return Base::build_local_plan();
    }
  }

  HeldBytes data_in_cpp(const WriteItem& item) {
    if constexpr (std::is_abstract_v<Base>) {
      raise(ErrorCode::kUnimplemented, "a SavePlanner must define the method get_data");
    } else {
      return Base::get_data(item);
    }
  }
};

void bind_planners(pybind11::module_& core);

}  // namespace hyper_parallel::bindings
