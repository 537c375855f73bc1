#include "hyper_parallel/torch/tensor_planner.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/torch/scalar_dtype.h"

namespace hyper_parallel {
namespace {

std::string entry_text(std::string_view name) { return str_cat("checkpoint entry ", quoted_name(name)); }

const at::Tensor& local_of(const NamedTensor& named) {
  const auto* distributed = std::get_if<DTensor>(&named.tensor);
  return distributed != nullptr ? distributed->local() : std::get<at::Tensor>(named.tensor);
}

Dims shape_of(const NamedTensor& named) {
  const auto* distributed = std::get_if<DTensor>(&named.tensor);
  if (distributed != nullptr) return Dims(distributed->shape());
  const auto sizes = std::get<at::Tensor>(named.tensor).sizes();
  return Dims(std::span<const int64_t>(sizes.data(), sizes.size()));
}

bool is_ragged(const NamedTensor& named) {
  const auto* distributed = std::get_if<DTensor>(&named.tensor);
  return distributed != nullptr && std::ranges::any_of(distributed->placements(), [](const Placement& placement) {
           return std::holds_alternative<RaggedShard>(placement);
         });
}

/// What this rank holds of the tensor. A rank outside the mesh holds nothing.
Region region_of_entry(const NamedTensor& named) {
  const auto* distributed = std::get_if<DTensor>(&named.tensor);
  if (distributed == nullptr) return region_of(whole_box(shape_of(named)));
  const auto coordinate = distributed->mesh().mesh().coordinate(distributed->mesh().rank());
  const Distribution distribution(distributed->layout(), Dims(distributed->shape()));
  if (coordinate.has_value()) return distribution.owned(*coordinate);
  return {whole_box(distribution.shape()), {0, 0}};
}

void check_not_partial(const NamedTensor& named, std::string_view advice) {
  const auto* distributed = std::get_if<DTensor>(&named.tensor);
  if (distributed == nullptr) return;
  for (const Placement& placement : distributed->placements()) {
    HP_CHECK(!std::holds_alternative<Partial>(placement), kInvalidArgument, entry_text(named.name), " has placement ",
             to_string(placement), ": its values are still to be reduced; ", advice);
  }
}

/// False if the storage was resized under the tensor, as sharding libraries do to free parameters that are not in use.
bool has_its_elements(const at::Tensor& tensor) {
  const size_t bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                                        static_cast<size_t>(tensor.storage_offset()));
  return tensor.numel() == 0 || bytes <= tensor.storage().nbytes();
}

/// The stored type of the entry's elements; throws for a tensor whose elements cannot be read as plain memory.
DType checked_dtype(const NamedTensor& named) {
  const at::Tensor& local = local_of(named);
  HP_CHECK(local.defined(), kType, entry_text(named.name), " is an undefined tensor");
  HP_CHECK(local.layout() == at::kStrided && !local.is_nested() && !local.is_quantized(), kType, entry_text(named.name),
           " is a sparse, nested or quantized tensor; only strided tensors can be stored");
  HP_CHECK(!local.key_set().has(c10::DispatchKey::Python) && local.has_storage(), kType, entry_text(named.name),
           " is of a tensor subclass whose elements this library cannot read; save the plain tensors that it is made "
           "of");
  HP_CHECK(!local.is_meta(), kType, entry_text(named.name), " is a meta tensor, which has no elements");
  HP_CHECK(!local._is_zerotensor() && has_its_elements(local), kType, entry_text(named.name),
           " has no memory for its elements (its storage holds ", local.storage().nbytes(), " bytes)");
  const auto dtype = stored_dtype(local.scalar_type());
  HP_CHECK(dtype.has_value(), kType, entry_text(named.name), " has dtype ", c10::toString(local.scalar_type()),
           ", which the safetensors format does not know; convert it first");
  return *dtype;
}

/// The tensor's elements as plain, row-major host memory: itself, or a copy.
at::Tensor host_elements(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

/// True unless every element surely has memory of its own: each stride must reach past all that the smaller ones reach.
bool may_share_elements(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) == 0) return false;
    if (tensor.size(d) > 1) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::ranges::sort(dims);
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

/// The torch type of what is stored under the entry's name; its own where nothing is.
at::ScalarType stored_type_of(const CheckpointMetadata& metadata, const NamedTensor& named) {
  const StoredTensor* stored = metadata.find_tensor(named.name);
  if (stored == nullptr) return local_of(named).scalar_type();
  const auto type = scalar_type(stored->dtype());
  HP_CHECK(type.has_value(), kUnimplemented, entry_text(named.name), " is stored as ", stored->dtype(),
           ", which torch has no dtype for");
  return *type;
}

bool is_plain_host_memory(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

TensorSavePlanner::TensorSavePlanner(TensorState state) : state_(std::move(state)) {
  for (size_t i = 0; i < state_.tensors.size(); ++i) by_name_.emplace(state_.tensors[i].name, i);
}

SavePlan TensorSavePlanner::build_local_plan() {
  SavePlan plan;
  plan.tensors.reserve(state_.tensors.size());
  for (const NamedTensor& named : state_.tensors) {
    HP_CHECK(&named == &state_.tensors[by_name_.at(named.name)], kInvalidArgument, entry_text(named.name),
             " is there twice");
    check_not_partial(named, "redistribute it before saving");
    const DType dtype = checked_dtype(named);
    plan.tensors.push_back(planned_tensor(named.name, dtype, shape_of(named), region_of_entry(named)));
  }
  plan.values = state_.values;
  plan.structure = state_.structure;
  return plan;
}

HeldBytes TensorSavePlanner::get_data(const WriteItem& item) {
  const auto found = by_name_.find(item.tensor->name);
  HP_CHECK(found != by_name_.end(), kInvalidArgument, entry_text(item.tensor->name), " is not among those to save");
  const NamedTensor& named = state_.tensors[found->second];
  const at::Tensor& local = local_of(named);
  // Boxes of a run lie one after the other in local storage; the plan may name a part of them.
  const std::vector<Box> boxes = region_boxes(region_of_entry(named));
  int64_t first = 0;
  const auto box = std::ranges::find_if(boxes, [&](const Box& own) {
    if (own == item.extent()) return true;
    first += own.numel();
    return false;
  });
  HP_CHECK(box != boxes.end(), kInvalidArgument, entry_text(named.name), ": this rank does not hold the box ",
           to_string(item.extent()));
  const bool in_place = is_plain_host_memory(local);
  at::Tensor elements = in_place ? local.detach() : local.detach().reshape({-1}).narrow(0, first, box->numel());
  if (!in_place) elements = host_elements(elements);
  const auto width = static_cast<int64_t>(elements.element_size());
  const auto* begin = static_cast<const std::byte*>(elements.const_data_ptr()) + (in_place ? first * width : 0);
  return {{begin, static_cast<size_t>(box->numel() * width)}, std::make_shared<at::Tensor>(std::move(elements))};
}

bool TensorSavePlanner::may_cache_plan() const { return std::ranges::none_of(state_.tensors, is_ragged); }

TensorLoadPlanner::TensorLoadPlanner(std::vector<NamedTensor> targets, LoadOptions options)
    : targets_(std::move(targets)), options_(std::move(options)) {}

LoadPlan TensorLoadPlanner::build_local_plan(const CheckpointMetadata& metadata) {
  places_.clear();
  by_name_.clear();
  std::vector<LoadTarget> wanted;
  wanted.reserve(targets_.size());
  for (const NamedTensor& named : targets_) {
    HP_CHECK(by_name_.emplace(named.name, wanted.size()).second, kInvalidArgument, entry_text(named.name),
             " is there twice");
    check_not_partial(named, "load into another layout");
    const DType dtype = checked_dtype(named);
    HP_CHECK(!may_share_elements(local_of(named)), kInvalidArgument, entry_text(named.name),
             " has elements that share memory (an expanded or overlapping tensor), so it cannot be filled");
    wanted.push_back(load_target(named.name, dtype, shape_of(named), region_of_entry(named)));
    places_.push_back({wanted.back(), stored_type_of(metadata, named), at::Tensor(), false});
  }
  return plan_load(metadata, std::move(wanted), options_);
}

TargetView TensorLoadPlanner::acquire_tensor(const LoadPlan& plan, const ReadItem& item) {
  // By name: a plan that somebody else made may leave targets out or order them otherwise.
  const LoadTarget& wanted = plan.targets.at(static_cast<size_t>(item.target));
  const auto found = by_name_.find(wanted.name);
  HP_CHECK(found != by_name_.end(), kInvalidArgument, entry_text(wanted.name),
           " is in the load plan but not among this planner's targets");
  Place& place = places_[found->second];
  HP_CHECK(wanted.shape == place.wanted.shape && wanted.boxes == place.wanted.boxes, kInvalidArgument,
           entry_text(wanted.name), " has another shape or other boxes in the load plan than this rank holds");
  const at::Tensor& local = local_of(targets_[found->second]);
  const bool direct = is_plain_host_memory(local) && place.stored == local.scalar_type();
  if (!place.is_touched) {
    place.is_touched = true;
    if (!direct) place.staged = at::empty({local.numel()}, at::TensorOptions().dtype(place.stored));
    // Filled behind autograd's back, so the version that saved tensors are checked against has to move.
    if (direct && !local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
  }
  const at::Tensor& memory = direct ? local : place.staged;
  auto* begin = static_cast<std::byte*>(memory.unsafeGetTensorImpl()->mutable_data());
  return {{begin, static_cast<size_t>(memory.nbytes())}, view_in_target(item, wanted), nullptr};
}

void TensorLoadPlanner::finish() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].staged.defined()) continue;
    const at::Tensor& local = local_of(targets_[i]);
    local.detach().copy_(places_[i].staged.view(local.sizes()));
    places_[i].staged = at::Tensor();
  }
}

}  // namespace hyper_parallel
