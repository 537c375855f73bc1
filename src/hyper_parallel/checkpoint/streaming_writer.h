#pragma once

// Copies many short runs to memory that is not read again soon, past the caches.
//
// An ordinary store first fetches the line that it writes. For runs whose sum is far larger than the caches, that fetch
// doubles the traffic. So runs that follow one another in memory are gathered in a small piece that stays in the
// nearest cache, and from there whole lines are written straight to memory, where the processor can do it.

#include <array>
#include <cstddef>

namespace hyper_parallel {

class StreamingWriter {
 public:
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): bytes are written before they are read.
  StreamingWriter() = default;
  /// Finishes.
  ~StreamingWriter() { finish(); }
  StreamingWriter(const StreamingWriter&) = delete;
  StreamingWriter& operator=(const StreamingWriter&) = delete;

  /// As memcpy, done at `finish` at the latest. `from` is free at once.
  void copy(std::byte* to, const std::byte* from, size_t count);

  /// All copies are made, and other threads that are told so see them.
  void finish();

 private:
  static constexpr size_t kGatheredBytes = size_t{16} << 10;

  void write_gathered();

  alignas(64) std::array<std::byte, kGatheredBytes> gathered_;
  std::byte* to_ = nullptr;
  size_t count_ = 0;
};

}  // namespace hyper_parallel
