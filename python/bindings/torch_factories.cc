#include "torch_factories.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <utility>

#include "core_conversions.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/factories.h"
#include "torch_arguments.h"
#include "torch_communicator.h"
#include "torch_guarded.h"
#include "torch_signatures.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

using OptionalType = std::optional<at::ScalarType>;
using OptionalDevice = std::optional<at::Device>;

at::TensorOptions options_of(OptionalType dtype, OptionalDevice device, bool requires_grad) {
  return at::TensorOptions().dtype(dtype).device(device).requires_grad(requires_grad);
}

using Factory = DTensor (*)(std::vector<int64_t>, const MeshCommunicator&, std::vector<Placement>,
                            const at::TensorOptions&);

/// `make(shape, mesh, placements, options)` on what Python gave.
template <typename Make>
DTensorObject run_factory(const std::string& name, const IntSequence& size, const MeshObject& mesh,
                          const PlacementSequence& placements, const at::TensorOptions& options, const Make& make) {
  std::vector<int64_t> shape = integers_from_python(size, "size");
  const MeshCommunicator communicator = communicator_of(mesh, name + ": device_mesh");
  std::vector<Placement> checked = placements_from_python(placements);
  return wrap(without_gil([&] { return make(std::move(shape), communicator, std::move(checked), options); }));
}

void bind_factory(py::module_& module, const char* name, Factory factory, const char* text) {
  module.def(
      name,
      [name, factory](const IntSequence& size, const MeshObject& mesh, const PlacementSequence& placements,
                      OptionalType dtype, OptionalDevice device, bool requires_grad) {
        return run_factory(name, size, mesh, placements, options_of(dtype, device, requires_grad), factory);
      },
      py::arg("size"), py::arg("device_mesh"), py::arg("placements"), py::arg("dtype") = py::none(),
      py::arg("device") = py::none(), py::arg("requires_grad") = false, text);
}

at::Scalar number_from_python(py::handle value) {
  PyObject* const given = value.ptr();
  const PythonArguments arguments = arguments_from_python("full", {&given, 1}, {});
  const at::Scalar* number = arguments.positional.front().number();
  HP_CHECK(number != nullptr, kType, "full: fill_value must be a number, not ", repr_text(value));
  return *number;
}

DTensorObject make_full(const IntSequence& size, const NumberObject& fill_value, const MeshObject& mesh,
                        const PlacementSequence& placements, OptionalType dtype, OptionalDevice device,
                        bool requires_grad) {
  const at::Scalar value = number_from_python(fill_value);
  const auto fill = [&](std::vector<int64_t> shape, const MeshCommunicator& communicator,
                        std::vector<Placement> checked, const at::TensorOptions& options) {
    return full(std::move(shape), value, communicator, std::move(checked), options);
  };
  return run_factory("full", size, mesh, placements, options_of(dtype, device, requires_grad), fill);
}

using LikeFactory = DTensor (*)(const DTensor&, const at::TensorOptions&);

void bind_like(py::module_& module, const char* name, LikeFactory factory, const char* text) {
  module.def(
      name,
      [name, factory](const DTensorObject& tensor, OptionalType dtype, bool requires_grad) -> DTensorObject {
        const auto like = unwrap(tensor, std::string(name) + ": input");
        const at::TensorOptions options = options_of(dtype, std::nullopt, requires_grad);
        return wrap(without_gil([&] { return factory(*like, options); }));
      },
      py::arg("input"), py::arg("dtype") = py::none(), py::arg("requires_grad") = false, text);
}

}  // namespace

void bind_factories(py::module_& module) {
  bind_factory(module, "zeros", &zeros, "A new DTensor of zeros.");
  bind_factory(module, "ones", &ones, "A new DTensor of ones.");
  bind_factory(module, "empty", &empty, "A new DTensor of whatever the memory holds.");
  bind_factory(module, "rand", &rand, "A new DTensor, uniform in [0, 1).");
  bind_factory(module, "randn", &randn, "A new DTensor, standard normal.");
  module.def("full", &make_full, py::arg("size"), py::arg("fill_value"), py::arg("device_mesh"), py::arg("placements"),
             py::arg("dtype") = py::none(), py::arg("device") = py::none(), py::arg("requires_grad") = false,
             "A new DTensor of one value.");
  bind_like(module, "rand_like", &rand_like, "A new DTensor laid out as another, uniform in [0, 1).");
  bind_like(module, "randn_like", &randn_like, "A new DTensor laid out as another, standard normal.");
}

}  // namespace hyper_parallel::bindings
