#include "core_redistribute.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core_conversions.h"
#include "core_override.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/local_shape.h"
#include "hyper_parallel/redistribute/plan_cache.h"
#include "hyper_parallel/redistribute/redistribution.h"
#include "hyper_parallel/redistribute/step_bytes.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

constexpr size_t kKeptPlans = 1024;

using Plan = std::shared_ptr<const RankPlan>;

/// A plan as Python holds it.
struct PlanObject {
  Plan plan;
};

/// A step of a plan that lives as long as the step does.
struct StepObject {
  Plan plan;
  size_t index;

  const RankStep& value() const { return plan->steps[index]; }
};

std::vector<StepObject> steps_of(const PlanObject& self) {
  std::vector<StepObject> steps;
  for (size_t i = 0; i < self.plan->steps.size(); ++i) steps.push_back({self.plan, i});
  return steps;
}

/// (peer, number of elements) of each message.
std::vector<std::pair<int64_t, int64_t>> messages_of(const std::vector<Transfer>& transfers) {
  std::vector<std::pair<int64_t, int64_t>> messages;
  messages.reserve(transfers.size());
  for (const Transfer& transfer : transfers) messages.emplace_back(transfer.peer, transfer.numel);
  return messages;
}

void copy_own_from_python(const StepObject& self, const py::object& source, const py::object& target,
                          const IntArgument& item_bytes) {
  const int64_t width = integer_from_python(item_bytes, "item_bytes");
  const HeldBytes from = contiguous_bytes(source, "source");
  const TargetView to = contiguous_writable_bytes(target, "target");
  const py::gil_scoped_release no_gil;
  copy_own(self.value(), width, from.bytes, to.storage);
}

void pack_from_python(const StepObject& self, const IntArgument& send, const py::object& source,
                      const py::object& message, const IntArgument& item_bytes) {
  const int64_t index = integer_from_python(send, "send");
  const int64_t width = integer_from_python(item_bytes, "item_bytes");
  const HeldBytes from = contiguous_bytes(source, "source");
  const TargetView to = contiguous_writable_bytes(message, "message");
  const py::gil_scoped_release no_gil;
  pack_message(self.value(), index, width, from.bytes, to.storage);
}

void unpack_from_python(const StepObject& self, const IntArgument& receive, const py::object& message,
                        const py::object& target, const IntArgument& item_bytes) {
  const int64_t index = integer_from_python(receive, "receive");
  const int64_t width = integer_from_python(item_bytes, "item_bytes");
  const HeldBytes from = contiguous_bytes(message, "message");
  const TargetView to = contiguous_writable_bytes(target, "target");
  const py::gil_scoped_release no_gil;
  unpack_message(self.value(), index, width, from.bytes, to.storage);
}

void combine_from_python(const StepObject& self, const py::object& source, const std::vector<py::object>& messages,
                         const py::object& target, const TextArgument& dtype) {
  const DType type = parse_dtype(text_from_python(dtype, "dtype"));
  const HeldBytes own = contiguous_bytes(source, "source");
  std::vector<HeldBytes> held;
  std::vector<std::span<const std::byte>> terms;
  for (const py::object& message : messages) {
    held.push_back(contiguous_bytes(message, str_cat("messages[", held.size(), "]")));
    terms.push_back(held.back().bytes);
  }
  const TargetView to = contiguous_writable_bytes(target, "target");
  const py::gil_scoped_release no_gil;
  combine_messages(self.value(), type, own.bytes, terms, to.storage);
}

void bind_rank_step(py::module_& core) {
  py::class_<StepObject>(core, "RankStep", R"(One step of a plan, as a rank runs it.

Buffers are contiguous memory, such as a numpy array: ``source`` and ``target`` the rank's whole flat local tensors,
messages as many elements as ``sends`` and ``receives`` say. Their sizes are checked, and the GIL is released.

A move: ``copy_own``, ``pack`` for each send and ``unpack`` for each receive. A reduction: ``pack`` for each send and one
``combine``.)")
      .def_property_readonly(
          "source_numel", [](const StepObject& self) { return self.value().source_numel; },
          "Elements of the source buffer.")
      .def_property_readonly(
          "target_numel", [](const StepObject& self) { return self.value().target_numel; },
          "Elements of the target buffer.")
      .def_property_readonly(
          "sends", [](const StepObject& self) { return messages_of(self.value().sends); },
          "``(peer, elements)`` of each message to send; the peer is a global rank. None is empty.")
      .def_property_readonly(
          "receives", [](const StepObject& self) { return messages_of(self.value().receives); },
          "``(peer, elements)`` of each message to receive.")
      .def_property_readonly(
          "is_reduction", [](const StepObject& self) { return self.value().combine.has_value(); },
          "Whether the messages are combined, not put side by side.")
      .def("copy_own", &copy_own_from_python, py::arg("source"), py::arg("target"), py::arg("item_bytes"),
           R"(Copies what stays on this rank in a move.

Args:
    source: The source buffer.
    target: The target buffer, to be written; apart from the source.
    item_bytes: The bytes of one element.

Raises:
    InvalidArgumentError: A buffer has another size, or the step is a reduction.
    ArgumentTypeError: A buffer is not contiguous memory.)")
      .def("pack", &pack_from_python, py::arg("send"), py::arg("source"), py::arg("message"), py::arg("item_bytes"),
           R"(Fills a message to send.

Args:
    send: An index into ``sends``.
    source: The source buffer.
    message: A buffer of the message's size, to be written.
    item_bytes: The bytes of one element.

Raises:
    OutOfRangeError: There is no such message.
    InvalidArgumentError: A buffer has another size.
    ArgumentTypeError: A buffer is not contiguous memory.)")
      .def("unpack", &unpack_from_python, py::arg("receive"), py::arg("message"), py::arg("target"),
           py::arg("item_bytes"),
           R"(Puts a received message of a move in its place.

Args:
    receive: An index into ``receives``.
    message: The message.
    target: The target buffer, to be written.
    item_bytes: The bytes of one element.

Raises:
    As ``pack``, and InvalidArgumentError where the step is a reduction.)")
      .def("combine", &combine_from_python, py::arg("source"), py::arg("messages"), py::arg("target"), py::arg("dtype"),
           R"(Combines this rank's own share and the received messages in mesh order, divides, and places the result.

Sums are rounded to the dtype after each term, as torch's are; NaN wins in max and min; integers wrap.

Args:
    source: The source buffer.
    messages: The received messages, in the order of ``receives``.
    target: The target buffer, to be written; apart from all others.
    dtype: The element type as safetensors names it: "F32", "BF16", "I64".

Raises:
    ArgumentTypeError: A reduction that the dtype does not have, or a buffer that is not contiguous memory.
    InvalidArgumentError: A buffer has another size, the messages are not as many as ``receives``, or the step is a move.)")
      .def("__repr__", [](const StepObject& self) { return to_string(self.value()); });
}

void bind_rank_plan(py::module_& core) {
  py::class_<PlanObject>(core, "RankPlan", "A redistribution as one rank runs it, step by step.")
      .def_property_readonly("steps", &steps_of, "The steps; none if the target is the source's local tensor itself.")
      .def_property_readonly(
          "target_shape", [](const PlanObject& self) { return IntTuple(integers_to_python(self.plan->target_shape)); },
          "The shape of the rank's local tensor at the end.");
  core.def(
      "plan_redistribution",
      [plans = std::make_shared<PlanCache>(kKeptPlans)](const Layout& source, const Layout& target,
                                                        const IntSequence& shape, const IntArgument& rank) {
        return PlanObject{plans->get(source, target, shape_from_python(shape), integer_from_python(rank, "rank"))};
      },
      py::arg("source"), py::arg("target"), py::arg("shape"), py::arg("rank"),
      R"(What a rank does to take a tensor from one layout to another. Plans are kept, so that asking again is cheap.

Args:
    source: How the tensor lies.
    target: How it shall lie.
    shape: Its logical shape.
    rank: The global rank. Outside the mesh it has no step, and a local tensor of shape ``(0,)``.

Raises:
    As ``plan_text``, alike on every rank.

Example:
    >>> layout = Layout((2,), ("dp",))
    >>> plan = plan_redistribution(layout([Shard(0)]), layout([Replicate()]), (4, 2), rank=0)
    >>> plan.target_shape, plan.steps[0].sends, plan.steps[0].receives
    ((4, 2), [(1, 4)], [(1, 4)]))");
}

void bind_redistribution(py::module_& core) {
  py::class_<ExtremeGradient>(core, "ExtremeGradient", R"(How a rank learns what its share of a max or min counts for.

``extreme`` is the share, taken from the source layout to ``reduced``; ``holds`` is 1 where the share equals it and
``holders`` is ``holds``, taken from ``counted`` to ``everywhere``. The gradient is multiplied by ``holds / holders``.)")
      .def_readonly("reduced", &ExtremeGradient::reduced, "Where the extreme is everywhere.")
      .def_readonly("counted", &ExtremeGradient::counted, "Where each rank says whether it holds the extreme.")
      .def_readonly("everywhere", &ExtremeGradient::everywhere, "Where the number of holders is everywhere.");
  py::class_<Redistribution>(core, "Redistribution",
                             R"(Where a tensor goes from and to, and the way back of its gradient.

Args:
    source: How the tensor lies.
    target: How it shall lie.
    incoming: How the gradient of the result lies: ``gradient_layout(target)`` inside, ``leaving_layout(target)`` where
        the tensor leaves.
    shape: The logical shape.

Raises:
    OutOfRangeError: A Shard dim lies beyond the shape.
    InvalidArgumentError: RaggedShard dims lie beyond it.)")
      .def(py::init([](const Layout& source, const Layout& target, const Layout& incoming, const IntSequence& shape) {
             return folded({source, target, incoming, Dims(shape_from_python(shape))});
           }),
           py::arg("source"), py::arg("target"), py::arg("incoming"), py::arg("shape"))
      .def_readonly("source", &Redistribution::source, "How the tensor lies; no Shard dim is negative.")
      .def_readonly("target", &Redistribution::target, "How it shall lie.")
      .def_readonly("incoming", &Redistribution::incoming, "How the gradient of the result lies.")
      .def_property_readonly(
          "shape", [](const Redistribution& self) { return IntTuple(integers_to_python(self.shape)); },
          "The logical shape.")
      .def_property_readonly("is_identity", &is_identity, "Whether nothing moves in either direction.")
      .def_property_readonly(
          "parts", &parts_of,
          R"(The redistributions that do this one after the other, each with one rule for its gradient.

Itself, unless it resolves reductions whose gradients differ. The four below are those of one part.)")
      .def_property_readonly("backward", &backward_of,
                             "What takes the gradient of the result back to the source's share.")
      .def_property_readonly("divisor", &gradient_divisor, "What the gradient is divided by: the ranks averaged over.")
      .def_property_readonly("extreme", &extreme_gradient, "What the gradient of a max or min needs, or None.");
}

void bind_gradient_layouts(py::module_& core) {
  core.def("gradient_layout", &gradient_layout, py::arg("layout"),
           R"(How the gradient of a tensor lies: as the tensor, ``Replicate()`` where it is Partial.

Args:
    layout: How the tensor lies.)");
  core.def(
      "leaving_layout", &leaving_layout, py::arg("layout"),
      R"(How a gradient that comes from outside lies: Partial(sum) where the tensor is ``Replicate()``, ``Replicate()``
where it is Partial (each share's own), else as the tensor.

Args:
    layout: How the tensor lies.)");
  core.def(
      "use_of_gradient",
      [](const Layout& layout, const IntSequence& shape) -> std::optional<Redistribution> {
        const std::vector<int64_t> dims = linear_partial_dims(layout);
        if (dims.empty()) return std::nullopt;
        return use_of_gradient(layout, dims, Dims(shape_from_python(shape)));
      },
      py::arg("layout"), py::arg("shape"),
      R"(How the gradient of shares is used that each rank has made of its own cells.

It stays as it lies, and each rank goes on with it for these cells: what comes back to it is Partial(sum) where the
tensor is Partial(sum) or Partial(avg). None where it is neither.

Args:
    layout: How the tensor lies.
    shape: The logical shape.)");
  core.def(
      "outside_gradient_layout",
      [](const Layout& layout, const std::optional<PlacementSequence>& grad_placements, const IntArgument& ndim) {
        std::optional<std::vector<Placement>> placements;
        if (grad_placements) placements = placements_from_python(*grad_placements, "grad_placements");
        return outside_gradient_layout(layout, placements, integer_from_python(ndim, "ndim"));
      },
      py::arg("layout"), py::arg("grad_placements"), py::arg("ndim"),
      R"(How a gradient that comes from outside lies where the user may say so.

Args:
    layout: How the tensor lies.
    grad_placements: What the user says, or None: as ``leaving_layout`` then.
    ndim: The number of the tensor's dims.

Raises:
    InvalidArgumentError: The grad_placements are not as many as mesh dims, or neither the tensor's placement nor, where
        that is whole or Partial, ``Replicate()``, Partial(sum) or Partial(avg).
    OutOfRangeError: A Shard dim lies beyond the tensor's dims.)");
}

void bind_local_shapes(py::module_& core) {
  core.def(
      "check_local",
      [](const Layout& layout, const IntSequence& shape, const IntArgument& rank, const IntSequence& local_shape,
         const IntSequence& local_strides) {
        const std::vector<int64_t> sizes = integers_from_python(local_shape, "local_shape");
        const std::vector<int64_t> strides = integers_from_python(local_strides, "local_strides");
        const std::vector<int64_t> global = shape_from_python(shape);
        check_local({sizes, strides}, layout, global, integer_from_python(rank, "rank"));
      },
      py::arg("layout"), py::arg("shape"), py::arg("rank"), py::arg("local_shape"), py::arg("local_strides"),
      R"(Raises unless a local tensor of these sizes and strides is the rank's part of a tensor.

Args:
    layout: How the tensor lies.
    shape: Its logical shape, which has passed ``layout.check_shape``.
    rank: The global rank.
    local_shape: The local tensor's sizes.
    local_strides: Its strides, in elements.

Raises:
    InvalidArgumentError: The sizes are others; with RaggedShard it is not 1-D and contiguous; outside the mesh it has
        elements.)");
  core.def(
      "known_global_shape",
      [](const Layout& layout, const IntSequence& local_shape, const IntArgument& rank) -> std::optional<IntTuple> {
        const std::vector<int64_t> sizes = integers_from_python(local_shape, "local_shape");
        const auto known = known_global_shape(layout, sizes, integer_from_python(rank, "rank"));
        return known ? std::optional(IntTuple(integers_to_python(*known))) : std::nullopt;
      },
      py::arg("layout"), py::arg("local_shape"), py::arg("rank"),
      R"(The logical shape where the rank's local tensor alone tells it: nothing is sharded.

Args:
    layout: How the tensor lies.
    local_shape: The local tensor's sizes.
    rank: The global rank.

Returns:
    The shape, or None where the ranks must tell each other their sizes, for ``infer_global_shape``.

Raises:
    InvalidArgumentError: The layout is ragged, the rank is outside the mesh, or the local tensor has over 64 dims.)");
  core.def(
      "infer_global_shape",
      [](const Layout& layout, const std::vector<IntSequence>& local_shapes) {
        std::vector<std::vector<int64_t>> sizes;
        for (const IntSequence& shape : local_shapes) {
          sizes.push_back(integers_from_python(shape, str_cat("local_shapes[", sizes.size(), "]")));
        }
        return IntTuple(integers_to_python(infer_global_shape(layout, sizes)));
      },
      py::arg("layout"), py::arg("local_shapes"),
      R"(The logical shape of a tensor whose local tensors have these sizes.

Args:
    layout: How the tensor lies.
    local_shapes: The sizes on each rank, in mesh order.

Raises:
    InvalidArgumentError: The sizes break the Shard rule, differ in their number of dims or are not one for each rank, or
        the layout is ragged.
    OutOfRangeError: A Shard dim lies beyond the tensors' dims.

Example:
    >>> layout = Layout((2,), ("dp",))([Shard(0)])
    >>> infer_global_shape(layout, [(3, 4), (2, 4)])
    (5, 4))");
}

}  // namespace

void bind_redistribute(py::module_& core) {
  bind_rank_step(core);
  bind_rank_plan(core);
  bind_redistribution(core);
  bind_gradient_layouts(core);
  bind_local_shapes(core);
}

}  // namespace hyper_parallel::bindings
