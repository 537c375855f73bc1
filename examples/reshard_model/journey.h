#pragma once

// The model's way through the layouts: each phase redistributes every tensor that it applies to, is timed, its bytes
// are counted, and then every rank's part is compared with the file.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "examples/reshard_model/model.h"
#include "examples/reshard_model/ranks.h"
#include "examples/reshard_model/report.h"
#include "hyper_parallel/torch/dtensor.h"

namespace hyper_parallel::examples {

class Journey {
 public:
  Journey(const Ranks& ranks, const Model& model);

  /// What a tensor becomes in a phase; nothing leaves it as it is.
  using Choose = std::function<std::optional<std::vector<Placement>>(const at::Tensor& whole)>;

  /// Lays all tensors out anew from the mapped file on `mesh`: every rank takes its part, no communication.
  PhaseResult distribute(const std::string& name, const DeviceMesh& mesh, const Choose& choose);
  PhaseResult redistribute(const std::string& name, const Choose& choose);
  /// Gathers every tensor on every rank.
  PhaseResult gather(const std::string& name);

  /// The tensors as they lie now, in the model's order.
  const std::vector<DTensor>& tensors() const { return tensors_; }

  /// Names of the tensors that are replicated now because nothing divides.
  std::vector<std::string> replicated() const;

 private:
  PhaseResult measure(const std::string& name, const std::function<void(PhaseResult&)>& body) const;
  /// Fills `result.wrong` with the tensors that `is_right(index)` denies on any rank.
  void compare(PhaseResult& result, const std::function<bool(size_t)>& is_right) const;
  bool part_is_right(size_t index) const;

  const Ranks& ranks_;
  const Model& model_;
  std::vector<DTensor> tensors_;
};

}  // namespace hyper_parallel::examples
