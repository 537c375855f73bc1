#pragma once

// DTensor: a tensor of logical shape `shape()` spread over the ranks of a mesh, as a C++ value.
//
// Each rank holds its part as an ordinary tensor, `local()`:
//
//   RaggedShard     1-D, contiguous, this rank's run of the row-major tensor; the logical shape lives here alone
//   otherwise       N-D, the sizes of this rank's box
//   outside mesh    a tensor without elements; such a rank enters no collective
//
// Invariants: the local tensor has exactly the size that layout, shape and rank say; shape, dtype and requires_grad are
// the same on every rank. The autograd graph lives on the local tensors (`redistribute_local.h` has the rules). A
// DTensor is a handle as at::Tensor is: copies share storage and graph.

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hyper_parallel/layout/layout.h"
#include "hyper_parallel/torch/mesh_communicator.h"

namespace hyper_parallel {

class ExtremeTies;
class GradientSum;

class DTensor {
 public:
  /// Wraps this rank's `local` part, without a copy, of a tensor of logical `shape`.
  ///
  /// `shape` is mandatory with RaggedShard. Without it and with Shard the ranks tell each other their local sizes (a
  /// message to each peer), because a shape guessed from one rank's size would differ between ranks; pass it in hot
  /// paths. Replicas are taken to agree.
  ///
  /// Throws kInvalidArgument: placements that do not make a Layout or do not fit the shape, a ragged local that is not
  /// 1-D, contiguous and of the rank's size, a local of a size that breaks the Shard rule, no shape with RaggedShard. A
  /// fault of one rank's local raises there; with HYPER_PARALLEL_CHECK=1 on every rank at once. kOutOfRange: a Shard
  /// dim. kType: local undefined.
  static DTensor from_local(const at::Tensor& local, const MeshCommunicator& mesh, std::vector<Placement> placements,
                            const std::optional<std::vector<int64_t>>& shape = std::nullopt);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t ndim() const { return static_cast<int64_t>(shape_.size()); }
  /// The number of elements of the logical tensor.
  int64_t numel() const;
  at::ScalarType dtype() const { return local_.scalar_type(); }
  bool requires_grad() const { return local_.requires_grad(); }
  DTensor& requires_grad_();

  const Layout& layout() const { return layout_; }
  const std::vector<Placement>& placements() const { return layout_.placements(); }
  const MeshCommunicator& mesh() const { return communicator_; }
  /// This rank's storage, inside the graph: what an operation of the library works on. To leave, use `to_local`.
  const at::Tensor& local() const { return local_; }

  /// This rank's part for use outside, differentiable. The gradients that come back are summed over ranks on Replicate
  /// dims by default (`leaving_layout`); `grad_placements` says otherwise: Replicate() means that all ranks compute the
  /// same loss. Throws kInvalidArgument for grad_placements that are not as many as mesh dims, or neither the placement
  /// itself nor, on Replicate and Partial dims, Replicate, Partial(sum) or Partial(avg).
  ///
  /// Where the gradient has to be summed the result is an output of an autograd function that shares storage with
  /// `local()`: as with torch's DTensor, autograd refuses to write it in place. Write without gradients, or clone it.
  at::Tensor to_local(const std::optional<std::vector<Placement>>& grad_placements = std::nullopt) const;

  /// The same tensor laid out otherwise, differentiable. An equal layout returns this DTensor and communicates nothing.
  /// Throws as `plan_redistribution`, before any communication and alike on all ranks.
  DTensor redistribute(std::vector<Placement> placements) const;
  /// The same onto another mesh over the same ranks, for normal layouts; throws as above.
  DTensor redistribute(const DeviceMesh& mesh, std::vector<Placement> placements) const;

  /// The whole tensor on every rank of the mesh (outside the mesh: no elements). Leaves as `to_local` does.
  at::Tensor full_tensor(const std::optional<std::vector<Placement>>& grad_placements = std::nullopt) const;

  /// Back-propagates from a tensor of one element as the unsharded program would. Throws kInvalidArgument for any other
  /// size.
  void backward() const;
  /// The gradient of a leaf, laid out as `gradient_layout` says; nothing if there is none.
  std::optional<DTensor> grad() const;
  /// Shares storage, without graph.
  DTensor detach() const;

  /// The value of a tensor of one element, the same on every rank; communicates. Throws kInvalidArgument for any other
  /// size.
  at::Scalar item() const;

  /// The row `index` of a tensor sharded by Shard(0): a view of `local()` on its owner, no elements elsewhere; logical
  /// shape shape()[1:], placement RaggedShard((0,), one unit on the owner). A negative index counts from the end.
  ///
  /// Throws on every rank: kOutOfRange for the index; kUnimplemented for a 1-D tensor, a ragged one, or placements
  /// other than one Shard(0) with Replicate beside; on the owner kInvalidArgument if the row is not contiguous.
  DTensor operator[](int64_t index) const;

  /// Whether it is the result of a view of a tensor that had to be redistributed for it, so that a write would not
  /// reach that tensor: in-place operations refuse it.
  bool is_copied_view() const { return copied_view_; }
  void mark_copied_view() { copied_view_ = true; }

  /// Where operations that share out work on this tensor enter; copies of the handle have it in common.
  GradientSum& gradient_sum() const { return *gradient_sum_; }

  /// Of the share of a max or min that a reduction has given: how many cells of this rank it stands for; else
  /// undefined.
  at::Tensor ties() const;
  /// `counts` of `extreme_ties.h`, on all ranks alike.
  void set_ties(at::Tensor counts);

  /// Trusts that `local` is this rank's part. For code of the library that has made it so.
  static DTensor unchecked(at::Tensor local, MeshCommunicator mesh, Layout layout, std::vector<int64_t> shape);

 private:
  DTensor(at::Tensor local, MeshCommunicator mesh, Layout layout, std::vector<int64_t> shape);

  DTensor redistribute_to(const Layout& target) const;
  DTensor row_of(int64_t index, int64_t mesh_dim) const;

  at::Tensor local_;
  MeshCommunicator communicator_;
  Layout layout_;
  std::vector<int64_t> shape_;
  std::shared_ptr<GradientSum> gradient_sum_;
  std::shared_ptr<const ExtremeTies> ties_;
  bool copied_view_ = false;
};

/// "DTensor(shape=(6, 4), placements=[Shard(0)], mesh=('dp',), local=(3, 4))", without communication.
std::string to_string(const DTensor& tensor);

/// Spreads `tensor` over the mesh: a leaf with the input's requires_grad, its own storage, not connected to the input's
/// graph.
///
/// Without `source` every rank holds the same tensor and takes its part of it; nothing is communicated. With `source`
/// the values of one rank count, all must agree in shape and dtype: with RaggedShard that is member `source` of the
/// ragged mesh dim's group, for each coordinate of the Replicate dims; otherwise member `source` of every mesh dim's
/// group, as if dim by dim.
///
/// Throws kInvalidArgument for placements that do not fit or hold Partial, kOutOfRange for a source outside a group's
/// size.
DTensor distribute(const at::Tensor& tensor, const MeshCommunicator& mesh, std::vector<Placement> placements,
                   std::optional<int64_t> source = std::nullopt);

}  // namespace hyper_parallel
