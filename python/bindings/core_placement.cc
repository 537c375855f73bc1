#include "core_placement.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/placement/placement.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

/// Where users and pickles find the classes.
constexpr const char* kModule = "hyper_parallel.placement";

template <typename Alternative>
const Alternative& get(const PlacementObject& object) {
  return std::get<Alternative>(object.value);
}

/// The specification asks for tuples here: a list is refused, also where it holds ints alone.
std::vector<int64_t> tuple_from_python(py::handle values, const char* argument) {
  HP_CHECK(PyTuple_Check(values.ptr()) != 0, kType, argument, " is ", repr_text(values),
           " but must be a tuple of ints");
  return integers_from_python(values, argument);
}

/// Python's constructor syntax.
std::string repr(const PlacementObject& object) {
  return std::visit(
      Overloaded{
          [](const Replicate&) { return std::string("Replicate()"); },
          [](const Shard& shard) { return str_cat("Shard(dim=", shard.dim, ")"); },
          [](const Partial& partial) { return str_cat("Partial(reduce_op='", to_string(partial.op), "')"); },
          [](const RaggedShard& ragged) {
            return str_cat("RaggedShard(dims=", tuple_text(ragged.dims()),
                           ", local_units=", tuple_text(ragged.local_units()), ")");
          },
      },
      object.value);
}

/// The arguments that make an equal placement.
py::tuple arguments(const PlacementObject& object) {
  return std::visit(Overloaded{
                        [](const Replicate&) -> py::tuple { return py::make_tuple(); },
                        [](const Shard& shard) -> py::tuple { return py::make_tuple(shard.dim); },
                        [](const Partial& partial) -> py::tuple { return py::make_tuple(to_string(partial.op)); },
                        [](const RaggedShard& ragged) -> py::tuple {
                          return py::make_tuple(integers_to_python(ragged.dims()),
                                                integers_to_python(ragged.local_units()));
                        },
                    },
                    object.value);
}

bool is_shard_of(const PlacementObject& object, const std::optional<IntArgument>& dim) {
  if (!is_shard(object.value)) return false;
  return !dim || get<Shard>(object).dim == integer_from_python(*dim, "dim");
}

bool is_partial_of(const PlacementObject& object, const std::optional<TextArgument>& reduce_op) {
  if (!is_partial(object.value)) return false;
  return !reduce_op || get<Partial>(object).op == parse_reduce_op(text_from_python(*reduce_op, "reduce_op"));
}

void define_base(py::module_& core) {
  py::class_<PlacementObject> placement(core, "Placement", R"(How a tensor lies along one mesh dim.

The base of Replicate, Shard, Partial and RaggedShard; it has no other subclass. Placements are immutable values:
equal if they say the same, hashable, and their repr is the constructor call that makes them.)");
  placement.attr("__module__") = kModule;
  placement
      .def(
          "is_replicate", [](const PlacementObject& self) { return is_replicate(self.value); },
          "Whether every rank holds the whole tensor.")
      .def("is_shard", &is_shard_of, py::arg("dim") = py::none(),
           R"(Whether the tensor is cut in even chunks, of dim ``dim`` if one is given.

Args:
    dim: A tensor dim, compared as it was written: ``Shard(-1)`` is no shard of dim 1.

Example:
    >>> Shard(0).is_shard(), Shard(0).is_shard(1), RaggedShard((0,), (1, 2)).is_shard()
    (True, False, False))")
      .def("is_partial", &is_partial_of, py::arg("reduce_op") = py::none(),
           R"(Whether every rank holds a share that is still to be reduced, by ``reduce_op`` if one is given.

Raises:
    InvalidArgumentError: ``reduce_op`` is none of "sum", "avg", "max", "min".

Example:
    >>> Partial().is_partial(), Partial().is_partial("max")
    (True, False))")
      .def(
          "is_ragged_shard", [](const PlacementObject& self) { return is_ragged_shard(self.value); },
          "Whether every rank holds an uneven, contiguous run of the row-major tensor.")
      .def(
          "__eq__", [](const PlacementObject& a, const PlacementObject& b) { return a.value == b.value; },
          py::is_operator())
      .def("__hash__", [](const PlacementObject& self) { return hash_value(self.value); })
      .def("__repr__", &repr)
      .def("__copy__", [](py::object self) { return self; })
      .def(
          "__deepcopy__", [](py::object self, const py::dict&) { return self; }, py::arg("memo"))
      .def("__reduce__", [](const py::object& self) {
        return py::make_tuple(py::type::of(self), arguments(self.cast<const PlacementObject&>()));
      });
}

template <typename Object>
py::class_<Object, PlacementObject> define_placement(py::module_& core, const char* name, const char* doc,
                                                     const py::tuple& match_args) {
  py::class_<Object, PlacementObject> made(core, name, py::is_final(), doc);
  made.attr("__module__") = kModule;
  made.attr("__match_args__") = match_args;
  return made;
}

void define_replicate(py::module_& core) {
  define_placement<ReplicateObject>(core, "Replicate", R"(Every rank of the mesh dim holds the whole tensor.

Example:
    >>> Replicate()
    Replicate())",
                                    py::tuple())
      .def(py::init([] { return ReplicateObject{Replicate{}}; }));
}

void define_shard(py::module_& core) {
  define_placement<ShardObject>(core, "Shard", R"(Tensor dim ``dim`` lies in chunks of ``ceil(n / p)`` rows.

The first ranks hold a full chunk, the last fewer rows or none: 5 rows over 4 ranks are 2, 2, 1 and 0.

Args:
    dim: The tensor dim; a negative one counts from the tensor's last.

Raises:
    ArgumentTypeError: ``dim`` is not an int.

Example:
    >>> Shard(0)
    Shard(dim=0))",
                                py::make_tuple("dim"))
      .def(py::init([](const IntArgument& dim) { return ShardObject{Shard(integer_from_python(dim, "Shard dim"))}; }),
           py::arg("dim"))
      .def_property_readonly("dim", [](const ShardObject& self) { return get<Shard>(self).dim; }, "The tensor dim.");
}

void define_partial(py::module_& core) {
  define_placement<PartialObject>(core, "Partial", R"(Every rank holds a share; the value is their reduction.

Args:
    reduce_op: "sum", "avg", "max" or "min".

Raises:
    InvalidArgumentError: Any other text.
    ArgumentTypeError: ``reduce_op`` is not a str.

Example:
    >>> Partial()
    Partial(reduce_op='sum'))",
                                  py::make_tuple("reduce_op"))
      .def(py::init([](const TextArgument& reduce_op) {
             return PartialObject{Partial(parse_reduce_op(text_from_python(reduce_op, "Partial reduce_op")))};
           }),
           py::arg("reduce_op") = "sum")
      .def_property_readonly(
          "reduce_op", [](const PartialObject& self) { return to_string(get<Partial>(self).op); },
          "The pending reduction.");
}

void define_ragged_shard(py::module_& core) {
  define_placement<RaggedShardObject>(
      core, "RaggedShard", R"(Every rank holds an uneven, contiguous and possibly empty run of the row-major tensor.

The cells of the leading tensor dims ``dims`` are dealt out in row-major order; rank r gets ``local_units[r]`` parts of
them. Its local tensor is that run: contiguous, 1-D.

Args:
    dims: The leading tensor dims, ``(0, 1, .., k - 1)``.
    local_units: The relative share of each rank of the mesh dim; a 0 gives a rank nothing.

Raises:
    ArgumentTypeError: ``dims`` or ``local_units`` is not a tuple of ints (a bool is no int).
    InvalidArgumentError: ``dims`` is empty or not leading, ``local_units`` is empty, has a negative entry or only
        zeros.

Example:
    Of a tensor of shape (6, 4, 8), rank 0 holds the first 8 of 24 rows of 8 elements, rank 1 the other 16.

    >>> RaggedShard((0, 1), (1, 2))
    RaggedShard(dims=(0, 1), local_units=(1, 2)))",
      py::make_tuple("dims", "local_units"))
      .def(py::init([](const IntTuple& dims, const IntTuple& local_units) {
             const std::vector<int64_t> checked_dims = tuple_from_python(dims, "RaggedShard dims");
             return RaggedShardObject{
                 RaggedShard(checked_dims, tuple_from_python(local_units, "RaggedShard local_units"))};
           }),
           py::arg("dims"), py::arg("local_units"))
      .def_property_readonly(
          "dims",
          [](const RaggedShardObject& self) -> IntTuple {
            return IntTuple(integers_to_python(get<RaggedShard>(self).dims()));
          },
          "The leading tensor dims whose cells are dealt out.")
      .def_property_readonly(
          "local_units",
          [](const RaggedShardObject& self) -> IntTuple {
            return IntTuple(integers_to_python(get<RaggedShard>(self).local_units()));
          },
          "The relative share of each rank.");
}

}  // namespace

void bind_placements(py::module_& core) {
  define_base(core);
  define_replicate(core);
  define_shard(core);
  define_partial(core);
  define_ragged_shard(core);
  core.def(
      "parse_placements",
      [](const TextArgument& text) {
        return PlacementTuple(placements_to_python(parse_placements(text_from_python(text, "text"))));
      },
      py::arg("text"),
      R"(The placements that a text lists, in the notation of the command ``hyper-parallel plan``.

Args:
    text: "[Shard(0), Replicate()]", "S(0), R", "[RaggedShard((0,), (1*500, 3*500))]".

Raises:
    InvalidArgumentError: The text is not such a list; says where.

Example:
    >>> parse_placements("[S(0), P(max), R]")
    (Shard(dim=0), Partial(reduce_op='max'), Replicate()))");
}

}  // namespace hyper_parallel::bindings
