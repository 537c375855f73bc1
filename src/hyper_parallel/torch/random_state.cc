#include "hyper_parallel/torch/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/graph_task.h>

#include <bit>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/mesh_check.h"
#include "hyper_parallel/torch/mesh_communicator.h"
#include "hyper_parallel/torch/messages.h"

namespace hyper_parallel {
namespace {

std::optional<RandomStream> stream_of(const RandomPosition& position, const std::vector<int64_t>& ranks) {
  const auto found = position.meshes.find(ranks);
  const MeshDraws draws = found == position.meshes.end() ? MeshDraws{} : found->second;
  if (draws.own_seed) return RandomStream{*draws.own_seed, draws.next};
  const std::optional<uint64_t> seed = position.seed ? position.seed : draws.agreed_seed;
  if (!seed) return std::nullopt;
  return RandomStream{mixed_key(*seed, ranks), draws.next};
}

uint64_t torch_initial_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();  // a handle
  const std::lock_guard lock(generator.mutex());
  return generator.current_seed();
}

/// The seed of the mesh's first rank on all of them, handed on along a binomial tree over the positions.
uint64_t first_ranks_seed(const MeshCommunicator& mesh, at::Device device) {
  const at::NoGradGuard no_grad;
  const auto position = static_cast<uint64_t>(*mesh.mesh().position(mesh.rank()));
  const auto size = static_cast<uint64_t>(mesh.mesh().size());
  at::Tensor seed = at::full({1}, static_cast<int64_t>(torch_initial_seed()), at::dtype(at::kLong).device(device));
  const auto message = [&](uint64_t other) {
    return Message{mesh.group_rank(mesh.mesh().ranks()[static_cast<size_t>(other)]), seed};
  };
  if (position > 0) {
    const std::vector<Message> receives{message(position - std::bit_floor(position))};
    exchange_messages(mesh.group(), {}, receives);
  }
  std::vector<Message> sends;
  for (uint64_t step = position == 0 ? 1 : 2 * std::bit_floor(position); position + step < size; step *= 2) {
    sends.push_back(message(position + step));
  }
  exchange_messages(mesh.group(), sends, {});
  return static_cast<uint64_t>(seed.item<int64_t>());
}

/// A forward pass runs with gradients; within a backward pass only one that is computed again does, hooks do not.
void check_not_recomputing(const RandomState& state, std::string_view operation) {
  const bool is_recomputing = torch::autograd::get_current_graph_task_id() >= 0 && at::GradMode::is_enabled();
  HP_CHECK(!is_recomputing || state.is_replaying(), kUnimplemented, operation,
           ": a forward pass that is computed again in a backward pass would draw other numbers than before; give "
           "torch.utils.checkpoint use_reentrant=False and context_fn=hyper_parallel.replay_random");
}

std::string describe_stream(const RandomState& state, const DeviceMesh& mesh) {
  const RandomPosition position = state.position();
  const auto found = position.meshes.find(mesh.ranks());
  RandomPosition own{position.seed, {}};
  own.meshes[mesh.ranks()] = found == position.meshes.end() ? MeshDraws{} : found->second;
  return to_string(own);
}

void put_seed(std::string& text, std::string_view name, const std::optional<uint64_t>& seed) {
  if (seed) text += str_cat(" ", name, " ", static_cast<int64_t>(*seed));
}

std::optional<uint64_t> scan_seed(Scanner& scanner, std::string_view name) {
  if (!scanner.accept(name)) return std::nullopt;
  return static_cast<uint64_t>(scanner.integer());
}

}  // namespace

std::string to_string(const RandomPosition& position) {
  std::string text = position.seed ? str_cat("seed ", static_cast<int64_t>(*position.seed)) : "no seed";
  for (const auto& [ranks, draws] : position.meshes) {
    text += str_cat("; ", tuple_text(ranks));
    put_seed(text, "own", draws.own_seed);
    put_seed(text, "agreed", draws.agreed_seed);
    text += str_cat(" next ", static_cast<int64_t>(draws.next));
  }
  return text;
}

RandomPosition parse_random_position(std::string_view text) {
  Scanner scanner(text);
  RandomPosition position;
  if (!scanner.accept("no seed")) {
    scanner.expect("seed");
    position.seed = static_cast<uint64_t>(scanner.integer());
  }
  while (scanner.accept(";")) {
    std::vector<int64_t> ranks = scanner.integer_tuple();
    MeshDraws draws;
    draws.own_seed = scan_seed(scanner, "own");
    draws.agreed_seed = scan_seed(scanner, "agreed");
    scanner.expect("next");
    draws.next = static_cast<uint64_t>(scanner.integer());
    if (!position.meshes.emplace(std::move(ranks), draws).second) scanner.fail("each rank list once");
  }
  scanner.finish();
  return position;
}

void RandomState::manual_seed(uint64_t seed) {
  const std::lock_guard lock(mutex_);
  position_ = {seed, {}};
}

void RandomState::manual_seed(uint64_t seed, const DeviceMesh& mesh) {
  const std::lock_guard lock(mutex_);
  position_.meshes[mesh.ranks()] = {.own_seed = seed, .agreed_seed = std::nullopt, .next = 0};
}

void RandomState::restart() {
  const std::lock_guard lock(mutex_);
  for (auto& [ranks, draws] : position_.meshes) {
    draws.agreed_seed.reset();
    draws.next = 0;
  }
}

RandomPosition RandomState::position() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

void RandomState::set_position(RandomPosition position) {
  const std::lock_guard lock(mutex_);
  position_ = std::move(position);
}

RandomPosition RandomState::begin_replay(RandomPosition position) {
  const std::lock_guard lock(mutex_);
  for (const auto& [ranks, draws] : position_.meshes) {
    if (!draws.agreed_seed) continue;
    MeshDraws& replayed = position.meshes[ranks];
    if (!replayed.agreed_seed) replayed.agreed_seed = draws.agreed_seed;
  }
  ++replays_;
  return std::exchange(position_, std::move(position));
}

void RandomState::end_replay(RandomPosition before) {
  const std::lock_guard lock(mutex_);
  HP_CHECK(replays_ > 0, kFailedPrecondition, "end_replay: there is no replay to end");
  --replays_;
  position_ = std::move(before);
}

bool RandomState::is_replaying() const {
  const std::lock_guard lock(mutex_);
  return replays_ > 0;
}

std::optional<RandomStream> RandomState::peek(const DeviceMesh& mesh) const {
  const std::lock_guard lock(mutex_);
  return stream_of(position_, mesh.ranks());
}

std::optional<RandomStream> RandomState::take(const DeviceMesh& mesh) {
  const std::lock_guard lock(mutex_);
  const std::optional<RandomStream> stream = stream_of(position_, mesh.ranks());
  if (stream) ++position_.meshes[mesh.ranks()].next;
  return stream;
}

void RandomState::set_agreed_seed(const DeviceMesh& mesh, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  position_.meshes[mesh.ranks()].agreed_seed = seed;
}

RandomStream draw(const MeshCommunicator& mesh, at::Device device, std::string_view operation,
                  const std::function<std::string()>& describe) {
  HP_DCHECK(mesh.is_member());
  RandomState& state = mesh.random();
  check_mesh_together(
      mesh, operation, [&] { check_not_recomputing(state, operation); },
      [&] { return str_cat(describe(), "; random numbers: ", describe_stream(state, mesh.mesh())); });
  if (const auto stream = state.take(mesh.mesh())) return *stream;
  state.set_agreed_seed(mesh.mesh(), first_ranks_seed(mesh, device));
  const auto stream = state.take(mesh.mesh());
  HP_DCHECK(stream.has_value());
  return *stream;
}

}  // namespace hyper_parallel
