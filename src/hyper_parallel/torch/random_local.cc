#include "hyper_parallel/torch/random_local.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <future>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/random/fill_random.h"
#include "hyper_parallel/random/region_runs.h"

namespace hyper_parallel {
namespace {

/// The least number of elements that a further thread is started for: about half a millisecond's work.
constexpr int64_t kGrain = int64_t{1} << 18;

/// Calls `work` for the parts of [0, count), each in a thread of its own. Not at::parallel_for: outside torch it is
/// parallel only where OpenMP is compiled in, and the compiler's is another one than the wheel's.
template <typename Work>
void in_parallel(int64_t count, const Work& work) {
  const int64_t parts = std::clamp<int64_t>(count / kGrain, 1, at::get_num_threads());
  std::vector<std::future<void>> others;
  for (int64_t part = 1; part < parts; ++part) {
    others.push_back(std::async(std::launch::async, [&, part] { work(even_part_of({0, count}, parts, part)); }));
  }
  work(even_part_of({0, count}, parts, 0));
  for (std::future<void>& other : others) other.get();
}

/// What elements of T are computed in.
template <typename T>
using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Elements `first` .. of the tensor, by `fill(first, span of Computed<T>)`.
template <typename T, typename Fill>
void fill_run(int64_t first, std::span<T> out, const Fill& fill) {
  if constexpr (std::is_same_v<T, Computed<T>>) {
    fill(first, out);
  } else {
    std::array<float, 1024> computed;
    while (!out.empty()) {
      const std::span<float> piece(computed.data(), std::min(computed.size(), out.size()));
      fill(first, piece);
      std::ranges::transform(piece, out.begin(), [](float value) { return static_cast<T>(value); });
      out = out.subspan(piece.size());
      first += static_cast<int64_t>(piece.size());
    }
  }
}

template <typename T, typename Fill>
void fill_part(at::Tensor& host, const LocalPart& part, const Fill& fill) {
  T* const data = host.mutable_data_ptr<T>();
  in_parallel(part.region.numel(), [&](Interval local) {
    const Interval flat{part.region.flat.begin + local.begin, part.region.flat.begin + local.end};
    for_each_run({part.region.box, flat}, part.shape, [&](const RegionRun& run) {
      T* const to = data + local.begin + run.local.begin;
      fill_run(run.first, std::span<T>(to, static_cast<size_t>(run.local.size())), fill);
    });
  });
}

/// A new local tensor. `fill(first, out, digits)` fills a run of floats or doubles of which `digits` bits will be kept.
template <typename Fill>
at::Tensor filled(const LocalPart& part, const at::TensorOptions& options, const Fill& fill) {
  at::Tensor host = at::empty({part.sizes.data(), part.sizes.size()}, options.device(at::kCPU).requires_grad(false));
  const auto fill_as = [&]<typename T>(std::type_identity<T>) {
    fill_part<T>(host, part,
                 [&](int64_t first, std::span<Computed<T>> out) { fill(first, out, std::numeric_limits<T>::digits); });
  };
  switch (host.scalar_type()) {
    case at::kFloat:
      fill_as(std::type_identity<float>{});
      break;
    case at::kDouble:
      fill_as(std::type_identity<double>{});
      break;
    case at::kHalf:
      fill_as(std::type_identity<at::Half>{});
      break;
    case at::kBFloat16:
      fill_as(std::type_identity<at::BFloat16>{});
      break;
    default:
      check_random_dtype("random numbers", host.scalar_type());
  }
  return options.device().is_cpu() ? host : host.to(options.device());
}

}  // namespace

LocalPart local_part(const Layout& layout, const std::vector<int64_t>& shape, int64_t rank) {
  const auto coordinate = layout.mesh().coordinate(rank);
  if (!coordinate) return {region_of({{0}, {0}}), Dims{0}, Dims{0}};
  const Distribution distribution(layout, Dims(shape));
  return {distribution.owned(*coordinate), Dims(shape), distribution.local_shape(*coordinate)};
}

void check_random_dtype(std::string_view operation, at::ScalarType dtype) {
  HP_CHECK(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16, kType,
           operation, ": dtype ", c10::toString(dtype), " has no random numbers; it must be Double, Float, Half or ",
           "BFloat16");
}

at::Tensor uniform_local(const RandomStream& stream, const LocalPart& part, const at::TensorOptions& options) {
  return filled(part, options, [&](int64_t first, auto out, int digits) {
    if constexpr (std::is_same_v<decltype(out), std::span<double>>) {
      fill_uniform(stream, first, out);
    } else {
      fill_uniform(stream, first, out, digits);
    }
  });
}

at::Tensor normal_local(const RandomStream& stream, const LocalPart& part, const at::TensorOptions& options) {
  return filled(part, options, [&](int64_t first, auto out, int /*digits*/) { fill_normal(stream, first, out); });
}

at::Tensor dropout_local(const RandomStream& stream, const LocalPart& part, double kept,
                         const at::TensorOptions& options) {
  return filled(part, options, [&](int64_t first, auto out, int /*digits*/) {
    using Real = typename decltype(out)::value_type;
    fill_bernoulli(stream, first, out, kept, static_cast<Real>(1 / kept));
  });
}

}  // namespace hyper_parallel
