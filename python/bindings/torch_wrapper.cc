#include "torch_wrapper.h"

#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <typeinfo>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/redistribute_local.h"

namespace hyper_parallel::bindings {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// Set once by the package's import and read under the GIL; lives as long as the process, as the class does.
PyTypeObject* wrapper_class = nullptr;

c10::DispatchKeySet backend_keys(const at::Tensor& local) {
  return c10::DispatchKeySet(c10::computeDispatchKey(local.scalar_type(), c10::kStrided, local.device()));
}

class WrapperImpl final : public c10::TensorImpl {
 public:
  explicit WrapperImpl(DTensor value)
      : TensorImpl(backend_keys(value.local()), value.local().dtype(), value.local().device()),
        value_(std::move(value)) {
    set_storage_access_should_throw();
    set_python_dispatch(true);
    mirror();
  }

  const DTensor& value() const { return value_; }
  void set_value(DTensor value) {
    value_ = std::move(value);
    mirror();
  }

  /// The grad_fn that joins the wrapper to its local tensor; any other is torch's.
  Node* joined = nullptr;

 private:
  void mirror() {
    set_sizes_contiguous(value_.shape());
    data_type_ = value_.local().dtype();
    if (!is_inference() && !value_.local().is_inference()) {
      set_version_counter(value_.local().unsafeGetTensorImpl()->version_counter());
    }
  }

  DTensor value_;
};

WrapperImpl& impl_of(const at::Tensor& wrapper) { return static_cast<WrapperImpl&>(*wrapper.unsafeGetTensorImpl()); }

/// A node with one input and one output that passes gradients between a wrapper and its local tensor. The gradient lies
/// as `gradient_layout` says.
class Joint : public Node {
 public:
  Joint(const DTensor& tensor, Edge next)
      : mesh_(tensor.mesh()), layout_(gradient_layout(tensor.layout())), shape_(tensor.shape()) {
    add_next_edge(std::move(next));
  }

 protected:
  /// The gradient `local` of the carried tensor, as a DTensor.
  DTensor gradient(const at::Tensor& local) const { return DTensor::unchecked(local, mesh_, layout_, shape_); }
  /// The local tensor of a gradient that came as a wrapper.
  at::Tensor local_of(const at::Tensor& wrapped) const {
    const py::gil_scoped_acquire gil;
    const py::object object = py::reinterpret_steal<py::object>(THPVariable_Wrap(wrapped));
    HP_CHECK(is_wrapper(object), kType, "the gradient of a DTensor of shape ", tuple_text(shape_),
             " is a plain tensor of shape ", tuple_text(wrapped.sizes()), " but must be a DTensor");
    const DTensor& given = unwrap_unchecked(object);
    HP_CHECK(given.shape() == shape_, kInvalidArgument, "the gradient of a DTensor of shape ", tuple_text(shape_),
             " has shape ", tuple_text(given.shape()));
    return given.redistribute(layout_.mesh(), layout_.placements()).local();
  }

 private:
  MeshCommunicator mesh_;
  Layout layout_;
  std::vector<int64_t> shape_;
};

class Leaving final : public Joint {
 public:
  using Joint::Joint;
  std::string name() const override { return "DTensorToLocal"; }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    return {local_of(gradients[0])};
  }
};

class Entering final : public Joint {
 public:
  using Joint::Joint;
  std::string name() const override { return "LocalToDTensor"; }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    const py::gil_scoped_acquire gil;
    const py::object wrapped = wrap(gradient(gradients[0]));
    return {THPVariable_Unpack(wrapped.ptr())};
  }
};

/// Gives the wrapper its leaving node, or none, as the local tensor requires grad or not.
void join(const at::Tensor& wrapper) {
  WrapperImpl& impl = impl_of(wrapper);
  const at::Tensor& local = impl.value().local();
  if (!local.requires_grad()) {
    if (impl.joined != nullptr) torch::autograd::impl::set_gradient_edge(wrapper, {});
    impl.joined = nullptr;
    return;
  }
  Edge edge = torch::autograd::impl::gradient_edge(local);
  if (impl.joined != nullptr && impl.joined->num_outputs() > 0 && impl.joined->next_edge(0) == edge) return;
  auto node = c10::make_intrusive<Leaving>(impl.value(), std::move(edge));
  node->add_input_metadata(wrapper);
  impl.joined = node.get();
  torch::autograd::impl::set_gradient_edge(wrapper, {std::move(node), 0});
}

/// Where torch gave the wrapper a graph of its own, puts the local tensor behind it.
void enter(const at::Tensor& wrapper, Node* grad_fn) {
  WrapperImpl& impl = impl_of(wrapper);
  const DTensor& value = impl.value();
  at::Tensor local = value.local().detach();
  auto node = c10::make_intrusive<Entering>(value, torch::autograd::impl::gradient_edge(wrapper));
  node->add_input_metadata(local);
  torch::autograd::impl::set_gradient_edge(local, {std::move(node), 0});
  impl.set_value(DTensor::unchecked(std::move(local), value.mesh(), value.layout(), value.shape()));
  impl.joined = grad_fn;
}

}  // namespace

void set_wrapper_class(py::type new_class) {
  wrapper_class = reinterpret_cast<PyTypeObject*>(new_class.release().ptr());
}

bool is_wrapper_class(py::handle type) {
  auto* const class_object = reinterpret_cast<PyTypeObject*>(type.ptr());
  return class_object == wrapper_class ||
         (wrapper_class != nullptr && PyType_IsSubtype(class_object, wrapper_class) != 0);
}

bool is_wrapper(py::handle object) { return is_wrapper_class(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))); }

py::object wrap(DTensor tensor) {
  HP_CHECK(wrapper_class != nullptr, kFailedPrecondition, "import hyper_parallel.dtensor first");
  const at::Tensor wrapper = at::detail::make_tensor<WrapperImpl>(std::move(tensor));
  join(wrapper);
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(wrapper, wrapper_class));
}

const DTensor& unwrap(py::handle object, std::string_view what) {
  HP_CHECK(is_wrapper(object), kType, what, " must be a DTensor, not ", Py_TYPE(object.ptr())->tp_name);
  return unwrap_unchecked(object);
}

const DTensor& unwrap_unchecked(py::handle wrapper) {
  const at::Tensor& tensor = THPVariable_Unpack(wrapper.ptr());
  const c10::TensorImpl& found = *tensor.unsafeGetTensorImpl();
  HP_CHECK(typeid(found) == typeid(WrapperImpl), kType,
           "this DTensor was not made by DTensor(...) but relabelled from a plain tensor and carries no share");
  WrapperImpl& impl = impl_of(tensor);
  if (Node* grad_fn = torch::autograd::impl::grad_fn_unsafe(tensor); grad_fn != impl.joined) enter(tensor, grad_fn);
  return impl.value();
}

void assign(py::handle wrapper, DTensor tensor) {
  const at::Tensor& self = THPVariable_Unpack(wrapper.ptr());
  impl_of(self).set_value(std::move(tensor));
  join(self);
}

void follow_local(py::handle wrapper) { join(THPVariable_Unpack(wrapper.ptr())); }

}  // namespace hyper_parallel::bindings
