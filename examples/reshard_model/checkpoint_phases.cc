#include "examples/reshard_model/checkpoint_phases.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>

#include "examples/reshard_model/expected_part.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/torch/checkpoint.h"
#include "hyper_parallel/torch/group_exchange.h"

namespace hyper_parallel::examples {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Memory that shows whatever a load leaves out.
at::Tensor unwritten_like(const at::Tensor& whole, at::IntArrayRef sizes) {
  at::Tensor made = at::empty(sizes, whole.options().device(at::kCPU));
  if (made.nbytes() != 0) std::memset(made.mutable_data_ptr(), 0xA5, made.nbytes());
  return made;
}

/// The tensor as the loading ranks want it, still to be filled.
DTensor target_for(const at::Tensor& whole, const MeshCommunicator& mesh, const std::vector<int64_t>& units) {
  const std::vector<Placement> placements{with_more_dims(whole, units)};
  const DTensor shares = distribute(whole, mesh, placements);
  return DTensor::from_local(unwritten_like(whole, shares.local().sizes()), mesh, placements, whole.sizes().vec());
}

void print_verdict(const std::string& what, double seconds, int64_t exact, int64_t total) {
  std::cout << what << ", " << static_cast<int64_t>(seconds * 1e3) << " ms: bit-exact: " << exact << " of " << total
            << std::endl;
}

void check_all_exact(const std::vector<int64_t>& wrong, const Model& model) {
  for (size_t i = 0; i < wrong.size(); ++i) {
    HP_CHECK(wrong[i] == 0, kDataLoss, "tensor ", quoted_name(model.tensors()[i].name),
             " was loaded with other bits than the file has");
  }
}

}  // namespace

PhaseResult save_model(const Ranks& ranks, const Model& model, const std::vector<DTensor>& tensors,
                       const std::filesystem::path& directory) {
  StateDict state;
  for (size_t i = 0; i < tensors.size(); ++i) state.emplace(model.tensors()[i].name, tensors[i]);
  Checkpointer checkpointer(std::make_shared<GroupExchange>(ranks.group()));
  PhaseResult result{.name = str_cat("save from ", ranks.size(), " ranks, flushed"), .wrong = {}};
  result.tensors = std::ssize(tensors);
  result.bytes_moved = model.bytes();
  ranks.barrier();
  const auto start = std::chrono::steady_clock::now();
  save(state, directory, checkpointer);
  result.seconds = ranks.max(seconds_since(start));
  return result;
}

void load_distributed(const Options& options, const ProcessContext& process, const std::filesystem::path& directory) {
  at::set_num_threads(1);
  const std::vector<int64_t> units{2, 0, 1};
  const Model model(options.file);
  const Ranks ranks(options, process);
  const MeshCommunicator mesh(ranks.group(), DeviceMesh({process.size}, {"rank"}));
  std::vector<DTensor> targets;
  StateDict state;
  for (const ModelTensor& tensor : model.tensors()) {
    targets.push_back(target_for(tensor.whole, mesh, units));
    state.emplace(tensor.name, targets.back());
  }
  Checkpointer checkpointer(std::make_shared<GroupExchange>(ranks.group()));
  ranks.barrier();
  const auto start = std::chrono::steady_clock::now();
  load(state, directory, checkpointer);
  const double seconds = ranks.max(seconds_since(start));

  std::vector<int64_t> wrong;
  for (size_t i = 0; i < targets.size(); ++i) {
    wrong.push_back(same_bits(targets[i].local(), expected_part(targets[i], model.tensors()[i].whole)) ? 0 : 1);
  }
  wrong = ranks.sum(wrong);
  const int64_t exact = std::ranges::count(wrong, 0);
  if (process.rank == 0) {
    print_verdict(str_cat("loaded by ", process.size, " new processes, units ", tuple_text(units), ", one more dim"),
                  seconds, exact, std::ssize(wrong));
  }
  ranks.barrier();
  check_all_exact(wrong, model);
}

void load_plain(const Options& options, const std::filesystem::path& directory) {
  const Model model(options.file);
  std::vector<at::Tensor> targets;
  StateDict state;
  for (const ModelTensor& tensor : model.tensors()) {
    targets.push_back(unwritten_like(tensor.whole, tensor.whole.sizes()));
    state.emplace(tensor.name, targets.back());
  }
  Checkpointer checkpointer(std::make_shared<SingleExchange>());
  const auto start = std::chrono::steady_clock::now();
  load(state, directory, checkpointer);
  const double seconds = seconds_since(start);
  std::vector<int64_t> wrong;
  for (size_t i = 0; i < targets.size(); ++i) {
    wrong.push_back(same_bits(targets[i], model.tensors()[i].whole) ? 0 : 1);
  }
  print_verdict("loaded by one new process as plain tensors", seconds, std::ranges::count(wrong, 0), std::ssize(wrong));
  check_all_exact(wrong, model);
}

}  // namespace hyper_parallel::examples
