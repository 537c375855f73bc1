#include "torch_random.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <utility>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/dropout.h"
#include "torch_communicator.h"
#include "torch_guarded.h"
#include "torch_signatures.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

/// Seeds of torch are of 64 bits, signed or not.
void manual_seed(int64_t seed, const OrNone<MeshObject>& mesh) {
  const auto bits = static_cast<uint64_t>(seed);
  if (mesh.is_none()) {
    process_random_state()->manual_seed(bits);
    return;
  }
  HP_CHECK(py::isinstance<DeviceMesh>(mesh), kType,
           "manual_seed: device_mesh must be a hyper_parallel.DeviceMesh, not ", repr_text(mesh));
  process_random_state()->manual_seed(bits, mesh.cast<const DeviceMesh&>());
}

DropoutMode mode_of(bool training) { return training ? DropoutMode::kTraining : DropoutMode::kEvaluation; }

/// The very same object where nothing is dropped, as in torch.
DTensorObject run_dropout(const DTensorObject& tensor, double p, bool training) {
  const auto input = unwrap(tensor, "dropout: input");
  DTensor result = without_gil([&] { return dropout(*input, p, mode_of(training)); });
  if (result.local().is_same(input->local())) return tensor;
  return wrap(std::move(result));
}

DTensorObject run_dropout_in_place(const DTensorObject& tensor, double p, bool training) {
  const auto input = unwrap(tensor, "dropout_: input");
  without_gil([&] {
    DTensor written = *input;
    dropout_(written, p, mode_of(training));
  });
  follow_local(tensor);
  return tensor;
}

}  // namespace

const std::shared_ptr<RandomState>& process_random_state() {
  static const auto* const kState = new std::shared_ptr<RandomState>(std::make_shared<RandomState>());
  return *kState;
}

void random_state_goes_under(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  // A weak pointer, so that no other group can come to have this one's address.
  using WeakGroup = c10::weak_intrusive_ptr<c10d::ProcessGroup>;
  static auto* const kCurrent = new WeakGroup(c10::intrusive_ptr<c10d::ProcessGroup>());
  const WeakGroup given(group);
  if (given == *kCurrent) return;
  *kCurrent = given;
  process_random_state()->restart();
}

void bind_random(py::module_& module) {
  module.def("manual_seed", &manual_seed, py::arg("seed"), py::arg("device_mesh") = py::none(),
             "Starts all meshes, or one, again from a seed of 64 bits.");
  module.def(
      "rng_state", [] { return to_string(process_random_state()->position()); },
      "Where the random numbers of this process stand, as text.");
  module.def(
      "set_rng_state",
      [](const std::string& state) { process_random_state()->set_position(parse_random_position(state)); },
      py::arg("state"), "Goes back to what `rng_state` said.");
  module.def(
      "begin_replay",
      [](const std::string& state) {
        return to_string(process_random_state()->begin_replay(parse_random_position(state)));
      },
      py::arg("state"), "Goes back for a forward pass that is computed again; returns what `end_replay` takes.");
  module.def(
      "end_replay",
      [](const std::string& before) { process_random_state()->end_replay(parse_random_position(before)); },
      py::arg("before"), "Ends a replay.");
  module.def("dropout", &run_dropout, py::arg("input"), py::arg("p"), py::arg("training"),
             "Zeroes elements with probability p; the very same object where nothing is dropped.");
  module.def("dropout_", &run_dropout_in_place, py::arg("input"), py::arg("p"), py::arg("training"),
             "The same in place.");
}

}  // namespace hyper_parallel::bindings
