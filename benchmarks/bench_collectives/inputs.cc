#include "benchmarks/bench_collectives/inputs.h"

#include <ATen/ops/arange.h>

#include <numeric>

namespace hyper_parallel::benchmarks {
namespace {

constexpr int64_t kColumns = 2048;
constexpr int64_t kRowsPerMebibyte = (int64_t{1} << 20) / (kColumns * int64_t{sizeof(float)});

}  // namespace

at::Tensor matrix(int64_t size_mib) {
  const int64_t rows = size_mib * kRowsPerMebibyte;
  return at::arange(rows * kColumns, at::kFloat).view({rows, kColumns});
}

Splits splits_of(const at::Tensor& whole, const Splits& units) {
  const int64_t rows_per_unit = whole.size(0) / std::accumulate(units.begin(), units.end(), int64_t{0});
  Splits splits;
  for (const int64_t count : units) splits.push_back(count * rows_per_unit);
  return splits;
}

at::Tensor own_rows(const at::Tensor& whole, const Splits& splits, int64_t rank) {
  return whole.narrow(0, first_row(splits, rank), splits[static_cast<size_t>(rank)]).clone();
}

MeshCommunicator line_of(const Ranks& ranks) {
  return MeshCommunicator(ranks.group(), DeviceMesh({ranks.size()}, {"dp"}));
}

DTensor laid_out(const at::Tensor& whole, const MeshCommunicator& mesh, std::string_view placements) {
  return distribute(whole, mesh, parse_placements(placements));
}

}  // namespace hyper_parallel::benchmarks
