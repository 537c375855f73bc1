#pragma once

// Elements of random tensors, each from its row-major position i in the whole tensor and the stream alone.
//
//                        element i is made of               and is
//   uniform, float       word i                             its `digits` leading bits / 2^digits
//   uniform, double      words 2i, 2i + 1                   the leading 53 bits of w(2i) + 2^32 w(2i + 1), / 2^53
//   normal, float        words 2j, 2j + 1, j = i div 2      Box-Muller: the pair (2j, 2j + 1) is
//   normal, double       words 4j .. 4j + 3                     sqrt(-2 ln u) * (cos 2 pi v, sin 2 pi v)
//   bernoulli            word i                             `value` where the word < probability * 2^32, else 0
//
// with u in (0, 1] and v in [0, 1) of 32 bits each for float, 64 for double: normals reach 6.6 and 9.4 standard
// deviations. Uniform numbers are in [0, 1) exactly: nothing is rounded up to 1. A Bernoulli element is the same in
// every type, and a probability counts in steps of 2^-32.
//
// The bits are the same on every machine: only +, -, *, / and square root of IEEE numbers are used, each rounded once.
//
// `first` is the position of out[0], not negative; the run may begin and end anywhere.

#include <cstdint>
#include <span>

#include "hyper_parallel/random/random_stream.h"

namespace hyper_parallel {

/// The significant bits of float32 numbers in [1/2, 1). bfloat16 has 8 and float16 11: with so many digits a uniform
/// number is the float32 one rounded down, and exact in that type.
inline constexpr int kFloatDigits = 24;

/// `digits` in [1, 24].
void fill_uniform(const RandomStream& stream, int64_t first, std::span<float> out, int digits = kFloatDigits);
void fill_uniform(const RandomStream& stream, int64_t first, std::span<double> out);

void fill_normal(const RandomStream& stream, int64_t first, std::span<float> out);
void fill_normal(const RandomStream& stream, int64_t first, std::span<double> out);

/// `probability` in [0, 1]; 0 gives no `value` and 1 nothing else.
void fill_bernoulli(const RandomStream& stream, int64_t first, std::span<float> out, double probability,
                    float value = 1);
void fill_bernoulli(const RandomStream& stream, int64_t first, std::span<double> out, double probability,
                    double value = 1);

}  // namespace hyper_parallel
