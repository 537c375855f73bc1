#include "hyper_parallel/random/fill_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "hyper_parallel/geometry/distribution.h"
#include "hyper_parallel/random/region_runs.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

constexpr RandomStream kStream{.key = 0x0123456789abcdef, .number = 7};
constexpr size_t kMany = 1 << 20;

/// Word k of the stream, by the definition.
uint32_t word(const RandomStream& stream, uint64_t k) { return words_of_block(stream, k / 4)[k % 4]; }
double wide_word(const RandomStream& stream, uint64_t k) {
  return static_cast<double>(word(stream, 2 * k)) + 4294967296.0 * static_cast<double>(word(stream, 2 * k + 1));
}

template <typename T>
using Fill = std::function<void(const RandomStream&, int64_t first, std::span<T> out)>;

/// Every distribution that makes elements of this type.
template <typename T>
std::vector<Fill<T>> all_fills() {
  std::vector<Fill<T>> fills{
      [](const RandomStream& stream, int64_t first, std::span<T> out) { fill_uniform(stream, first, out); },
      [](const RandomStream& stream, int64_t first, std::span<T> out) { fill_normal(stream, first, out); },
      [](const RandomStream& stream, int64_t first, std::span<T> out) {
        fill_bernoulli(stream, first, out, 0.3, T{2});
      }};
  if constexpr (std::is_same_v<T, float>) {
    fills.push_back(
        [](const RandomStream& stream, int64_t first, std::span<float> out) { fill_uniform(stream, first, out, 8); });
  }
  return fills;
}

template <typename T>
std::vector<T> made(const Fill<T>& fill, int64_t first, size_t count, const RandomStream& stream = kStream) {
  std::vector<T> values(count, T{-1000});
  fill(stream, first, values);
  return values;
}

template <typename T>
class FillRandom : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FillRandom, Types);

TYPED_TEST(FillRandom, EveryRun_IsThatPartOfTheWhole) {
  using T = TypeParam;
  for (const Fill<T>& fill : all_fills<T>()) {
    const std::vector<T> whole = made<T>(fill, 0, 700);
    for (const size_t begin : {0, 1, 2, 3, 4, 5, 63, 64, 127, 128, 129, 255, 256, 257, 511}) {
      for (const size_t count : {0, 1, 2, 3, 4, 7, 64, 128, 129, 189}) {
        const auto from = whole.begin() + static_cast<std::ptrdiff_t>(begin);
        EXPECT_EQ(made<T>(fill, static_cast<int64_t>(begin), count),
                  std::vector<T>(from, from + static_cast<std::ptrdiff_t>(count)))
            << count << " from " << begin;
      }
    }
  }
}

TYPED_TEST(FillRandom, EveryCutOfATensor_IsTheTensor) {
  using T = TypeParam;
  const DeviceMesh mesh({2, 3});
  const Dims shape{5, 3, 7};
  for (const Fill<T>& fill : all_fills<T>()) {
    const std::vector<T> whole = made<T>(fill, 0, 105);
    for (int64_t outer = -1; outer < 3; ++outer) {
      for (int64_t inner = -1; inner < 3; ++inner) {
        const auto placement = [](int64_t dim) { return dim < 0 ? Placement(Replicate{}) : Placement(Shard(dim)); };
        const Distribution distribution(Layout(mesh, {placement(outer), placement(inner)}), shape);
        std::vector<T> gathered(105, T{-1000});
        for (int64_t position = 0; position < mesh.size(); ++position) {
          for_each_run(distribution.owned(mesh.coordinate_at(position)), shape, [&](const RegionRun& run) {
            const std::vector<T> part = made<T>(fill, run.first, static_cast<size_t>(run.local.size()));
            std::ranges::copy(part, gathered.begin() + run.first);
          });
        }
        EXPECT_EQ(gathered, whole) << short_text(distribution);
      }
    }
  }
}

TYPED_TEST(FillRandom, FarOut_RunsStillMatch) {
  using T = TypeParam;
  const int64_t far = (int64_t{1} << 62) + 3;  // twice as many words leave int64
  for (const Fill<T>& fill : all_fills<T>()) {
    const std::vector<T> run = made<T>(fill, far, 9);
    EXPECT_EQ(made<T>(fill, far + 4, 5), std::vector<T>(run.begin() + 4, run.end()));
    EXPECT_NE(run, made<T>(fill, 3, 9));
  }
}

TYPED_TEST(FillRandom, UnlikeStreams_DrawUnlikeNumbers) {
  using T = TypeParam;
  for (const Fill<T>& fill : all_fills<T>()) {
    const auto from = [&](RandomStream stream) { return made<T>(fill, 0, 200, stream); };
    EXPECT_EQ(from({1, 2}), from({1, 2}));
    EXPECT_NE(from({1, 2}), from({1, 3}));
    EXPECT_NE(from({1, 2}), from({2, 2}));
    EXPECT_NE(from({1, 0}), from({uint64_t{1} << 32, 0}));
    EXPECT_NE(from({1, 0}), from({1, uint64_t{1} << 32}));
  }
}

TYPED_TEST(FillRandom, NothingToFill_IsFine) {
  using T = TypeParam;
  for (const Fill<T>& fill : all_fills<T>()) EXPECT_TRUE(made<T>(fill, 5, 0).empty());
}

TYPED_TEST(FillRandom, Uniform_HasTheMomentsOfItsDistributionAndStaysBelowOne) {
  using T = TypeParam;
  const std::vector<T> values = made<T>(all_fills<T>()[0], 0, kMany);
  double sum = 0;
  double squares = 0;
  double neighbours = 0;
  std::vector<int> bins(16, 0);
  for (size_t i = 0; i < kMany; ++i) {
    const double x = values[i];
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    squares += x * x;
    if (i > 0) neighbours += (x - 0.5) * (static_cast<double>(values[i - 1]) - 0.5);
    ++bins[static_cast<size_t>(x * 16)];
  }
  constexpr double kCount = kMany;
  EXPECT_NEAR(sum / kCount, 1.0 / 2, 0.002);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.002);
  EXPECT_NEAR(neighbours / kCount, 0, 0.001);
  for (const int count : bins) EXPECT_NEAR(count, kCount / 16, 1500);
}

TYPED_TEST(FillRandom, Normal_HasTheMomentsOfItsDistribution) {
  using T = TypeParam;
  const std::vector<T> values = made<T>(all_fills<T>()[1], 0, kMany);
  double moments[5] = {};
  double pairs = 0;
  int beyond_two = 0;
  for (size_t i = 0; i < kMany; ++i) {
    const double x = values[i];
    ASSERT_TRUE(std::isfinite(x));
    double power = 1;
    for (double& moment : moments) {
      moment += power / kMany;
      power *= x;
    }
    if (i % 2 == 1) pairs += x * static_cast<double>(values[i - 1]) / kMany;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  EXPECT_NEAR(moments[1], 0, 0.006);
  EXPECT_NEAR(moments[2], 1, 0.01);
  EXPECT_NEAR(moments[3], 0, 0.025);
  EXPECT_NEAR(moments[4], 3, 0.06);
  EXPECT_NEAR(pairs, 0, 0.006);
  EXPECT_NEAR(beyond_two / static_cast<double>(kMany), 0.0455, 0.0015);
}

TYPED_TEST(FillRandom, Bernoulli_KeepsTheWordsBelowTheProbability) {
  using T = TypeParam;
  for (const double probability : {0.0, 0x1p-32, 0.25, 0.3, 0.5, 0.9, 1.0}) {
    std::vector<T> values(kMany);
    fill_bernoulli(kStream, 0, std::span<T>(values), probability, T{3});
    size_t kept = 0;
    for (size_t i = 0; i < kMany; ++i) {
      const bool keeps = static_cast<double>(word(kStream, i)) < probability * 4294967296.0;
      ASSERT_EQ(values[i], keeps ? T{3} : T{0}) << i << " at " << probability;
      kept += keeps ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(kept) / kMany, probability, 0.003);
  }
}

TYPED_TEST(FillRandom, Bernoulli_OutsideZeroToOne_Raises) {
  std::vector<TypeParam> values(3);
  const auto fill = [&](double probability) {
    return error_of([&] { fill_bernoulli(kStream, 0, std::span<TypeParam>(values), probability); });
  };
  EXPECT_EQ(fill(1.5), "InvalidArgument: fill_bernoulli: probability is 1.5 but must be in [0, 1]");
  EXPECT_EQ(fill(-0.5), "InvalidArgument: fill_bernoulli: probability is -0.5 but must be in [0, 1]");
  EXPECT_EQ(fill(std::nan("")), "InvalidArgument: fill_bernoulli: probability is nan but must be in [0, 1]");
}

TEST(FillUniform, Float_IsTheLeadingBitsOfItsWord) {
  for (const int digits : {1, 8, 11, 24}) {
    std::vector<float> values(1000);
    fill_uniform(kStream, 5, values, digits);
    for (size_t i = 0; i < values.size(); ++i) {
      const double exact = static_cast<double>(word(kStream, i + 5)) / 4294967296.0;
      ASSERT_EQ(values[i], std::floor(std::ldexp(exact, digits)) / std::ldexp(1.0, digits)) << digits;
    }
  }
}

TEST(FillUniform, Double_IsTheLeadingBitsOfTwoWords) {
  std::vector<double> values(1000);
  fill_uniform(kStream, 5, values);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = word(kStream, 2 * (i + 5)) | static_cast<uint64_t>(word(kStream, 2 * (i + 5) + 1)) << 32;
    ASSERT_EQ(values[i], std::ldexp(static_cast<double>(bits >> 11), -53));
  }
}

TEST(FillUniform, DigitsBeyondFloat_Raise) {
  std::vector<float> values(3);
  EXPECT_EQ(error_of([&] { fill_uniform(kStream, 0, values, 25); }),
            "InvalidArgument: fill_uniform: digits are 25 but must be in [1, 24]");
  EXPECT_EQ(error_of([&] { fill_uniform(kStream, 0, values, 0); }),
            "InvalidArgument: fill_uniform: digits are 0 but must be in [1, 24]");
}

TEST(FillNormal, Float_IsBoxAndMullersFormula) {
  std::vector<float> values(kMany);
  fill_normal(kStream, 0, values);
  for (size_t j = 0; j < kMany / 2; ++j) {
    const double u = (static_cast<double>(word(kStream, 2 * j)) + 1) / 4294967296.0;
    const double angle = 2 * std::numbers::pi * static_cast<double>(word(kStream, 2 * j + 1)) / 4294967296.0;
    // Near u = 1 the float u has an error of 2^-25, and the root of its logarithm one of 2^-12.
    const double length = std::sqrt(-2 * std::log(u));
    const double limit = 3e-6 + std::min(3e-4, 1e-7 / std::max(length, 1e-30));
    ASSERT_NEAR(values[2 * j], length * std::cos(angle), limit) << j;
    ASSERT_NEAR(values[2 * j + 1], length * std::sin(angle), limit) << j;
  }
}

TEST(FillNormal, Double_IsBoxAndMullersFormula) {
  std::vector<double> values(kMany);
  fill_normal(kStream, 0, values);
  for (size_t j = 0; j < kMany / 2; ++j) {
    const double u = (wide_word(kStream, 2 * j) + 1) / 0x1p64;
    const double angle = 2 * std::numbers::pi * (wide_word(kStream, 2 * j + 1) / 0x1p64);
    const double length = std::sqrt(-2 * std::log(u));
    const double limit = 1e-14 + std::min(1e-7, 1e-15 / std::max(length, 1e-30));
    ASSERT_NEAR(values[2 * j], length * std::cos(angle), limit) << j;
    ASSERT_NEAR(values[2 * j + 1], length * std::sin(angle), limit) << j;
  }
}

TEST(FillNormal, FirstNumbers_ArePinned) {
  // A program that gives its seed draws the same numbers under every version of the library, on every machine.
  std::vector<float> values(4);
  fill_normal(kStream, 0, values);
  EXPECT_EQ(values, (std::vector<float>{-0x1.a99956p+0F, -0x1.42c0cp-1F, -0x1.3c38cep-4F, -0x1.bb36fap-4F}));
  std::vector<double> wide(2);
  fill_normal(kStream, 0, wide);
  EXPECT_EQ(wide, (std::vector<double>{-0x1.415ecd42429bp-1, -0x1.c26e4178e0c2dp-1}));
}

}  // namespace
}  // namespace hyper_parallel
