#include "examples/reshard_model/operations.h"

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <utility>

#include "examples/reshard_model/operation_forms.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/torch/elementwise.h"

namespace hyper_parallel::examples {
namespace {

/// Operations on a tensor beyond this size cost a demo too much time: each rank also runs them on the whole tensor.
constexpr int64_t kMostElements = int64_t{1} << 20;
/// Tensors that each form runs on: two that stay the same, one that changes from form to form until all were used.
constexpr size_t kTensorsPerForm = 3;

/// The operands of one tensor: x from the file, y made of it and away from zero, each as plain leaf and as DTensor
/// leaf.
struct Operands {
  at::Tensor x;
  at::Tensor y;
};

Operands operands_of(const at::Tensor& whole, Domain domain) {
  const at::Tensor values = whole.to(at::kFloat);
  return {domain == Domain::kPositive ? values.abs() + 0.1 : values.clone(), values.cos() + 1.5};
}

bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         at::allclose(a, b, /*rtol=*/1e-5, /*atol=*/1e-6, /*equal_nan=*/true);
}

class Checker {
 public:
  Checker(const MeshCommunicator& mesh, const std::vector<int64_t>& units) : mesh_(mesh), units_(units) {}

  /// What is wrong with the form on this tensor, "" if nothing is.
  std::string check(const OperationForm& form, const at::Tensor& whole) {
    const Operands operands = operands_of(whole, form.domain);
    const at::Tensor x = operands.x.clone().requires_grad_();
    const at::Tensor y = operands.y.clone().requires_grad_();
    const std::vector<Placement> placements{ragged_or_replicate(whole, units_)};
    const DTensor dx = distribute(x, mesh_, placements);
    const DTensor dy = distribute(y, mesh_, placements);

    const at::Tensor plain = form.plain(x, y);
    const DTensor result = form.distributed(dx, dy);
    if (!close(result.local().detach(), part(plain, placements))) return "result differs";
    ++checks_;
    if (!plain.requires_grad()) return result.requires_grad() ? "result requires a gradient" : "";
    // A loss that weighs every element otherwise; each rank's part of it is this rank's gradient.
    const at::Tensor weights = operands.y * 0.5 - operands.x.sigmoid();
    plain.backward(weights);
    result.local().backward(part(weights, placements));
    if (!same_gradient(dx, x.grad(), placements)) return "gradient of the first operand differs";
    if (!same_gradient(dy, y.grad(), placements)) return "gradient of the second operand differs";
    return "";
  }

  int64_t checks() const { return checks_; }

 private:
  /// This rank's part of a whole tensor.
  at::Tensor part(const at::Tensor& whole, const std::vector<Placement>& placements) const {
    return distribute(whole.detach(), mesh_, placements).local();
  }

  bool same_gradient(const DTensor& operand, const at::Tensor& plain, const std::vector<Placement>& placements) {
    const auto gradient = operand.grad();
    if (!plain.defined() || !gradient) return !plain.defined() && !gradient;
    ++checks_;
    return close(gradient->local(), part(plain, placements));
  }

  const MeshCommunicator& mesh_;
  const std::vector<int64_t>& units_;
  int64_t checks_ = 0;
};

std::vector<const ModelTensor*> candidates(const Model& model) {
  std::vector<const ModelTensor*> found;
  for (const ModelTensor& tensor : model.tensors()) {
    if (tensor.whole.is_floating_point() && tensor.whole.numel() <= kMostElements) found.push_back(&tensor);
  }
  return found;
}

}  // namespace

OperationsResult run_operations(const Ranks& ranks, const Model& model, const std::vector<int64_t>& units) {
  const std::vector<const ModelTensor*> tensors = candidates(model);
  const std::vector<OperationForm> forms = operation_forms();
  const MeshCommunicator mesh(ranks.counted_group(), DeviceMesh({ranks.size()}));
  Checker checker(mesh, units);
  OperationsResult result;
  std::vector<std::string> texts;
  std::vector<int64_t> wrong;
  ranks.barrier();
  ranks.counters().reset();
  const auto start = std::chrono::steady_clock::now();
  for (size_t f = 0; f < forms.size() && !tensors.empty(); ++f) {
    for (size_t t = 0; t < std::min(kTensorsPerForm, tensors.size()); ++t) {
      const ModelTensor& tensor = *tensors[t + 1 < kTensorsPerForm ? t : f % tensors.size()];
      const std::string fault = checker.check(forms[f], tensor.whole);
      texts.push_back(str_cat(forms[f].name, " on ", tensor.name, fault.empty() ? "" : ": ", fault));
      wrong.push_back(fault.empty() ? 0 : 1);
      result.phase.bytes_moved += static_cast<int64_t>(tensor.whole.nbytes());
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.phase.name = str_cat("operations: ", forms.size(), " forms, forward and backward");
  result.phase.tensors = std::ssize(tensors);
  result.phase.seconds = ranks.max(elapsed.count());
  result.phase.bytes_sent = ranks.sum({ranks.counters().total().bytes_sent})[0];
  result.forms = std::ssize(forms);
  result.checks = checker.checks();
  wrong = ranks.sum(wrong);
  for (size_t i = 0; i < wrong.size(); ++i) {
    if (wrong[i] != 0) result.phase.wrong.push_back(texts[i]);
  }
  return result;
}

}  // namespace hyper_parallel::examples
