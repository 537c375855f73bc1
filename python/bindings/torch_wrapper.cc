#include "torch_wrapper.h"

#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <typeinfo>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/gradient_frame.h"

namespace hyper_parallel::bindings {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// Set by the package's import and read under the GIL; lives as long as the process, as the class does.
PyTypeObject* wrapper_class = nullptr;

c10::DispatchKeySet backend_keys(const at::Tensor& local) {
  return c10::DispatchKeySet(c10::computeDispatchKey(local.scalar_type(), c10::kStrided, local.device()));
}

using WeakImpl = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

class WrapperImpl final : public c10::TensorImpl {
 public:
  explicit WrapperImpl(std::shared_ptr<const DTensor> value)
      : TensorImpl(backend_keys(value->local()), value->local().dtype(), value->local().device()),
        value_(std::move(value)) {
    set_storage_access_should_throw();
    set_python_dispatch(true);
    mirror();
  }

  /// Lets go of what it holds as soon as no strong reference is left: a weak one keeps the object itself, and the local
  /// tensor's hooks may hold that.
  void release_resources() override {
    value_.reset();
    bridge.reset();
    gradient.reset();
    base.reset();
    TensorImpl::release_resources();
  }

  const std::shared_ptr<const DTensor>& value() const { return value_; }
  void set_value(DTensor value) {
    value_ = std::make_shared<const DTensor>(std::move(value));
    mirror();
  }

  /// The grad_fn that bridges the wrapper and its local tensor; any other is torch's.
  c10::intrusive_ptr<Node> bridge;

  /// The wrapper of the local tensor's gradient that was handed out last.
  at::Tensor gradient;

  /// The wrapper whose local tensor this one's is a view of, itself no view; null if this is none.
  c10::intrusive_ptr<c10::TensorImpl> base;
  /// The wrappers whose base this is.
  std::vector<WeakImpl> views;

  /// Storage that `data = ...` has taken from the local tensor while another thread was computing on it, without the
  /// GIL; that thread holds the value that the wrapper had.
  struct Retired {
    std::weak_ptr<const DTensor> value;
    c10::Storage storage;
  };
  std::vector<Retired> retired;

 private:
  void mirror() {
    set_sizes_contiguous(value_->shape());
    data_type_ = value_->local().dtype();
    if (!is_inference() && !value_->local().is_inference()) {
      set_version_counter(value_->local().unsafeGetTensorImpl()->version_counter());
    }
  }

  std::shared_ptr<const DTensor> value_;
};

WrapperImpl& impl_of(const at::Tensor& wrapper) {
  c10::TensorImpl& found = *wrapper.unsafeGetTensorImpl();
  HP_CHECK(typeid(found) == typeid(WrapperImpl), kType,
           "this DTensor was not made by DTensor(...) but relabelled from a plain tensor and carries no share");
  return static_cast<WrapperImpl&>(found);
}

/// A node with one input and one output that passes gradients between a wrapper and its local tensor.
class Bridge : public Node {
 public:
  Bridge(const DTensor& tensor, Edge next) : frame(tensor) { add_next_edge(std::move(next)); }

 protected:
  const GradientFrame frame;
};

/// From the wrapper's gradient to the local tensor's.
class Leaving final : public Bridge {
 public:
  using Bridge::Bridge;
  std::string name() const override { return "DTensorToLocal"; }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    return {frame.local_of(*carried(gradients[0]))};
  }

 private:
  std::shared_ptr<const DTensor> carried(const at::Tensor& wrapped) const {
    const py::gil_scoped_acquire gil;
    const py::object object = py::reinterpret_steal<py::object>(THPVariable_Wrap(wrapped));
    HP_CHECK(is_wrapper(object), kType, "the gradient of a DTensor of shape ", tuple_text(frame.shape()),
             " is a plain tensor of shape ", tuple_text(wrapped.sizes()), " but must be a DTensor");
    return unwrap_unchecked(object);
  }
};

/// From the local tensor's gradient to that of the wrapper's own graph.
class Entering final : public Bridge {
 public:
  using Bridge::Bridge;
  std::string name() const override { return "LocalToDTensor"; }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    const py::gil_scoped_acquire gil;
    const py::object wrapped = wrap(frame.dtensor_of(gradients[0]));
    return {THPVariable_Unpack(wrapped.ptr())};
  }
};

/// Whether torch refuses to say where in the graph the tensor stands: a view that was made without gradients, after a
/// write to what it shows.
bool has_no_place(const at::Tensor& local) {
  const auto* view = torch::autograd::impl::get_view_autograd_meta(local);
  return view != nullptr && view->has_bw_view() &&
         (view->get_creation_meta() == torch::autograd::CreationMeta::NO_GRAD_MODE ||
          view->get_creation_meta() == torch::autograd::CreationMeta::INFERENCE_MODE) &&
         view->get_attr_version() != local._version();
}

/// Gives the wrapper its leaving node, or none, as the local tensor requires grad or not.
void leave(const at::Tensor& wrapper) {
  WrapperImpl& impl = impl_of(wrapper);
  const at::Tensor& local = impl.value()->local();
  if (!local.requires_grad()) {
    if (impl.bridge) torch::autograd::impl::set_gradient_edge(wrapper, {});
    impl.bridge = nullptr;
    return;
  }
  if (has_no_place(local)) return;
  Edge edge = torch::autograd::impl::gradient_edge(local);
  if (impl.bridge && impl.bridge->num_outputs() > 0 && impl.bridge->next_edge(0) == edge) return;
  impl.bridge = c10::make_intrusive<Leaving>(*impl.value(), std::move(edge));
  impl.bridge->add_input_metadata(wrapper);
  torch::autograd::impl::set_gradient_edge(wrapper, {impl.bridge, 0});
}

/// Where torch gave the wrapper a graph of its own, puts the local tensor behind it.
void enter(const at::Tensor& wrapper) {
  WrapperImpl& impl = impl_of(wrapper);
  const DTensor& value = *impl.value();
  at::Tensor local = value.local().detach();
  const Edge edge = torch::autograd::impl::gradient_edge(wrapper);
  auto node = c10::make_intrusive<Entering>(value, edge);
  node->add_input_metadata(local);
  torch::autograd::impl::set_gradient_edge(local, {std::move(node), 0});
  impl.set_value(DTensor::unchecked(std::move(local), value.mesh(), value.layout(), value.shape()));
  impl.bridge = edge.function;
}

}  // namespace

void set_wrapper_class(py::type new_class) {
  wrapper_class = reinterpret_cast<PyTypeObject*>(new_class.release().ptr());
}

bool is_wrapper_class(py::handle type) {
  if (wrapper_class == nullptr || !PyType_Check(type.ptr())) return false;
  auto* const class_object = reinterpret_cast<PyTypeObject*>(type.ptr());
  return class_object == wrapper_class || PyType_IsSubtype(class_object, wrapper_class) != 0;
}

bool is_wrapper(py::handle object) {
  PyTypeObject* type = Py_TYPE(object.ptr());
  return type == wrapper_class || is_wrapper_class(reinterpret_cast<PyObject*>(type));
}

py::object wrap(DTensor tensor) {
  HP_CHECK(wrapper_class != nullptr, kFailedPrecondition, "import hyper_parallel.dtensor first");
  const at::Tensor wrapper = at::detail::make_tensor<WrapperImpl>(std::make_shared<const DTensor>(std::move(tensor)));
  leave(wrapper);
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(wrapper, wrapper_class));
}

namespace {

/// The torch tensor that a wrapper is. Throws kType for any other object.
const at::Tensor& checked_tensor(py::handle object, std::string_view what) {
  HP_CHECK(is_wrapper(object), kType, what, " must be a DTensor, not ", Py_TYPE(object.ptr())->tp_name);
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  impl_of(tensor);
  return tensor;
}

WrapperImpl& checked_impl(py::handle object, std::string_view what) { return impl_of(checked_tensor(object, what)); }

}  // namespace

std::shared_ptr<const DTensor> unwrap(py::handle object, std::string_view what) {
  checked_tensor(object, what);
  return unwrap_unchecked(object);
}

std::shared_ptr<const DTensor> unwrap_unchecked(py::handle wrapper) {
  const at::Tensor& tensor = THPVariable_Unpack(wrapper.ptr());
  const WrapperImpl& impl = impl_of(tensor);
  if (torch::autograd::impl::grad_fn_unsafe(tensor) != impl.bridge.get()) {
    enter(tensor);
  } else if (!impl.bridge && tensor.requires_grad()) {
    impl.value()
        ->local()
        .requires_grad_();  // torch made a leaf of the wrapper, as torch.tensor(.., requires_grad=True)
    leave(tensor);
  } else if (impl.value()->local().requires_grad() || impl.bridge) {
    leave(tensor);  // the local tensor may have been written by way of another handle
  }
  return impl.value();
}

py::object gradient_wrapper(py::handle wrapper) {
  const std::shared_ptr<const DTensor> carried = unwrap_unchecked(wrapper);
  at::Tensor& known = impl_of(THPVariable_Unpack(wrapper.ptr())).gradient;
  const at::Tensor& local = carried->local().grad();
  if (!local.defined()) {
    known.reset();
    return py::none();
  }
  if (!known.defined() || !impl_of(known).value()->local().is_same(local)) {
    known = THPVariable_Unpack(wrap(GradientFrame(*carried).dtensor_of(local)).ptr());
  }
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(known));
}

void set_data(py::handle wrapper, py::handle other) {
  const std::shared_ptr<const DTensor> old = unwrap(wrapper, "data = ...: tensor");
  const std::shared_ptr<const DTensor> data = unwrap(other, "data = ...: the value");
  HP_CHECK(old->mesh().rank() == data->mesh().rank(), kFailedPrecondition, "data = ...: the value is the part of rank ",
           data->mesh().rank(), " but the tensor that of rank ", old->mesh().rank());
  at::Tensor local = old->local();
  const bool same = old->layout() == data->layout() && old->shape() == data->shape();
  HP_CHECK(same || !local.grad().defined(), kFailedPrecondition,
           "data = ...: layout or shape change while the tensor has a gradient; set grad to None first");
  const at::Tensor& self = THPVariable_Unpack(wrapper.ptr());
  WrapperImpl& impl = impl_of(self);
  // The accumulator of the gradient knows the old sizes: without a bridge that holds it a new one is made.
  if (impl.bridge) torch::autograd::impl::set_gradient_edge(self, {});
  impl.bridge = nullptr;
  const c10::Storage storage = local.storage();
  local.set_data(data->local());
  impl.set_value(DTensor::unchecked(std::move(local), data->mesh(), data->layout(), data->shape()));
  std::erase_if(impl.retired, [](const WrapperImpl::Retired& known) { return known.value.expired(); });
  if (old.use_count() > 1) impl.retired.push_back({old, storage});
  leave(self);
}

void set_base(py::handle view, py::handle base) {
  WrapperImpl& impl = checked_impl(view, "set_base: view");
  const at::Tensor& given = checked_tensor(base, "set_base: base");
  const c10::intrusive_ptr<c10::TensorImpl>& further = impl_of(given).base;
  const at::Tensor root = further ? at::Tensor(further) : given;
  std::vector<WeakImpl>& views = impl_of(root).views;
  // Views that are gone are dropped whenever the list is full: it stays at most twice as long as the live ones.
  if (views.size() == views.capacity()) std::erase_if(views, [](const WeakImpl& known) { return known.expired(); });
  views.emplace_back(THPVariable_Unpack(view.ptr()).getIntrusivePtr());
  impl.base = root.getIntrusivePtr();
}

WeakWrapper::WeakWrapper(py::handle wrapper)
    : impl_(checked_tensor(wrapper, "WeakDTensor: tensor").getIntrusivePtr()) {}

py::object WeakWrapper::get() const {
  const at::Tensor alive(impl_.lock());
  return alive.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(alive)) : py::none();
}

void follow_local(py::handle wrapper) {
  const at::Tensor& changed = checked_tensor(wrapper, "follow_local: tensor");
  const c10::intrusive_ptr<c10::TensorImpl>& base = impl_of(changed).base;
  const at::Tensor root = base ? at::Tensor(base) : changed;
  leave(root);
  // A write through one of them moves the base and every view of it on in the graph.
  for (const WeakImpl& known : impl_of(root).views) {
    const at::Tensor view(known.lock());
    if (view.defined()) leave(view);
  }
}

}  // namespace hyper_parallel::bindings
