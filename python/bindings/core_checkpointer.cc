#include "core_checkpointer.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core_conversions.h"
#include "core_override.h"
#include "hyper_parallel/checkpoint/checkpointer.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

/// Waiting for a save's end must not hold the GIL, which the save may need: neither in `wait` nor when it goes.
class AsyncSaveObject {
 public:
  /// Seconds from which a limit is none: more would not fit into the clock.
  static constexpr double kForever = 1e9;

  explicit AsyncSaveObject(std::shared_ptr<AsyncSave> save) : save_(std::move(save)) {}
  AsyncSaveObject(AsyncSaveObject&&) = default;
  AsyncSaveObject& operator=(AsyncSaveObject&&) = delete;
  ~AsyncSaveObject() {
    const py::gil_scoped_release no_gil;
    save_ = nullptr;
  }

  bool done() const { return save_->done(); }

  bool wait(std::optional<double> timeout) {
    HP_CHECK(!timeout.has_value() || *timeout >= 0, kInvalidArgument, "timeout is ", *timeout,
             " but must not be negative");
    double left = timeout.value_or(kForever);
    // In slices, so that Ctrl-C is heard.
    while (!wait_slice(std::min(left, kSlice))) {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (left <= 0) return false;
      left = left < kForever ? left - kSlice : left;
    }
    const py::gil_scoped_release no_gil;
    save_->wait();
    return true;
  }

 private:
  static constexpr double kSlice = 0.1;  // seconds

  bool wait_slice(double seconds) const {
    const py::gil_scoped_release no_gil;
    const std::chrono::duration<double> time(std::max(seconds, 0.0));
    return save_->wait_for(std::chrono::duration_cast<std::chrono::milliseconds>(time));
  }

  std::shared_ptr<AsyncSave> save_;
};

Checkpointer::Replicas replicas_of(bool compare) {
  return compare ? Checkpointer::Replicas::kCompared : Checkpointer::Replicas::kTrusted;
}

/// A C++ handle of a Python storage or progress, which lives as long as the save needs it.
template <typename T>
std::shared_ptr<T> shared_role(const py::object& object) {
  return {keep_alive(object), &object.cast<T&>()};
}

AsyncSaveObject async_save(Checkpointer& self, SavePlanner& planner, const py::object& writer,
                           const py::object& progress, bool compare_replicas) {
  auto shared_writer = shared_role<StorageWriter>(writer);
  auto shared_progress = shared_role<Progress>(progress);
  const py::gil_scoped_release no_gil;
  return AsyncSaveObject(
      self.async_save(planner, std::move(shared_writer), std::move(shared_progress), replicas_of(compare_replicas)));
}

CheckpointMetadata load(Checkpointer& self, LoadPlanner& planner, StorageReader& reader, const TextSequence& values,
                        const TextSequence& allow_missing, const TextSequence& allow_extra, Progress& progress) {
  LoadRequest request{.values = texts_from_python(values, "values"), .options = {}};
  request.options.allow_missing = texts_from_python(allow_missing, "allow_missing");
  request.options.allow_extra = texts_from_python(allow_extra, "allow_extra");
  const py::gil_scoped_release no_gil;
  return self.load(planner, reader, request, progress);
}

}  // namespace

void bind_checkpointer(py::module_& core) {
  py::class_<AsyncSaveObject>(core, "AsyncSaveHandle", "A save in the background.")
      .def("done", &AsyncSaveObject::done, "Whether it has ended, well or not.")
      .def("wait", &AsyncSaveObject::wait, py::arg("timeout") = py::none(),
           "Waits for its end, ``timeout`` seconds at most; whether it has ended. Raises the error it ended with.");
  py::class_<Checkpointer, std::shared_ptr<Checkpointer>>(core, "Checkpointer",
                                                          "The saves and loads of one job, one after the other.")
      .def(py::init([](std::shared_ptr<Exchange> exchange) {
             // Going away it waits for the save under way, which may need the GIL.
             return std::shared_ptr<Checkpointer>(new Checkpointer(std::move(exchange)), [](Checkpointer* self) {
               const py::gil_scoped_release no_gil;
               delete self;
             });
           }),
           py::arg("exchange").none(false), "Args:\n    exchange: How its ranks talk.")
      .def(
          "save",
          [](Checkpointer& self, SavePlanner& planner, StorageWriter& writer, Progress& progress,
             bool compare_replicas) {
            const py::gil_scoped_release no_gil;
            self.save(planner, writer, progress, replicas_of(compare_replicas));
          },
          py::arg("planner"), py::arg("writer"), py::arg("progress"), py::arg("compare_replicas") = false,
          "Saves; every rank calls. Raises on all ranks if one fails.")
      .def("async_save", &async_save, py::arg("planner"), py::arg("writer"), py::arg("progress"),
           py::arg("compare_replicas") = false, "Saves in the background; returns when the bytes are copied.")
      .def("load", &load, py::arg("planner"), py::arg("reader"), py::arg("values"), py::arg("allow_missing"),
           py::arg("allow_extra"), py::arg("progress"),
           "Loads; every rank calls. Returns the metadata. Raises on all ranks if one fails.")
      .def_property_readonly(
          "exchange", [](Checkpointer& self) -> Exchange& { return self.exchange(); },
          py::return_value_policy::reference_internal, "How its ranks talk.")
      .def_property_readonly(
          "plan_cache_hits", [](const Checkpointer& self) { return self.plan_cache().hits(); },
          "How many saves used the plan of the save before.");
}

}  // namespace hyper_parallel::bindings
