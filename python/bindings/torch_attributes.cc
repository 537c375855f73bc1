#include "torch_attributes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string>
#include <utility>

#include "core_errors.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/redistribute_local.h"
#include "torch_wrapper.h"

namespace hyper_parallel::bindings {
namespace {

using TorchFunctionTLS = at::impl::PythonTorchFunctionTLS;

enum class Source {
  kWrapper,   // torch's getter, on the wrapper
  kLocal,     // torch's getter, on the local tensor
  kGradient,  // the local tensor's gradient, as a DTensor
};

/// One attribute; made once for the class and living as long as it.
struct Attribute {
  std::string name;
  Source source;
  PyGetSetDef torch;  // torch's own
  PyGetSetDef own;
};

PyObject* gradient_of(PyObject* self) {
  const DTensor& tensor = unwrap_unchecked(self);
  const std::optional<DTensor> gradient = tensor.grad();
  if (!gradient) Py_RETURN_NONE;
  return wrap(*gradient).release().ptr();
}

PyObject* read(PyObject* self, const Attribute& attribute) {
  switch (attribute.source) {
    case Source::kWrapper: {
      const WithoutTorchFunction guard;
      return attribute.torch.get(self, attribute.torch.closure);
    }
    case Source::kLocal: {
      const py::object local = py::cast(unwrap_unchecked(self).local());
      return attribute.torch.get(local.ptr(), attribute.torch.closure);
    }
    case Source::kGradient:
      return gradient_of(self);
  }
  return nullptr;
}

PyObject* get(PyObject* self, void* closure) {
  try {
    return read(self, *static_cast<const Attribute*>(closure));
  } catch (const Error& error) {
    translate(error);
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
  return nullptr;
}

/// Torch's setter, which arrives at `__torch_function__`.
int set(PyObject* self, PyObject* value, void* closure) {
  const PyGetSetDef& torch = static_cast<const Attribute*>(closure)->torch;
  return torch.set(self, value, torch.closure);
}

Source source_of(const std::string& source) {
  if (source == "wrapper") return Source::kWrapper;
  if (source == "local") return Source::kLocal;
  HP_CHECK(source == "gradient", kInvalidArgument, "source '", source, "' must be wrapper, local or gradient");
  return Source::kGradient;
}

void install_attribute(const py::type& wrapper_class, const std::string& name, const std::string& source) {
  const py::object found = wrapper_class.attr(name.c_str());
  HP_CHECK(Py_TYPE(found.ptr()) == &PyGetSetDescr_Type, kInvalidArgument, "'", name, "' is no attribute of torch's");
  const PyGetSetDef& torch = *reinterpret_cast<PyGetSetDescrObject*>(found.ptr())->d_getset;
  auto* const attribute = new Attribute{name, source_of(source), torch, {}};
  attribute->own = {attribute->name.c_str(), &get, torch.set == nullptr ? nullptr : &set, torch.doc, attribute};
  const py::object descriptor = py::reinterpret_steal<py::object>(
      PyDescr_NewGetSet(reinterpret_cast<PyTypeObject*>(wrapper_class.ptr()), &attribute->own));
  if (!descriptor) throw py::error_already_set();
  py::setattr(wrapper_class, name.c_str(), descriptor);
}

}  // namespace

WithoutTorchFunction::WithoutTorchFunction() : before_(TorchFunctionTLS::get_disabled_state()) {
  TorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::SUBCLASSES_DISABLED);
}

WithoutTorchFunction::~WithoutTorchFunction() {
  TorchFunctionTLS::set_disabled_state(static_cast<at::impl::TorchFunctionDisabledState>(before_));
}

void bind_attributes(py::module_& module) {
  module.def("install_attribute", &install_attribute, py::arg("wrapper_class"), py::arg("name"), py::arg("source"),
             "Lets C++ answer an attribute of the class: from the \"wrapper\", the \"local\" tensor or the "
             "\"gradient\".");
}

}  // namespace hyper_parallel::bindings
