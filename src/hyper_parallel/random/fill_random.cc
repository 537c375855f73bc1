#include "hyper_parallel/random/fill_random.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/random/box_muller.h"

namespace hyper_parallel {
namespace {

/// Blocks of four words that are made at a time, 1 KiB: enough to vectorise, and it stays in the first cache.
constexpr size_t kChunkBlocks = 64;

/// The words of `count` blocks.
void make_words(const RandomStream& stream, uint64_t first_block, size_t count, uint32_t* words) {
  for (size_t i = 0; i < count; ++i) {
    const PhiloxWords made = words_of_block(stream, first_block + i);
    for (size_t word = 0; word < 4; ++word) words[4 * i + word] = made[word];
  }
}

/// Fills a run, a chunk at a time. `make(words, count, to)` makes the `count` elements of some whole blocks, each block
/// giving kPerBlock of them.
template <size_t kPerBlock, typename T, typename Make>
void fill(const RandomStream& stream, int64_t first, std::span<T> out, const Make& make) {
  HP_DCHECK(first >= 0);
  uint64_t block = static_cast<uint64_t>(first) / kPerBlock;
  size_t skipped = static_cast<size_t>(first) % kPerBlock;  // elements of the first block that lie before the run
  std::array<uint32_t, 4 * kChunkBlocks> words;
  std::array<T, kPerBlock * kChunkBlocks> values;
  while (!out.empty()) {
    const size_t blocks = std::min(kChunkBlocks, (skipped + out.size() + kPerBlock - 1) / kPerBlock);
    const size_t made = blocks * kPerBlock;
    const size_t taken = std::min(made - skipped, out.size());
    make_words(stream, block, blocks, words.data());
    if (taken == made) {
      make(words.data(), made, out.data());
    } else {
      make(words.data(), made, values.data());
      std::copy_n(values.data() + skipped, taken, out.data());
    }
    out = out.subspan(taken);
    block += blocks;
    skipped = 0;
  }
}

/// Words 2i and 2i + 1 as one number.
uint64_t wide_word(const uint32_t* words, size_t i) {
  return words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
}

template <typename T>
void fill_bernoulli_as(const RandomStream& stream, int64_t first, std::span<T> out, double probability, T value) {
  HP_CHECK(probability >= 0 && probability <= 1, kInvalidArgument, "fill_bernoulli: probability is ", probability,
           " but must be in [0, 1]");
  constexpr double kWords = 4294967296.0;
  const double threshold = std::round(probability * kWords);
  if (threshold == kWords) {
    std::ranges::fill(out, value);
    return;
  }
  fill<4>(stream, first, out, [&](const uint32_t* words, size_t count, T* to) {
    const auto below = static_cast<uint32_t>(threshold);  // own copies: `to` might be thought to write the captured
    const T kept = value;
    for (size_t i = 0; i < count; ++i) to[i] = words[i] < below ? kept : T{0};
  });
}

}  // namespace

void fill_uniform(const RandomStream& stream, int64_t first, std::span<float> out, int digits) {
  HP_CHECK(digits >= 1 && digits <= kFloatDigits, kInvalidArgument, "fill_uniform: digits are ", digits,
           " but must be in [1, 24]");
  fill<4>(stream, first, out, [digits](const uint32_t* words, size_t count, float* to) {
    const int dropped = 32 - digits;
    const float unit = 1.0F / static_cast<float>(1 << digits);
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<int32_t>(words[i] >> dropped)) * unit;
  });
}

void fill_uniform(const RandomStream& stream, int64_t first, std::span<double> out) {
  fill<2>(stream, first, out, [](const uint32_t* words, size_t count, double* to) {
    // 32 and 21 bits, each exact and their sum too: processors convert signed integers of 32 bits.
    for (size_t i = 0; i < count; ++i) {
      const double high = static_cast<double>(static_cast<int32_t>(words[2 * i + 1] ^ 0x80000000U)) + 0x1p31;
      const double low = static_cast<double>(static_cast<int32_t>(words[2 * i] >> 11));
      to[i] = (high * 0x1p21 + low) * 0x1p-53;
    }
  });
}

void fill_normal(const RandomStream& stream, int64_t first, std::span<float> out) {
  fill<4>(stream, first, out, [](const uint32_t* words, size_t count, float* to) {
    for (size_t i = 0; i < count; i += 2) {
      const auto pair = BoxMuller<float>::normals(words[i], words[i + 1]);
      to[i] = pair.first;
      to[i + 1] = pair.second;
    }
  });
}

void fill_normal(const RandomStream& stream, int64_t first, std::span<double> out) {
  fill<2>(stream, first, out, [](const uint32_t* words, size_t count, double* to) {
    for (size_t i = 0; i < count; i += 2) {
      const auto pair = BoxMuller<double>::normals(wide_word(words, i), wide_word(words, i + 1));
      to[i] = pair.first;
      to[i + 1] = pair.second;
    }
  });
}

void fill_bernoulli(const RandomStream& stream, int64_t first, std::span<float> out, double probability, float value) {
  fill_bernoulli_as(stream, first, out, probability, value);
}

void fill_bernoulli(const RandomStream& stream, int64_t first, std::span<double> out, double probability,
                    double value) {
  fill_bernoulli_as(stream, first, out, probability, value);
}

}  // namespace hyper_parallel
