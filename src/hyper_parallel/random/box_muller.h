#pragma once

// Two uniform numbers to two standard normal ones (Box and Muller 1958), in float or double.
//
// Own logarithm, sine and cosine: those of the C library differ in their last bits between versions and processors, and
// replicas must not. They are series in plain arithmetic, accurate to some units in the last place, without a branch,
// so that a loop over them vectorises. A quadrant is found in the integer that the angle comes as, without rounding.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>
#include <utility>

namespace hyper_parallel {

template <typename Real>
struct BoxMuller {
  static constexpr bool kIsFloat = std::is_same_v<Real, float>;
  using Bits = std::conditional_t<kIsFloat, uint32_t, uint64_t>;
  using SignedBits = std::make_signed_t<Bits>;
  static constexpr int kBits = std::numeric_limits<Bits>::digits;
  static constexpr int kFraction = std::numeric_limits<Real>::digits - 1;

  struct Pair {
    Real first;
    Real second;
  };

  /// sqrt(-2 ln u) (cos t, sin t), where u = (radius + 1) / 2^kBits and t = 2 pi angle / 2^kBits.
  static Pair normals(Bits radius, Bits angle) {
    const Real length = std::sqrt(Real{-2} * natural_log(unit_of(radius)));
    const Pair direction = cos_sin(angle);
    return {length * direction.first, length * direction.second};
  }

  /// (bits + 1) / 2^kBits, in (0, 1]. By halves: processors convert signed integers.
  static Real unit_of(Bits bits) {
    constexpr int kHalf = kBits / 2;
    constexpr Bits kLow = (Bits{1} << kHalf) - 1;
    const Real high = static_cast<Real>(static_cast<SignedBits>(bits >> kHalf));
    const Real low = static_cast<Real>(static_cast<SignedBits>((bits & kLow) + 1));
    constexpr Real kScale = Real{1} / static_cast<Real>(Bits{1} << (kBits - 1)) / Real{2};
    return (high * static_cast<Real>(Bits{1} << kHalf) + low) * kScale;
  }

  /// ln x of a normal x > 0. x = 2^e m with sqrt(1/2) <= m < sqrt(2), and ln m = 2 artanh s = 2 (s + s^3/3 + s^5/5 ..),
  /// s = (m - 1) / (m + 1), so that s^2 < 0.03.
  static Real natural_log(Real x) {
    constexpr Bits kRootOfHalf = std::bit_cast<Bits>(std::numbers::sqrt2_v<Real> / 2);
    constexpr Bits kFractionMask = (Bits{1} << kFraction) - 1;
    const Bits above = std::bit_cast<Bits>(x) - kRootOfHalf;
    const Real exponent = static_cast<Real>(static_cast<int32_t>(static_cast<SignedBits>(above) >> kFraction));
    const Real m = std::bit_cast<Real>((above & kFractionMask) + kRootOfHalf);
    const Real s = (m - 1) / (m + 1);
    return exponent * std::numbers::ln2_v<Real> + 2 * s * artanh_series(s * s);
  }

  /// (cos t, sin t), t = 2 pi angle / 2^kBits. t is a multiple of pi/2 plus some x with |x| <= pi/4.
  static Pair cos_sin(Bits angle) {
    const Bits quadrant = static_cast<Bits>(angle + (Bits{1} << (kBits - 3))) >> (kBits - 2);
    const auto rest = static_cast<SignedBits>(angle - (quadrant << (kBits - 2)));
    constexpr Real kTurn = std::numbers::pi_v<Real> / static_cast<Real>(Bits{1} << (kBits - 1));
    const Real x = static_cast<Real>(rest) * kTurn;
    const Real cosine = cos_series(x * x);
    const Real sine = x * sin_series(x * x);
    const bool is_odd = (quadrant & 1) != 0;
    const Real first = is_odd ? sine : cosine;
    const Real second = is_odd ? cosine : sine;
    return {((quadrant + 1) & 2) != 0 ? -first : first, (quadrant & 2) != 0 ? -second : second};
  }

 private:
  // How many terms leave less than a tenth of a unit in the last place.
  static constexpr int kLogTerms = kIsFloat ? 5 : 11;
  static constexpr int kSinTerms = kIsFloat ? 5 : 9;
  static constexpr int kCosTerms = kIsFloat ? 6 : 10;

  /// sum of coefficient(k) * z^k for k < terms, by Horner's rule.
  template <int kTerms, typename Coefficient>
  static Real series(Real z, const Coefficient& coefficient) {
    return [&]<int... kIndices>(std::integer_sequence<int, kIndices...>) {
      Real sum = 0;
      ((sum = sum * z + coefficient(kTerms - 1 - kIndices)), ...);
      return sum;
    }(std::make_integer_sequence<int, kTerms>{});
  }

  /// artanh(s) / s, z = s^2.
  static Real artanh_series(Real z) {
    return series<kLogTerms>(z, [](int k) constexpr { return Real{1} / static_cast<Real>(2 * k + 1); });
  }
  /// sin(x) / x, z = x^2.
  static Real sin_series(Real z) {
    return series<kSinTerms>(z, [](int k) constexpr { return signed_inverse_factorial(k, 2 * k + 1); });
  }
  /// cos(x), z = x^2.
  static Real cos_series(Real z) {
    return series<kCosTerms>(z, [](int k) constexpr { return signed_inverse_factorial(k, 2 * k); });
  }

  /// (-1)^k / n!; n! is exact in double up to 22.
  static constexpr Real signed_inverse_factorial(int k, int n) {
    double factorial = 1;
    for (int i = 2; i <= n; ++i) factorial *= i;
    return static_cast<Real>((k % 2 == 0 ? 1.0 : -1.0) / factorial);
  }
};

}  // namespace hyper_parallel
