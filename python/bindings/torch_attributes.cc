#include "torch_attributes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <string>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "torch_guarded.h"
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

py::object read(PyObject* self, const Attribute& attribute) {
  switch (attribute.source) {
    case Source::kWrapper: {
      const WithoutTorchFunction guard;
      return checked(attribute.torch.get(self, attribute.torch.closure));
    }
    case Source::kLocal: {
      const py::object local = py::cast(unwrap_unchecked(self)->local());
      return checked(attribute.torch.get(local.ptr(), attribute.torch.closure));
    }
    case Source::kGradient:
      return gradient_wrapper(self);
  }
  return {};
}

PyObject* get(PyObject* self, void* closure) {
  return guarded([&] { return read(self, *static_cast<const Attribute*>(closure)); });
}

/// What the local tensor answers is set there; everything else by torch's setter, which arrives at
/// `__torch_function__`.
int set(PyObject* self, PyObject* value, void* closure) {
  const Attribute& attribute = *static_cast<const Attribute*>(closure);
  PyObject* done = guarded([&] {
    const bool on_local = attribute.source == Source::kLocal;
    const py::object target =
        on_local ? py::cast(unwrap_unchecked(self)->local()) : py::reinterpret_borrow<py::object>(self);
    if (attribute.torch.set(target.ptr(), value, attribute.torch.closure) != 0) throw py::error_already_set();
    if (on_local) follow_local(self);
    return py::object(py::none());
  });
  Py_XDECREF(done);
  return done == nullptr ? -1 : 0;
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
  auto attribute = std::make_unique<Attribute>(Attribute{name, source_of(source), torch, {}});
  attribute->own = {attribute->name.c_str(), &get, torch.set == nullptr ? nullptr : &set, torch.doc, attribute.get()};
  const py::object descriptor =
      checked(PyDescr_NewGetSet(reinterpret_cast<PyTypeObject*>(wrapper_class.ptr()), &attribute->own));
  attribute.release();  // the descriptor's, which may outlive the class
  py::setattr(wrapper_class, name.c_str(), descriptor);
}

}  // namespace

WithoutTorchFunction::WithoutTorchFunction() : before_(TorchFunctionTLS::get_disabled_state()) {
  if (TorchFunctionTLS::get_disabled_state() == at::impl::TorchFunctionDisabledState::ENABLED) {
    TorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::SUBCLASSES_DISABLED);
  }
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
