#pragma once

// For tests of elementwise operations: DTensors on ranks that are threads, compared with plain torch on the whole
// tensor.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "hyper_parallel/torch/elementwise.h"
#include "tests/support/expect_error.h"
#include "tests/threaded/thread_backend.h"

namespace hyper_parallel::test {

/// Runs `body` on `ranks` threads, each with the 1-D mesh ("dp") over all of them.
inline void on_mesh(int ranks, const std::function<void(const MeshCommunicator&)>& body) {
  run_ranks(ranks,
            [&](const ThreadRank& rank) { body(MeshCommunicator(rank.group, DeviceMesh({rank.size}, {"dp"}))); });
}

/// One mesh dim's placement list.
inline std::vector<Placement> ragged(std::vector<int64_t> units, const std::vector<int64_t>& dims = {0}) {
  return {RaggedShard(dims, std::move(units))};
}
inline std::vector<Placement> replicated() { return {Replicate{}}; }

/// Unlike units for a (6, 4) tensor on 4 ranks, zeros among them; the last deals out rows and columns.
inline std::vector<std::vector<Placement>> ragged_layouts() {
  return {ragged({1, 2, 0, 3}), ragged({0, 6, 0, 0}), ragged({5, 0, 1, 6}, {0, 1})};
}

/// (6, 4) values of both signs and with a zero: -5.5 .. 6 in halves, cast to `dtype` (to bool: not zero).
inline at::Tensor values(at::ScalarType dtype = at::kFloat) {
  return (at::arange(24, at::kDouble).reshape({6, 4}) - 11).div(2).to(dtype);
}
/// (6, 4) values from 1 on.
inline at::Tensor positive_values(at::ScalarType dtype = at::kFloat) {
  return (at::arange(24, at::kDouble).reshape({6, 4}).div(4) + 1).to(dtype);
}

inline double tolerance(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-12;
  return dtype == at::kBFloat16 ? 1e-2 : 1e-6;
}

/// This rank's run of `whole` under a ragged placement, cut by the definition: a unit is an equal part of all cells.
inline at::Tensor run_of(const at::Tensor& whole, const DTensor& tensor) {
  if (!tensor.mesh().is_member() || whole.numel() == 0) return whole.flatten().narrow(0, 0, 0);
  const RaggedShardInfo& info = *tensor.layout().ragged_shard();
  const std::vector<int64_t>& units = info.placement.local_units();
  const Dims coordinate = *tensor.layout().mesh().coordinate(tensor.mesh().rank());
  const int64_t member = coordinate[static_cast<size_t>(info.mesh_dim)];
  const int64_t before = std::accumulate(units.begin(), units.begin() + member, int64_t{0});
  const int64_t per_unit = whole.numel() / std::accumulate(units.begin(), units.end(), int64_t{0});
  return whole.flatten().narrow(0, before * per_unit, units[static_cast<size_t>(member)] * per_unit);
}

/// `tensor` is `expected`: dtype, shape and values up to rounding, and its wrapper and local tensor agree. Ragged
/// tensors are compared share by share, without communication.
inline void expect_whole(const DTensor& tensor, const at::Tensor& expected, const std::string& what) {
  EXPECT_EQ(tensor.dtype(), expected.scalar_type()) << what;
  EXPECT_EQ(tensor.dtype(), tensor.local().scalar_type()) << what;
  EXPECT_EQ(tensor.shape(), expected.sizes().vec()) << what;
  const bool is_ragged = tensor.layout().is_ragged();
  const at::Tensor given = (is_ragged ? tensor.local() : tensor.full_tensor()).detach();
  if (!is_ragged && !tensor.mesh().is_member()) return;
  const at::Tensor wanted = is_ragged ? run_of(expected.detach(), tensor) : expected.detach();
  ASSERT_EQ(given.sizes(), wanted.sizes()) << what;
  const double limit = tolerance(expected.scalar_type());
  EXPECT_TRUE(at::allclose(given, wanted, limit, limit, /*equal_nan=*/true)) << what << " is\n"
                                                                             << given << "\nbut must be\n"
                                                                             << wanted;
}

/// What `action` of plain torch throws, nothing if it succeeds.
inline std::string torch_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace hyper_parallel::test
