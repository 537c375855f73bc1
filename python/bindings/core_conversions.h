#pragma once

// Python values to the core's values and back, for both modules.
//
// What comes from Python is untrusted: each function checks the types itself and throws kType with the argument's name,
// and kInvalidArgument for an int beyond int64, so that users see the library's errors and texts. A `bool` is no int.
//
// Placements in Python are instances of `_core.Placement`'s four subclasses. `DeviceMesh` and `Layout` are the Python
// classes over `_core`'s; use the functions below instead of pybind11's cast to hand one out.

#include <pybind11/pybind11.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/mesh/device_mesh.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel::bindings {

/// A placement as Python's objects hold it. The subclasses exist for Python's class hierarchy only.
struct PlacementObject {
  Placement value;
};
struct ReplicateObject : PlacementObject {};
struct ShardObject : PlacementObject {};
struct PartialObject : PlacementObject {};
struct RaggedShardObject : PlacementObject {};

/// Any Python object. In a bound function's signature it reads as what the conversion named in its comment accepts;
/// pybind11 hands every object on, so that the conversion can say what is wrong with it.
class AnyArgument : public pybind11::object {
 public:
  using object::object;
  AnyArgument() = default;
  AnyArgument(const object& other) : object(other) {}
  static bool check_(pybind11::handle) { return true; }
};
struct IntArgument : AnyArgument {  // integer_from_python
  using AnyArgument::AnyArgument;
};
struct TextArgument : AnyArgument {  // text_from_python
  using AnyArgument::AnyArgument;
};
struct IntSequence : AnyArgument {  // integers_from_python, shape_from_python
  using AnyArgument::AnyArgument;
};
struct IntTuple : AnyArgument {  // integers_from_python after a check for tuple
  using AnyArgument::AnyArgument;
};
struct TextSequence : AnyArgument {  // texts_from_python
  using AnyArgument::AnyArgument;
};
struct PlacementSequence : AnyArgument {  // placements_from_python
  using AnyArgument::AnyArgument;
};
struct MeshDim : AnyArgument {  // mesh_dim_from_python
  using AnyArgument::AnyArgument;
};
struct TensorMapArgument : AnyArgument {
  using AnyArgument::AnyArgument;
};
struct AliasesArgument : AnyArgument {
  using AnyArgument::AnyArgument;
};
struct TextTuple : AnyArgument {
  using AnyArgument::AnyArgument;
};
struct PlacementTuple : AnyArgument {
  using AnyArgument::AnyArgument;
};

/// repr(value), at most some 200 characters of it, for error messages.
std::string repr_text(pybind11::handle value);

/// An int that is no bool. `argument` names it in errors: "dim is 1.5 but must be an int".
int64_t integer_from_python(pybind11::handle value, std::string_view argument);

/// A str.
std::string text_from_python(pybind11::handle value, std::string_view argument);

/// A tuple (also torch.Size), list or range of ints.
std::vector<int64_t> integers_from_python(pybind11::handle values, std::string_view argument);

/// A tuple or list of str.
std::vector<std::string> texts_from_python(pybind11::handle values, std::string_view argument);

/// A global shape; throws as `integers_from_python` and `check_global_shape`.
std::vector<int64_t> shape_from_python(pybind11::handle shape, std::string_view argument = "shape");

/// A tuple or list of placements, one for each mesh dim. Throws kType naming the entry that is none of ours.
std::vector<Placement> placements_from_python(pybind11::handle placements, std::string_view argument = "placements");

/// A mesh dim by its name or its number, which may count from the end; in [0, ndim). Throws kInvalidArgument for an
/// unknown name and kOutOfRange for a number.
int64_t mesh_dim_from_python(const DeviceMesh& mesh, pybind11::handle dim);

pybind11::object placement_to_python(const Placement& placement);
pybind11::tuple placements_to_python(const std::vector<Placement>& placements);
pybind11::tuple integers_to_python(std::span<const int64_t> values);
pybind11::tuple texts_to_python(const std::vector<std::string>& values);

/// A `hyper_parallel.DeviceMesh`.
pybind11::object mesh_to_python(const DeviceMesh& mesh);

/// A `hyper_parallel.Layout`. `mesh` may be the `hyper_parallel.DeviceMesh` that the layout shall hand out, equal to
/// its own.
pybind11::object layout_to_python(const Layout& layout, pybind11::handle mesh = pybind11::none());

}  // namespace hyper_parallel::bindings

namespace pybind11::detail {

template <>
struct handle_type_name<hyper_parallel::bindings::IntArgument> {
  static constexpr auto name = const_name("int");
};
template <>
struct handle_type_name<hyper_parallel::bindings::TextArgument> {
  static constexpr auto name = const_name("str");
};
template <>
struct handle_type_name<hyper_parallel::bindings::IntSequence> {
  static constexpr auto name = const_name("collections.abc.Sequence[int]");
};
template <>
struct handle_type_name<hyper_parallel::bindings::IntTuple> {
  static constexpr auto name = const_name("tuple[int, ...]");
};
template <>
struct handle_type_name<hyper_parallel::bindings::TextSequence> {
  static constexpr auto name = const_name("collections.abc.Sequence[str]");
};
template <>
struct handle_type_name<hyper_parallel::bindings::PlacementSequence> {
  static constexpr auto name = const_name("collections.abc.Sequence[hyper_parallel._core.Placement]");
};
template <>
struct handle_type_name<hyper_parallel::bindings::MeshDim> {
  static constexpr auto name = const_name("int | str");
};
template <>
struct handle_type_name<hyper_parallel::bindings::TensorMapArgument> {
  static constexpr auto name = const_name("tuple[int | tuple[int, ...], ...]");
};
template <>
struct handle_type_name<hyper_parallel::bindings::AliasesArgument> {
  static constexpr auto name = const_name("tuple[str | tuple[str, ...], ...]");
};
template <>
struct handle_type_name<hyper_parallel::bindings::TextTuple> {
  static constexpr auto name = const_name("tuple[str, ...]");
};
template <>
struct handle_type_name<hyper_parallel::bindings::PlacementTuple> {
  static constexpr auto name = const_name("tuple[hyper_parallel._core.Placement, ...]");
};

}  // namespace pybind11::detail
