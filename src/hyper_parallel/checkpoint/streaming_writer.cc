#include "hyper_parallel/checkpoint/streaming_writer.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hyper_parallel {
namespace {

// Longer runs are not gathered, shorter gathered ones not streamed: what is gained is less than what it costs.
constexpr size_t kLongRunBytes = size_t{4} << 10;
constexpr size_t kShortStreamBytes = size_t{1} << 10;
constexpr size_t kLineBytes = 64;

// Runs of at least two whole lines, which gathering would only copy once more.
bool is_lines(const std::byte* to, size_t count) {
  return count >= 2 * kLineBytes && count % kLineBytes == 0 && reinterpret_cast<uintptr_t>(to) % kLineBytes == 0;
}

#if defined(__SSE2__)

void stream_line(std::byte* to, const std::byte* from) {
  for (size_t at = 0; at < kLineBytes; at += sizeof(__m128i)) {
    const __m128i piece = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), piece);
  }
}

// Only whole lines are streamed: one that is written in part this way costs more than one that is fetched.
void stream(std::byte* to, const std::byte* from, size_t count) {
  size_t at = (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes;
  std::memcpy(to, from, at);
  for (; at + kLineBytes <= count; at += kLineBytes) stream_line(to + at, from + at);
  std::memcpy(to + at, from + at, count - at);
}

// Streamed stores are not ordered with others.
void order_stores() { _mm_sfence(); }

#else

void stream(std::byte* to, const std::byte* from, size_t count) { std::memcpy(to, from, count); }

void order_stores() {}

#endif

void write_run(std::byte* to, const std::byte* from, size_t count) {
  if (count >= kShortStreamBytes) {
    stream(to, from, count);
  } else if (count > 0) {
    std::memcpy(to, from, count);
  }
}

}  // namespace

void StreamingWriter::copy(std::byte* to, const std::byte* from, size_t count) {
  if (to != to_ + count_ || count_ + count > kGatheredBytes || count >= kLongRunBytes) write_gathered();
  if (count >= kLongRunBytes || (count_ == 0 && is_lines(to, count))) {
    stream(to, from, count);
    return;
  }
  if (count_ == 0) to_ = to;
  std::memcpy(gathered_.data() + count_, from, count);
  count_ += count;
}

void StreamingWriter::write_gathered() {
  write_run(to_, gathered_.data(), count_);
  to_ = nullptr;
  count_ = 0;
}

void StreamingWriter::finish() {
  write_gathered();
  order_stores();
}

}  // namespace hyper_parallel
