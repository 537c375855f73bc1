#include "core_planner.h"

#include "core_conversions.h"
#include "core_value.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

/// A LoadPlanner whose methods are Python's.
class PythonLoadPlanner final : public LoadPlanner {
 public:
  LoadPlan build_local_plan(const CheckpointMetadata& metadata) override {
    metadata_ = &metadata;
    return with_python([&] {
      const LoadPlanner* self = this;
      return required_override(self, "build_local_plan")(py::cast(metadata)).cast<LoadPlanObject>().plan;
    });
  }

  TargetView acquire_tensor(const LoadPlan& plan, const ReadItem& item) override {
    HP_CHECK(metadata_ != nullptr, kFailedPrecondition,
             "acquire_tensor: build_local_plan must be called first, through the base class");
    return with_python([&] {
      const LoadPlanner* self = this;
      const ReadItemObject object = read_item_object(*metadata_, plan, item);
      return writable_cells(required_override(self, "acquire_tensor")(object), item.overlap.sizes,
                            bits_per_element(object.stored_dtype), "what acquire_tensor returns");
    });
  }

  void finish() override {
    with_python([&] {
      const LoadPlanner* self = this;
      if (const auto method = py::get_override(self, "finish")) method();
    });
  }

 private:
  const CheckpointMetadata* metadata_ = nullptr;
};

LoadOptions options_of(const TextSequence& allow_missing, const TextSequence& allow_cast) {
  return {.allow_missing = texts_from_python(allow_missing, "allow_missing"),
          .allow_extra = {},
          .allow_cast = texts_from_python(allow_cast, "allow_cast")};
}

LoadPlanObject plan_targets(const CheckpointMetadata& metadata, const std::vector<PlannedTensor>& targets,
                            const TextSequence& allow_missing, const TextSequence& allow_cast) {
  std::vector<LoadTarget> wanted;
  for (const PlannedTensor& target : targets) wanted.push_back({target.name, target.dtype, target.shape, target.boxes});
  return {plan_load(metadata, std::move(wanted), options_of(allow_missing, allow_cast)), &metadata};
}

}  // namespace

void bind_planners(py::module_& core) {
  py::class_<HeldBytes>(core, "HeldBytes", py::buffer_protocol(),
                        "The bytes of one box; read them through ``memoryview``.")
      .def_buffer([](const HeldBytes& self) {
        return py::buffer_info(reinterpret_cast<const uint8_t*>(self.bytes.data()),
                               static_cast<py::ssize_t>(self.bytes.size()), true);
      })
      .def("__len__", [](const HeldBytes& self) { return self.bytes.size(); });
  py::class_<SavePlanner, PythonSavePlanner<SavePlanner>>(
      core, "SavePlanner", "What a save asks of whoever owns the data: derive from it and define the methods.")
      .def(py::init<>())
      .def("build_local_plan", &SavePlanner::build_local_plan, "What this rank holds, as a ``SavePlan``.")
      .def("build_global_plan", &SavePlanner::build_global_plan, py::arg("plans"),
           R"(Gives each box to one of the ranks that hold it; called on the coordinator.

Args:
    plans: Each rank's local plan.

Returns:
    A ``GlobalSavePlan``.

Raises:
    InvalidArgumentError: Ranks disagree about a tensor, or their boxes do not fill it.)")
      .def(
          "get_data",
          [](SavePlanner& self, const WriteItemObject& item) { return memory_view(self.get_data(item.item())); },
          py::arg("item"), "The row-major bytes of one box: contiguous memory, of ``item.length`` bytes.")
      .def("may_cache_plan", &SavePlanner::may_cache_plan,
           "Whether the plan may be used again for the next save of an equal local plan.");
  py::class_<LoadPlanner, PythonLoadPlanner>(
      core, "LoadPlanner", "What a load asks of whoever owns the targets: derive from it and define the methods.")
      .def(py::init<>())
      .def_static("plan", &plan_targets, py::arg("metadata"), py::arg("targets"),
                  py::arg("allow_missing") = py::tuple(), py::arg("allow_cast") = py::tuple(), py::keep_alive<0, 1>(),
                  R"(Finds the chunks that fill the targets.

Args:
    metadata: What is stored.
    targets: ``PlannedTensor`` for each tensor wanted, with the boxes that this rank holds.
    allow_missing: Names or patterns of targets that need not be stored.
    allow_cast: Names or patterns of targets whose dtype may differ from the stored one.

Returns:
    A ``LoadPlan``.

Raises:
    InvalidArgumentError: A target is not stored, or has another shape or dtype.)")
      .def(
          "build_local_plan",
          [](LoadPlanner& self, const CheckpointMetadata& metadata) {
            return LoadPlanObject{self.build_local_plan(metadata), &metadata};
          },
          py::arg("metadata"), py::keep_alive<0, 2>(), "The ``LoadPlan`` of this rank's targets; must not touch them.")
      .def("finish", &LoadPlanner::finish, "Called when everything is read and verified.");
}

}  // namespace hyper_parallel::bindings
