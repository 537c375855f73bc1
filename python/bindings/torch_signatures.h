#pragma once

// What the signatures of `_torch` say of Python objects that pybind11 hands on as they are: the functions themselves
// check what comes in, so that users see the library's errors. Beside those of `core_conversions.h`.

#include <torch/csrc/utils/pybind.h>

#include "core_conversions.h"

namespace hyper_parallel::bindings {

struct TensorObject : AnyArgument {  // a plain torch.Tensor
  using AnyArgument::AnyArgument;
};
struct DTensorObject : AnyArgument {  // unwrap, wrap
  using AnyArgument::AnyArgument;
};
struct MeshObject : AnyArgument {  // communicator_of, mesh_of
  using AnyArgument::AnyArgument;
};
struct LayoutObject : AnyArgument {  // layout_to_python
  using AnyArgument::AnyArgument;
};
struct GroupObject : AnyArgument {
  using AnyArgument::AnyArgument;
};
struct NumberObject : AnyArgument {
  using AnyArgument::AnyArgument;
};
/// `Object` or None.
template <typename Object>
struct OrNone : AnyArgument {
  using AnyArgument::AnyArgument;
};

}  // namespace hyper_parallel::bindings

namespace pybind11::detail {

template <>
struct handle_type_name<hyper_parallel::bindings::TensorObject> {
  static constexpr auto name = const_name("torch.Tensor");
};
template <>
struct handle_type_name<hyper_parallel::bindings::DTensorObject> {
  static constexpr auto name = const_name("hyper_parallel.dtensor.DTensor");
};
template <>
struct handle_type_name<hyper_parallel::bindings::MeshObject> {
  static constexpr auto name = const_name("hyper_parallel.device_mesh.DeviceMesh");
};
template <>
struct handle_type_name<hyper_parallel::bindings::LayoutObject> {
  static constexpr auto name = const_name("hyper_parallel.layout.Layout");
};
template <>
struct handle_type_name<hyper_parallel::bindings::GroupObject> {
  static constexpr auto name = const_name("torch.distributed.distributed_c10d.ProcessGroup");
};
template <>
struct handle_type_name<hyper_parallel::bindings::NumberObject> {
  static constexpr auto name = const_name("bool | int | float | complex");
};
template <typename Object>
struct handle_type_name<hyper_parallel::bindings::OrNone<Object>> {
  static constexpr auto name = handle_type_name<Object>::name + const_name(" | None");
};

}  // namespace pybind11::detail
