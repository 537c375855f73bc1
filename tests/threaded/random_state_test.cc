// The state behind random DTensors: seeds, positions and replays.

#include "hyper_parallel/torch/random_state.h"

#include <torch/csrc/autograd/custom_function.h>

#include "hyper_parallel/torch/dropout.h"
#include "hyper_parallel/torch/factories.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/random_support.h"

namespace hyper_parallel::test {
namespace {

/// y = x, whose backward computes its forward pass again, as activation checkpointing does.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::function<void()>& again) {
    context->saved_data["again"] = reinterpret_cast<int64_t>(&again);
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode with_gradients(true);
    (*reinterpret_cast<const std::function<void()>*>(context->saved_data["again"].toInt()))();
    return {gradients[0], at::Tensor()};
  }
};

TEST(RandomState, ADrawThatIsComputedAgain_RaisesWithoutAReplay) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    mesh.random().manual_seed(kSeed);
    const DTensor input = ones({6}, mesh, {Shard(0)});
    const RandomPosition before = mesh.random().position();
    const at::Tensor mask = dropout(input, 0.5).local();
    std::string error;
    std::string of_rand;
    at::Tensor replayed;
    const std::function<void()> again = [&] {
      error = error_of([&] { dropout(input, 0.5); });
      of_rand = error_of([&] { rand({3}, mesh, {Shard(0)}); });
      RandomPosition stood = mesh.random().begin_replay(before);
      replayed = dropout(input, 0.5).local();
      mesh.random().end_replay(std::move(stood));
    };
    Recomputed::apply(at::ones({1}).requires_grad_(), again).sum().backward();
    EXPECT_EQ(
        error,
        "Unimplemented: dropout: a forward pass that is computed again in a backward pass would draw other numbers "
        "than before; give torch.utils.checkpoint use_reentrant=False and "
        "context_fn=hyper_parallel.replay_random");
    EXPECT_TRUE(of_rand.starts_with("Unimplemented: rand: a forward pass that is computed again")) << of_rand;
    expect_equal(replayed, mask);
    EXPECT_EQ(mesh.random().peek(mesh.mesh())->number, 1U);
  });
}

TEST(RandomState, AReplay_KeepsTheSeedAgreedOnSince) {
  run_ranks(2, [](const ThreadRank& self) {
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const RandomPosition before = mesh.random().position();
    const at::Tensor drawn = rand({6}, mesh, {Replicate{}}).local();
    RandomPosition stood = mesh.random().begin_replay(before);
    EXPECT_TRUE(mesh.random().is_replaying());
    EXPECT_NE(mesh.random().peek(mesh.mesh()), std::nullopt);
    expect_equal(rand({6}, mesh, {Replicate{}}).local(), drawn);
    mesh.random().end_replay(std::move(stood));
    EXPECT_FALSE(mesh.random().is_replaying());
    EXPECT_EQ(mesh.random().peek(mesh.mesh())->number, 1U);
    EXPECT_EQ(error_of([&] { mesh.random().end_replay({}); }),
              "FailedPrecondition: end_replay: there is no replay to end");
  });
}

TEST(RandomState, Text_ReadsBack) {
  const DeviceMesh pair({2});
  RandomState state;
  EXPECT_EQ(to_string(state.position()), "no seed");
  state.set_agreed_seed(DeviceMesh({1}, {}, {5}), 9);
  state.manual_seed(7, DeviceMesh({2}, {}, {3, 2}));
  EXPECT_EQ(to_string(state.position()), "no seed; (3, 2) own 7 next 0; (5,) agreed 9 next 0");
  EXPECT_EQ(parse_random_position(to_string(state.position())), state.position());
  state.manual_seed(~uint64_t{0});
  state.take(pair);
  EXPECT_EQ(to_string(state.position()), "seed -1; (0, 1) next 1");
  RandomState other;
  other.set_position(parse_random_position(to_string(state.position())));
  EXPECT_EQ(other.take(pair), state.take(pair));
}

TEST(RandomState, OtherTexts_Raise) {
  for (const char* text : {"", "seed", "seed 1; (0, 1)", "seed 1; (0, 1) next", "seed 1;", "no seed (0,) next 1",
                           "seed 1; (0,) next 1; (0,) next 2", "seed 99999999999999999999", "seed 1 and more"}) {
    EXPECT_TRUE(error_of([&] { parse_random_position(text); }).starts_with("InvalidArgument: ")) << text;
  }
}

TEST(RandomState, Restart_KeepsGivenSeedsAlone) {
  const DeviceMesh pair({2});
  const DeviceMesh single({1}, {}, {3});
  RandomState state;
  state.set_agreed_seed(pair, 4);
  state.manual_seed(8, single);
  state.take(pair);
  state.take(single);
  state.restart();
  EXPECT_EQ(state.peek(pair), std::nullopt);
  EXPECT_EQ(state.peek(single), (RandomStream{8, 0}));
  state.manual_seed(1);
  EXPECT_EQ(state.peek(single), (RandomStream{mixed_key(1, single.ranks()), 0}));
  state.take(single);
  state.restart();
  EXPECT_EQ(state.peek(single), (RandomStream{mixed_key(1, single.ranks()), 0}));
}

}  // namespace
}  // namespace hyper_parallel::test
