#include "examples/reshard_model/journey.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "examples/reshard_model/expected_part.h"
#include "hyper_parallel/redistribute/planner.h"
#include "hyper_parallel/redistribute/traffic.h"

namespace hyper_parallel::examples {
namespace {

int64_t bound_bytes(const DTensor& from, const Layout& to) {
  const Plan plan = plan_redistribution(from.layout(), to, Dims(from.shape()));
  return total_lower_bound(plan) * static_cast<int64_t>(from.local().element_size());
}

Layout replicated_layout(const DTensor& tensor) {
  return tensor.layout().with_placements(std::vector<Placement>(tensor.placements().size(), Replicate{}));
}

}  // namespace

Journey::Journey(const Ranks& ranks, const Model& model) : ranks_(ranks), model_(model) {}

PhaseResult Journey::measure(const std::string& name, const std::function<void(PhaseResult&)>& body) const {
  PhaseResult result{.name = name, .wrong = {}};
  ranks_.barrier();
  ranks_.counters().reset();
  const auto start = std::chrono::steady_clock::now();
  body(result);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds = ranks_.max(elapsed.count());
  result.bytes_sent = ranks_.sum({ranks_.counters().total().bytes_sent})[0];
  return result;
}

void Journey::compare(PhaseResult& result, const std::function<bool(size_t)>& is_right) const {
  std::vector<int64_t> wrong;
  for (size_t i = 0; i < tensors_.size(); ++i) wrong.push_back(is_right(i) ? 0 : 1);
  wrong = ranks_.sum(wrong);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (wrong[i] != 0) result.wrong.push_back(model_.tensors()[i].name);
  }
}

bool Journey::part_is_right(size_t index) const {
  return same_bits(tensors_[index].local(), expected_part(tensors_[index], model_.tensors()[index].whole));
}

PhaseResult Journey::distribute(const std::string& name, const DeviceMesh& mesh, const Choose& choose) {
  const MeshCommunicator communicator(ranks_.counted_group(), mesh);
  tensors_.clear();
  PhaseResult result = measure(name, [&](PhaseResult& phase) {
    for (const ModelTensor& tensor : model_.tensors()) {
      auto placements = choose(tensor.whole);
      if (!placements) placements.emplace(static_cast<size_t>(mesh.ndim()), Replicate{});
      tensors_.push_back(hyper_parallel::distribute(tensor.whole, communicator, *placements));
      ++phase.tensors;
      phase.bytes_moved += static_cast<int64_t>(tensor.whole.nbytes());
    }
  });
  compare(result, [&](size_t i) { return part_is_right(i); });
  return result;
}

PhaseResult Journey::redistribute(const std::string& name, const Choose& choose) {
  std::vector<std::optional<std::vector<Placement>>> targets;
  int64_t bound = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    targets.push_back(choose(model_.tensors()[i].whole));
    if (targets.back()) bound += bound_bytes(tensors_[i], tensors_[i].layout().with_placements(*targets.back()));
  }
  PhaseResult result = measure(name, [&](PhaseResult& phase) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!targets[i]) continue;
      tensors_[i] = tensors_[i].redistribute(*targets[i]);
      ++phase.tensors;
      phase.bytes_moved += static_cast<int64_t>(model_.tensors()[i].whole.nbytes());
    }
  });
  result.lower_bound = bound;
  compare(result, [&](size_t i) { return part_is_right(i); });
  return result;
}

PhaseResult Journey::gather(const std::string& name) {
  int64_t bound = 0;
  for (const DTensor& tensor : tensors_) bound += bound_bytes(tensor, replicated_layout(tensor));
  std::vector<at::Tensor> whole(tensors_.size());
  PhaseResult result = measure(name, [&](PhaseResult& phase) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      whole[i] = tensors_[i].full_tensor();
      ++phase.tensors;
      phase.bytes_moved += static_cast<int64_t>(whole[i].nbytes());
    }
  });
  result.lower_bound = bound;
  compare(result, [&](size_t i) { return same_bits(whole[i], model_.tensors()[i].whole); });
  return result;
}

std::vector<std::string> Journey::replicated() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].layout().is_ragged()) names.push_back(model_.tensors()[i].name);
  }
  return names;
}

}  // namespace hyper_parallel::examples
