#include "hyper_parallel/torch/share_node.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/redistribute_local.h"

namespace hyper_parallel {
namespace {

using torch::autograd::variable_list;

/// A node with one input and one output that gives the gradient on as `pass` makes it.
template <typename Pass>
class PassingNode final : public torch::autograd::Node {
 public:
  PassingNode(std::string name, torch::autograd::Edge next, Pass pass)
      : name_(std::move(name)), pass_(std::move(pass)) {
    add_next_edge(std::move(next));
  }
  std::string name() const override { return name_; }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    return {pass_(gradients[0])};
  }

 private:
  std::string name_;
  Pass pass_;
};

/// Not an output of a torch::autograd::Function: a view that one returns may not be written in place.
template <typename Pass>
at::Tensor behind(const at::Tensor& local, std::string name, Pass pass) {
  if (!at::GradMode::is_enabled() || !local.requires_grad()) return local;
  at::Tensor result = local.detach();
  auto node = c10::make_intrusive<PassingNode<Pass>>(std::move(name), torch::autograd::impl::gradient_edge(local),
                                                     std::move(pass));
  node->add_input_metadata(result);
  torch::autograd::impl::set_gradient_edge(result, {std::move(node), 0});
  return result;
}

/// The identity, whose backward raises.
struct FirstOrder : torch::autograd::Function<FirstOrder> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gradient,
                            const std::string& operation) {
    context->saved_data["operation"] = operation;
    return gradient.clone();
  }
  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& /*gradients*/) {
    raise(ErrorCode::kUnimplemented, "operation '", context->saved_data["operation"].toStringRef(),
          "' of a pending reduction and another tensor that requires grad has no gradients of second order; "
          "redistribute the operand to Replicate() first");
  }
};

}  // namespace

at::Tensor behind_share_node(const at::Tensor& local, const Layout& layout, const Dims& shape,
                             const std::vector<int64_t>& cut_dims, const MeshCommunicator& communicator) {
  if (cut_dims.empty()) return local;
  return behind(local, "ShareOfDTensor",
                [use = use_of_gradient(layout, cut_dims, shape), communicator](const at::Tensor& gradient) {
                  return redistribute_local(gradient, use, communicator);
                });
}

at::Tensor behind_first_order_node(const at::Tensor& local, std::string_view operation) {
  return behind(local, "ProductOfPendingDTensor", [name = std::string(operation)](const at::Tensor& gradient) {
    const bool again = at::GradMode::is_enabled() && gradient.requires_grad();
    return again ? FirstOrder::apply(gradient, name) : gradient;
  });
}

}  // namespace hyper_parallel
