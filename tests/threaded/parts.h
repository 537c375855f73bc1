#pragma once

// What a rank must hold of a tensor under a layout, taken from the element-by-element truth, and small tools for tests
// of DTensors.

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hyper_parallel/torch/dtensor.h"
#include "tests/reference/from_layout.h"

namespace hyper_parallel::test {

using Shape = std::vector<int64_t>;

/// "R, S(0)" on `mesh`.
inline Layout layout_on(const DeviceMesh& mesh, const std::string& placements) {
  return Layout(mesh, parse_placements(placements));
}

/// The sizes of the rank's local tensor: (elements,) if ragged, else for each tensor dim the rows that it is dealt.
inline Shape part_shape(const Layout& layout, const Shape& shape, int64_t rank) {
  using reference::Rule;
  const reference::Scheme scheme = reference::scheme_of(layout, shape);
  const auto count = [rank](const reference::Scheme& of) {
    return static_cast<int64_t>(reference::owned_elements(of, rank).size());
  };
  if (layout.is_ragged() || !layout.mesh().contains(rank)) return {count(scheme)};
  Shape sizes;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    reference::Scheme along = scheme;
    along.shape = {shape[dim]};
    for (Rule& rule : along.rules) {
      const bool cuts = rule.kind == Rule::Kind::kShard && rule.tensor_dim == static_cast<int64_t>(dim);
      rule = Rule{};
      if (cuts) rule.kind = Rule::Kind::kShard;
    }
    sizes.push_back(count(along));
  }
  return sizes;
}

/// The rank's local tensor of a tensor whose value is `whole`, in storage of its own.
inline at::Tensor part_of(const at::Tensor& whole, const Layout& layout, int64_t rank) {
  const Shape shape = whole.sizes().vec();
  const auto owned = reference::owned_elements(reference::scheme_of(layout, shape), rank);
  return whole.reshape({-1}).index_select(0, at::tensor(owned, at::kLong)).view(part_shape(layout, shape, rank));
}

/// offset, offset + step, offset + 2 * step, .. as doubles.
inline at::Tensor counted(const Shape& shape, double step = 1, double offset = 0) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return (at::arange(numel, at::kDouble) * step + offset).view(shape);
}

/// The tensor `whole`, laid out by the truth.
inline DTensor laid_out(const at::Tensor& whole, const MeshCommunicator& mesh, const std::string& placements) {
  return DTensor::from_local(part_of(whole, layout_on(mesh.mesh(), placements), mesh.rank()), mesh,
                             parse_placements(placements), whole.sizes().vec());
}

/// The same as a leaf that requires grad.
inline DTensor leaf(const at::Tensor& whole, const MeshCommunicator& mesh, const std::string& placements) {
  return laid_out(whole, mesh, placements).requires_grad_();
}

}  // namespace hyper_parallel::test
