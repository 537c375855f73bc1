// What kinds of tensors a checkpoint stores and fills: element types, strides, lazy bits, autograd leaves, and those
// that it refuses.

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <memory>

#include "hyper_parallel/torch/checkpoint.h"
#include "hyper_parallel/torch/group_exchange.h"
#include "hyper_parallel/torch/tensor_planner.h"
#include "tests/support/temporary_folder.h"
#include "tests/threaded/both_paths.h"
#include "tests/threaded/parts.h"

namespace hyper_parallel::test {
namespace {

using Strings = std::vector<std::string>;

/// A job of one process with a folder to save into.
class LoneCheckpoint {
 public:
  void save(const at::Tensor& tensor) { hyper_parallel::save({{"w", tensor}}, folder_ / "c", checkpointer_); }

  void load(const at::Tensor& target, const LoadOptions& options = {}) {
    StateDict state = {{"w", target}};
    hyper_parallel::load(state, folder_ / "c", checkpointer_, options);
  }

  std::string save_error(const at::Tensor& tensor) {
    return error_of([&] { save(tensor); });
  }

  std::string load_error(const at::Tensor& target, const LoadOptions& options = {}) {
    return error_of([&] { load(target, options); });
  }

  bool is_empty() const { return folder_.names().empty(); }

 private:
  TemporaryFolder folder_;
  Checkpointer checkpointer_{std::make_shared<SingleExchange>()};
};

/// What `tensor` is after a save and a load into a new contiguous tensor.
at::Tensor stored(const at::Tensor& tensor) {
  LoneCheckpoint checkpoint;
  checkpoint.save(tensor);
  at::Tensor target = at::empty(tensor.sizes(), tensor.options().requires_grad(false));
  checkpoint.load(target);
  return target;
}

at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.contiguous().view(at::kByte); }

/// Twelve elements with any bits, NaN and others among them.
at::Tensor any_bits(at::ScalarType type, int64_t seed) {
  const auto width = static_cast<int64_t>(c10::elementSize(type));
  const at::Tensor bytes = (at::arange(12 * width, at::kLong) * 37 + 255 - seed).remainder(256).to(at::kByte);
  return type == at::kBool ? bytes.remainder(2).to(at::kBool) : bytes.view(type);
}

const std::vector<at::ScalarType> kTypes = {
    at::kBool,
    at::kByte,
    at::kChar,
    at::kShort,
    at::kInt,
    at::kLong,
    at::kUInt16,
    at::kUInt32,
    at::kUInt64,
    at::kHalf,
    at::kBFloat16,
    at::kFloat,
    at::kDouble,
    at::kComplexFloat,
    at::kFloat8_e5m2,
    at::kFloat8_e4m3fn,
    at::kFloat8_e8m0fnu,
    at::kFloat8_e4m3fnuz,
    at::kFloat8_e5m2fnuz,
};

TEST(CheckpointTensors, EveryDtype_ComesBackBitForBitInAnotherLayout) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer(std::make_shared<GroupExchange>(self.group));
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const auto ragged = parse_placements("RaggedShard((0,), (1, 2))");
    const int64_t begin = self.rank == 0 ? 0 : 4;
    const int64_t length = self.rank == 0 ? 4 : 8;
    StateDict source;
    StateDict target;
    for (const at::ScalarType type : kTypes) {
      const std::string name = c10::toString(type);
      const at::Tensor local = any_bits(type, 0).narrow(0, 6 * self.rank, 6);  // a view at an offset
      source.emplace(name, DTensor::from_local(local, mesh, {Shard(0)}, Shape{12}));
      target.emplace(name, DTensor::from_local(any_bits(type, 1).narrow(0, begin, length), mesh, ragged, Shape{12}));
    }
    save(source, folder / "c", checkpointer);
    load(target, folder / "c", checkpointer);
    for (const at::ScalarType type : kTypes) {
      SCOPED_TRACE(c10::toString(type));
      const at::Tensor& filled = std::get<DTensor>(target.at(c10::toString(type))).local();
      EXPECT_EQ(filled.scalar_type(), type);
      expect_equal(bytes_of(filled), bytes_of(any_bits(type, 0).narrow(0, begin, length)));
    }
  });
}

TEST(CheckpointTensors, ScalarsAndEmptyTensors_ComeBack) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{0, 4}, Shape{4, 0}, Shape{1, 1, 1}}) {
    const at::Tensor tensor = counted(shape, 1, 3);
    expect_equal(stored(tensor), tensor);
  }
}

TEST(CheckpointTensors, ScalarOnAMesh_ComesBackOnEveryRank) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer(std::make_shared<GroupExchange>(self.group));
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    save({{"w", laid_out(counted({}, 1, 3), mesh, "R")}}, folder / "c", checkpointer);
    StateDict state = {{"w", laid_out(counted({}), mesh, "R")}};
    load(state, folder / "c", checkpointer);
    expect_equal(std::get<DTensor>(state.at("w")).local(), counted({}, 1, 3));
  });
}

TEST(CheckpointTensors, SourceOfAnyStrides_IsStoredAsItReads) {
  const at::Tensor whole = counted({4, 6});
  const at::Tensor complex = at::complex(counted({3}).to(at::kFloat), counted({3}, 2, 1).to(at::kFloat));
  for (const at::Tensor& source :
       {whole.t(), whole.slice(1, 1, 6, 2), whole.select(1, 2), whole.slice(0, 2, 4), counted({3}).expand({2, 3}),
        whole.as_strided({3, 3}, {1, 1}, 2), counted({1, 2, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast),
        at::imag(complex.conj()), complex.conj(), complex.conj().expand({2, 3})}) {
    expect_equal(stored(source), source.resolve_conj().resolve_neg().contiguous());
  }
}

TEST(CheckpointTensors, ShardOfAnyStrides_IsStoredAndFilled) {
  const TemporaryFolder folder;
  run_ranks(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer(std::make_shared<GroupExchange>(self.group));
    const MeshCommunicator mesh(self.group, DeviceMesh({2}));
    const at::Tensor part = counted({6, 4}).slice(0, 3 * self.rank, 3 * self.rank + 3);
    const auto strided = [&](const at::Tensor& values) {
      return DTensor::from_local(values.t().clone(at::MemoryFormat::Contiguous).t(), mesh, {Shard(0)}, Shape{6, 4});
    };
    ASSERT_FALSE(strided(part).local().is_contiguous());
    save({{"w", strided(part)}}, folder / "c", checkpointer);
    StateDict state = {{"w", strided(at::zeros_like(part))}};
    load(state, folder / "c", checkpointer);
    expect_equal(std::get<DTensor>(state.at("w")).local(), part);
    StateDict whole = {{"w", at::zeros({6, 4}, at::kDouble)}};
    load(whole, folder / "c", checkpointer);
    expect_equal(std::get<at::Tensor>(whole.at("w")), counted({6, 4}));
  });
}

TEST(CheckpointTensors, TargetOfAnyStrides_IsFilledAndNothingBesideIt) {
  LoneCheckpoint checkpoint;
  checkpoint.save(counted({2, 3}, 1, 10));
  const at::Tensor transposed = at::zeros({3, 2}, at::kDouble).t();
  checkpoint.load(transposed);
  expect_equal(transposed, counted({2, 3}, 1, 10));

  const at::Tensor wide = at::full({2, 6}, -1.0, at::kDouble);
  checkpoint.load(wide.slice(1, 0, 6, 2));
  expect_equal(wide.slice(1, 0, 6, 2), counted({2, 3}, 1, 10));
  expect_equal(wide.slice(1, 1, 6, 2), at::full({2, 3}, -1.0, at::kDouble));

  const at::Tensor tall = at::full({4, 3}, -1.0, at::kDouble);
  checkpoint.load(tall.slice(0, 1, 3));  // contiguous, at an offset
  expect_equal(tall, at::cat({at::full({1, 3}, -1.0), counted({2, 3}, 1, 10), at::full({1, 3}, -1.0)}));
}

TEST(CheckpointTensors, TargetWithLazyBits_ReadsAsWhatWasStored) {
  const at::Tensor complex = at::complex(counted({3}).to(at::kFloat), counted({3}, 2, 1).to(at::kFloat));
  LoneCheckpoint checkpoint;
  checkpoint.save(complex);
  const at::Tensor conjugate = at::zeros({3}, at::kComplexFloat).conj();
  checkpoint.load(conjugate);
  EXPECT_TRUE(conjugate.is_conj());
  expect_equal(conjugate, complex);

  checkpoint.save(counted({3}).to(at::kFloat));
  const at::Tensor negative = at::imag(at::zeros({3}, at::kComplexFloat).conj());
  EXPECT_TRUE(negative.is_neg());
  checkpoint.load(negative);
  expect_equal(negative, counted({3}).to(at::kFloat));
}

TEST(CheckpointTensors, ExpandedTarget_IsRefusedOnEveryRankAndNothingIsTouched) {
  const TemporaryFolder folder;
  Strings texts(2);
  run_ranks(2, [&](const ThreadRank& self) {
    Checkpointer checkpointer(std::make_shared<GroupExchange>(self.group));
    save({{"a", at::ones({2})}, {"w", at::ones({2, 3})}}, folder / "c", checkpointer);
    const at::Tensor row = at::zeros({3});
    StateDict state = {{"a", at::zeros({2})}, {"w", self.rank == 1 ? row.expand({2, 3}) : at::zeros({2, 3})}};
    texts[static_cast<size_t>(self.rank)] = error_of([&] { load(state, folder / "c", checkpointer); });
    for (const std::string name : {"a", "w"}) {
      const at::Tensor& target = std::get<at::Tensor>(state.at(name));
      expect_equal(target, at::zeros_like(target));
    }
  });
  EXPECT_EQ(texts, Strings(2,
                           "InvalidArgument: planning the load failed on rank 1: checkpoint entry 'w' has elements "
                           "that share memory (an expanded or overlapping tensor), so it cannot be filled"));
}

TEST(CheckpointTensors, OverlappingTarget_IsRefusedAndAStridedOneIsFilled) {
  const TemporaryFolder folder;
  Checkpointer checkpointer(std::make_shared<SingleExchange>());
  save({{"w", at::arange(12).view({4, 3})}}, folder / "c", checkpointer);
  const at::Tensor memory = at::zeros({24}, at::kLong);
  StateDict overlapping = {{"w", memory.as_strided({4, 3}, {1, 1})}};
  EXPECT_THAT(error_of([&] { load(overlapping, folder / "c", checkpointer); }),
              ::testing::HasSubstr("has elements that share memory"));
  EXPECT_EQ(memory.count_nonzero().item<int64_t>(), 0);
  StateDict strided = {{"w", memory.as_strided({4, 3}, {1, 8})}};
  load(strided, folder / "c", checkpointer);
  expect_equal(std::get<at::Tensor>(strided.at("w")), at::arange(12).view({4, 3}));
}

TEST(CheckpointTensors, LeafTarget_IsFilledAndItsVersionMoves) {
  LoneCheckpoint checkpoint;
  checkpoint.save(counted({2, 3}));
  for (const at::Tensor& storage : {at::ones({2, 3}, at::kDouble), at::ones({3, 2}, at::kDouble).t()}) {
    const at::Tensor leaf = storage.detach().requires_grad_();
    const at::Tensor square = (leaf * leaf).sum();
    const auto version = leaf._version();
    checkpoint.load(leaf);
    expect_equal(leaf.detach(), counted({2, 3}));
    EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad());
    EXPECT_GT(leaf._version(), version);
    // What the graph saved is no longer there, and autograd knows.
    EXPECT_THROW(square.backward(), c10::Error);
    leaf.sum().backward();
    expect_equal(leaf.grad(), at::ones({2, 3}, at::kDouble));
  }
}

TEST(CheckpointTensors, InferenceTarget_IsFilled) {
  LoneCheckpoint checkpoint;
  checkpoint.save(counted({2, 3}));
  const auto made = [] {
    const c10::InferenceMode inference;
    return std::array{at::zeros({2, 3}, at::kDouble), at::zeros({3, 2}, at::kDouble).t()};
  }();
  for (const at::Tensor& target : made) {
    ASSERT_TRUE(target.is_inference());
    checkpoint.load(target);
    EXPECT_TRUE(at::equal(target, counted({2, 3})));
  }
}

TEST(CheckpointTensors, OtherDtype_IsConvertedOnlyWhereAllowedByName) {
  LoneCheckpoint checkpoint;
  checkpoint.save(floats({1.5F, -2, 1e30F}));
  const at::Tensor half = at::zeros({3}, at::kBFloat16);
  const std::string refusal =
      "InvalidArgument: planning the load failed on rank 0: tensor 'w' is stored as F32, but wanted as BF16; entries "
      "in "
      "allow_cast are converted";
  EXPECT_EQ(checkpoint.load_error(half), refusal);
  EXPECT_EQ(checkpoint.load_error(half, {{"w"}, {"w"}, {"other"}}), refusal);
  expect_equal(half, at::zeros({3}, at::kBFloat16));
  checkpoint.load(half, {{}, {}, {"w"}});
  expect_equal(half, floats({1.5F, -2, 1e30F}).to(at::kBFloat16));

  const at::Tensor strided = at::zeros({6}, at::kDouble).slice(0, 0, 6, 2);
  checkpoint.load(strided, {{}, {}, {"*"}});
  expect_equal(strided, floats({1.5F, -2, 1e30F}).to(at::kDouble));
}

TEST(CheckpointTensors, OtherShape_RaisesAndTheTargetStays) {
  LoneCheckpoint checkpoint;
  checkpoint.save(at::ones({2, 3}));
  const at::Tensor target = at::zeros({3, 2});
  EXPECT_EQ(checkpoint.load_error(target, {{"*"}, {"*"}, {"*"}}),
            "InvalidArgument: planning the load failed on rank 0: tensor 'w' is stored as F32 (2, 3), but wanted as "
            "F32 (3, 2); a load never changes a shape");
  expect_equal(target, at::zeros({3, 2}));
}

/// A tensor as Python's wrapper subclasses are: without a storage.
at::Tensor wrapper_subclass() {
  const c10::DispatchKeySet keys({c10::DispatchKey::CPU, c10::DispatchKey::Python});
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(keys, caffe2::TypeMeta::Make<float>(), c10::Device(at::kCPU));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({2});
  return tensor;
}

at::Tensor with_freed_storage() {
  at::Tensor tensor = at::ones({2, 3});
  tensor.storage().set_nbytes(0);
  return tensor;
}

TEST(CheckpointTensors, WhatIsNotPlainMemory_IsRefusedByNameBeforeAnythingIsWritten) {
  LoneCheckpoint checkpoint;
  const auto refusal = [](const std::string& reason) {
    return "Type: planning the save failed on rank 0: checkpoint entry 'w' " + reason;
  };
  const std::string unknown = ", which the safetensors format does not know; convert it first";
  EXPECT_EQ(checkpoint.save_error(at::ones({2}, at::kComplexDouble)), refusal("has dtype ComplexDouble" + unknown));
  EXPECT_EQ(checkpoint.save_error(at::empty({2}, at::kComplexHalf)), refusal("has dtype ComplexHalf" + unknown));
  const std::string layouts = refusal("is a sparse, nested or quantized tensor; only strided tensors can be stored");
  EXPECT_EQ(checkpoint.save_error(at::ones({2, 2}).to_sparse()), layouts);
  EXPECT_EQ(checkpoint.save_error(at::ones({2, 2}).to_sparse_csr()), layouts);
  EXPECT_EQ(checkpoint.save_error(at::_nested_tensor_from_tensor_list({at::ones({1}), at::ones({2})})), layouts);
  EXPECT_EQ(checkpoint.save_error(at::quantize_per_tensor(at::ones({2}), 1.0, 0, at::kQInt8)), layouts);
  EXPECT_EQ(
      checkpoint.save_error(wrapper_subclass()),
      refusal("is of a tensor subclass whose elements this library cannot read; save the plain tensors that it is "
              "made of"));
  EXPECT_EQ(checkpoint.save_error(at::empty({2}, at::TensorOptions(at::kMeta))),
            refusal("is a meta tensor, which has no elements"));
  EXPECT_EQ(checkpoint.save_error(at::Tensor()), refusal("is an undefined tensor"));
  EXPECT_EQ(checkpoint.save_error(with_freed_storage()),
            refusal("has no memory for its elements (its storage holds 0 bytes)"));
  EXPECT_NE(checkpoint.save_error(at::_efficientzerotensor({2})).find("'w' has no memory for its elements"),
            std::string::npos);
  EXPECT_TRUE(checkpoint.is_empty());
}

TEST(CheckpointTensors, TargetThatIsNotPlainMemory_IsRefusedByName) {
  LoneCheckpoint checkpoint;
  checkpoint.save(at::ones({2}));
  const auto refusal = [](const std::string& reason) {
    return "Type: planning the load failed on rank 0: checkpoint entry 'w' " + reason;
  };
  EXPECT_EQ(checkpoint.load_error(at::ones({2}).to_sparse()),
            refusal("is a sparse, nested or quantized tensor; only strided tensors can be stored"));
  EXPECT_EQ(checkpoint.load_error(at::empty({2}, at::TensorOptions(at::kMeta))),
            refusal("is a meta tensor, which has no elements"));
  EXPECT_EQ(checkpoint.load_error(at::Tensor()), refusal("is an undefined tensor"));
  EXPECT_EQ(checkpoint.load_error(with_freed_storage()),
            refusal("has no memory for its elements (its storage holds 0 bytes)"));
}

TEST(CheckpointTensors, FaultOfOneRanksTensor_RaisesOnAll) {
  const TemporaryFolder folder;
  Strings texts(3);
  run_ranks(3, [&](const ThreadRank& self) {
    Checkpointer checkpointer(std::make_shared<GroupExchange>(self.group));
    const at::Tensor tensor = self.rank == 1 ? at::ones({2}, at::kComplexDouble) : at::ones({2}, at::kComplexFloat);
    texts[static_cast<size_t>(self.rank)] = error_of([&] { async_save({{"w", tensor}}, folder / "c", checkpointer); });
  });
  EXPECT_EQ(texts, Strings(3,
                           "Type: planning the save failed on rank 1: checkpoint entry 'w' has dtype ComplexDouble, "
                           "which the safetensors format does not know; convert it first"));
  EXPECT_TRUE(folder.names().empty());
}

TEST(TensorSavePlanner, ContiguousTensor_IsReadInPlaceAndKeptAlive) {
  at::Tensor tensor = counted({4}).slice(0, 1, 4);
  const void* const place = tensor.const_data_ptr();
  auto planner = std::make_unique<TensorSavePlanner>(TensorState{{{"w", tensor}}, {}, {}});
  const SavePlan plan = planner->build_local_plan();
  ASSERT_EQ(plan.tensors.size(), 1U);
  const HeldBytes held = planner->get_data({&plan.tensors[0], 0});
  EXPECT_EQ(static_cast<const void*>(held.bytes.data()), place);
  EXPECT_EQ(held.bytes.size(), 24U);
  planner.reset();
  tensor.reset();
  EXPECT_EQ(*reinterpret_cast<const double*>(held.bytes.data()), 1.0);
}

TEST(TensorSavePlanner, NameTwice_RaisesWhilePlanningSoThatPeersHearOfIt) {
  TensorSavePlanner planner({{{"w", at::ones({1})}, {"v", at::ones({1})}, {"w", at::ones({1})}}, {}, {}});
  EXPECT_EQ(error_of([&] { planner.build_local_plan(); }), "InvalidArgument: checkpoint entry 'w' is there twice");
}

TEST(TensorSavePlanner, BoxThatIsNotThisRanks_IsRefused) {
  TensorSavePlanner planner({{{"w", at::ones({4})}}, {}, {}});
  const PlannedTensor other{"w", DType::kF32, {4}, {{{1}, {2}}}};
  EXPECT_EQ(error_of([&] { planner.get_data({&other, 0}); }),
            "InvalidArgument: checkpoint entry 'w': this rank does not hold the box (1,)+(2,)");
  const PlannedTensor unknown{"x", DType::kF32, {4}, {{{0}, {4}}}};
  EXPECT_EQ(error_of([&] { planner.get_data({&unknown, 0}); }),
            "InvalidArgument: checkpoint entry 'x' is not among those to save");
}

}  // namespace
}  // namespace hyper_parallel::test
