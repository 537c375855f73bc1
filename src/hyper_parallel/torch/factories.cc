#include "hyper_parallel/torch/factories.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/mesh_check.h"
#include "hyper_parallel/torch/operation_table.h"
#include "hyper_parallel/torch/random_local.h"
#include "hyper_parallel/torch/random_state.h"

namespace hyper_parallel {
namespace {

/// What is asked for, found good by facts that all ranks have.
struct Request {
  std::string_view operation;
  std::vector<int64_t> shape;
  MeshCommunicator mesh;
  Layout layout;
  at::TensorOptions options;
};

Request checked(std::string_view operation, std::vector<int64_t> shape, const MeshCommunicator& mesh,
                std::vector<Placement> placements, const at::TensorOptions& options) {
  const Layout given(mesh.mesh(), std::move(placements));
  HP_CHECK(!given.is_ragged(), kUnimplemented, operation, ": placements ", short_text(given.placements()),
           " are ragged and ragged factories are not supported; make it with Shard(0) and redistribute() it");
  HP_CHECK(!given.has_partial(), kInvalidArgument, operation, ": placements ", short_text(given.placements()),
           " hold Partial, but a new tensor is no share of a pending reduction");
  Layout layout = given.folded(static_cast<int64_t>(shape.size()));
  check_shape(layout, shape);
  HP_CHECK(options.layout() == at::kStrided, kUnimplemented, operation, ": layout ", c10::str(options.layout()),
           " is not supported; a DTensor's parts are dense");
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  HP_CHECK(!options.requires_grad() || at::isFloatingType(dtype) || at::isComplexType(dtype), kInvalidArgument,
           operation, ": requires_grad with dtype ", c10::toString(dtype),
           ", but only floating point and complex tensors have gradients");
  return {operation, std::move(shape), mesh, std::move(layout), options};
}

/// A leaf of the local tensor that `make` makes of its sizes and options.
template <typename Make>
DTensor made(Request request, const Make& make) {
  const LocalPart part = local_part(request.layout, request.shape, request.mesh.rank());
  at::Tensor local = [&] {
    // As torch's own factories: what fills the tensor is no write of the user's, its version stays 0.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return make(part, request.options.requires_grad(false));
  }();
  if (request.options.requires_grad()) local.requires_grad_();
  return DTensor::unchecked(std::move(local), request.mesh, request.layout, std::move(request.shape));
}

template <typename Make>
DTensor made_constant(Request request, const Make& make) {
  const std::string_view operation = request.operation;
  DTensor tensor = made(std::move(request), [&](const LocalPart& part, const at::TensorOptions& options) {
    return make(at::IntArrayRef(part.sizes.data(), part.sizes.size()), options);
  });
  check_mesh_together(
      tensor.mesh(), operation, [] {}, [&] { return describe(tensor.layout(), tensor.shape(), tensor.local()); });
  return tensor;
}

using MakeRandom = at::Tensor (*)(const RandomStream&, const LocalPart&, const at::TensorOptions&);

DTensor made_random(Request request, MakeRandom make) {
  check_random_dtype(request.operation, c10::typeMetaToScalarType(request.options.dtype()));
  return made(request, [&](const LocalPart& part, const at::TensorOptions& options) {
    at::Tensor nothing = at::empty({0}, options);
    if (!request.mesh.is_member()) return nothing;
    nothing.requires_grad_(request.options.requires_grad());
    const RandomStream stream = draw(request.mesh, options.device(), request.operation,
                                     [&] { return describe(request.layout, request.shape, nothing); });
    return make(stream, part, options);
  });
}

Request like_request(std::string_view operation, const DTensor& like, const at::TensorOptions& options) {
  if (like.layout().is_ragged()) refuse_operation(operation, like);
  at::TensorOptions own = at::TensorOptions().dtype(like.dtype()).device(like.local().device());
  return checked(operation, like.shape(), like.mesh(), like.placements(), own.merge_in(options));
}

at::TensorOptions options_for(const at::Scalar& value, const at::TensorOptions& options) {
  if (options.has_dtype() || value.isFloatingPoint()) return options;
  if (value.isComplex()) return options.dtype(c10::toComplexType(c10::get_default_dtype_as_scalartype()));
  return options.dtype(value.isBoolean() ? at::kBool : at::kLong);
}

}  // namespace

DTensor zeros(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
              const at::TensorOptions& options) {
  return made_constant(checked("zeros", std::move(shape), mesh, std::move(placements), options),
                       [](at::IntArrayRef sizes, const at::TensorOptions& own) { return at::zeros(sizes, own); });
}

DTensor ones(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
             const at::TensorOptions& options) {
  return made_constant(checked("ones", std::move(shape), mesh, std::move(placements), options),
                       [](at::IntArrayRef sizes, const at::TensorOptions& own) { return at::ones(sizes, own); });
}

DTensor empty(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
              const at::TensorOptions& options) {
  return made_constant(checked("empty", std::move(shape), mesh, std::move(placements), options),
                       [](at::IntArrayRef sizes, const at::TensorOptions& own) { return at::empty(sizes, own); });
}

DTensor full(std::vector<int64_t> shape, const at::Scalar& value, const MeshCommunicator& mesh,
             std::vector<Placement> placements, const at::TensorOptions& options) {
  return made_constant(
      checked("full", std::move(shape), mesh, std::move(placements), options_for(value, options)),
      [&](at::IntArrayRef sizes, const at::TensorOptions& own) { return at::full(sizes, value, own); });
}

DTensor rand(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
             const at::TensorOptions& options) {
  return made_random(checked("rand", std::move(shape), mesh, std::move(placements), options), &uniform_local);
}

DTensor randn(std::vector<int64_t> shape, const MeshCommunicator& mesh, std::vector<Placement> placements,
              const at::TensorOptions& options) {
  return made_random(checked("randn", std::move(shape), mesh, std::move(placements), options), &normal_local);
}

DTensor rand_like(const DTensor& like, const at::TensorOptions& options) {
  return made_random(like_request("rand_like", like, options), &uniform_local);
}

DTensor randn_like(const DTensor& like, const at::TensorOptions& options) {
  return made_random(like_request("randn_like", like, options), &normal_local);
}

}  // namespace hyper_parallel
