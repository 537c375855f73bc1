// Bytes received in redistributions without Partial, counted on the wire, against the least possible.
//
// The bound is found without the library's geometry of messages: the tensor's elements are their own numbers, so that
// what a rank owns under the target and does not hold under the source is a difference of two sets of numbers.

#include <ATen/ops/arange.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "benchmarks/bench_collectives/inputs.h"
#include "benchmarks/bench_collectives/row.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/torch/counting_backend.h"

namespace hyper_parallel::benchmarks {
namespace {

constexpr const char* kBaseline = "lower bound";
/// No dim divides by 4, and the first by nothing: shares are uneven and, on 4 ranks, empty ones among them.
constexpr int64_t kShape[] = {7, 6, 10};

struct MeshCase {
  std::string name;
  DeviceMesh mesh;
  std::vector<std::string_view> layouts;
};

std::vector<MeshCase> mesh_cases() {
  return {{"mesh (4)",
           DeviceMesh({4}, {"dp"}),
           {"R", "S(0)", "S(1)", "S(2)", "RaggedShard((0,), (1, 2, 0, 4))", "RaggedShard((0, 1), (5, 0, 1, 1))"}},
          {"mesh (2, 2)",
           DeviceMesh({2, 2}, {"dp", "tp"}),
           {"R, R", "S(0), R", "R, S(0)", "S(0), S(0)", "S(0), S(1)", "S(1), S(0)", "S(2), R",
            "RaggedShard((0,), (3, 4)), R", "R, RaggedShard((0, 1), (2, 1))"}}};
}

at::Tensor numbers() { return at::arange(kShape[0] * kShape[1] * kShape[2], at::kInt).view(kShape); }

/// The numbers of the elements that this rank holds, ascending.
std::vector<int> held(const DTensor& tensor) {
  const at::Tensor flat = tensor.local().contiguous();
  std::vector<int> elements(flat.const_data_ptr<int>(), flat.const_data_ptr<int>() + flat.numel());
  std::ranges::sort(elements);
  return elements;
}

/// Bytes of what this rank owns under `target` and does not hold under `source`.
int64_t least_received(const DTensor& source, const DTensor& target) {
  std::vector<int> missing;
  std::ranges::set_difference(held(target), held(source), std::back_inserter(missing));
  return std::ssize(missing) * int64_t{sizeof(int)};
}

struct Traffic {
  int64_t received = 0;
  int64_t bound = 0;
  int64_t unequal = 0;  // pairs where a rank did not receive its bound
};

/// Redistributes between every two of the layouts and adds up this rank's part.
Traffic own_traffic(const Ranks& ranks, const MeshCase& mesh_case) {
  const CountedGroup counted = wrap_counting(ranks.group());
  const MeshCommunicator mesh(counted.group, mesh_case.mesh);
  Traffic traffic;
  for (const std::string_view from : mesh_case.layouts) {
    for (const std::string_view to : mesh_case.layouts) {
      const DTensor source = laid_out(numbers(), mesh, from);
      const DTensor target = laid_out(numbers(), mesh, to);
      counted.counters->reset();
      const DTensor result = source.redistribute(parse_placements(to));
      const int64_t received = counted.counters->total().bytes_received;
      HP_CHECK(result.local().equal(target.local()), kInternal, mesh_case.name, ": [", from, "] -> [", to,
               "] is wrong on rank ", ranks.rank());
      const int64_t bound = least_received(source, target);
      traffic.received += received;
      traffic.bound += bound;
      traffic.unequal += ranks.sum(received == bound ? 0 : 1) > 0 ? 1 : 0;
    }
  }
  return traffic;
}

Row traffic_row(const Ranks& ranks, const MeshCase& mesh_case, const std::string& what) {
  const Traffic own = own_traffic(ranks, mesh_case);
  Row row = bytes_row(what, kBaseline, equal_to_bound(), ranks.sum(own.received), ranks.sum(own.bound));
  row.reached = row.reached && own.unequal == 0;
  return row;
}

}  // namespace

std::vector<Figure> traffic_figures(const Ranks& ranks) {
  std::vector<Figure> figures;
  for (const MeshCase& mesh_case : mesh_cases()) {
    const size_t count = mesh_case.layouts.size();
    const std::string what = str_cat("bytes received, ", count * count, " pairs on ", mesh_case.name);
    figures.push_back({what, kBaseline, [=, &ranks] { return traffic_row(ranks, mesh_case, what); }});
  }
  return figures;
}

}  // namespace hyper_parallel::benchmarks
