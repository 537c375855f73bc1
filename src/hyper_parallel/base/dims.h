#pragma once

// Dims: one int64 per tensor dimension (a shape, offsets, strides).
//
// Planning makes many of them, nearly always of rank <= 6, so the first kInlineRank entries live inside the object
// and a Dims of that rank allocates nothing. Any rank works. A value type: copy, ==, iterate.

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace hyper_parallel {

class Dims {
 public:
  static constexpr size_t kInlineRank = 6;

  Dims() = default;
  /// `count` entries, each `value`.
  explicit Dims(size_t count, int64_t value) : Dims(Uninitialized{}, count) { std::fill_n(data(), count, value); }
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values) : Dims(Uninitialized{}, values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  Dims(const std::vector<int64_t>& values) : Dims(std::span<const int64_t>(values)) {}

  Dims(const Dims& other) : Dims(std::span<const int64_t>(other.data(), other.size())) {}
  /// Leaves `other` empty.
  Dims(Dims&& other) noexcept
      : size_(std::exchange(other.size_, 0)), inline_(other.inline_), heap_(std::move(other.heap_)) {}
  Dims& operator=(const Dims& other) { return *this = Dims(other); }
  Dims& operator=(Dims&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    inline_ = other.inline_;
    heap_ = std::move(other.heap_);
    return *this;
  }
  ~Dims() = default;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return heap_ ? heap_.get() : inline_.data(); }
  const int64_t* data() const { return heap_ ? heap_.get() : inline_.data(); }
  int64_t* begin() { return data(); }
  int64_t* end() { return data() + size_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t& operator[](size_t i) { return data()[i]; }
  int64_t operator[](size_t i) const { return data()[i]; }

  std::vector<int64_t> to_vector() const { return {begin(), end()}; }

  friend bool operator==(const Dims& a, const Dims& b) { return std::ranges::equal(a, b); }

 private:
  struct Uninitialized {};
  Dims(Uninitialized, size_t count) : size_(count) {
    if (count > kInlineRank) heap_ = std::make_unique<int64_t[]>(count);
  }

  size_t size_ = 0;
  std::array<int64_t, kInlineRank> inline_ = {};
  std::unique_ptr<int64_t[]> heap_;
};

}  // namespace hyper_parallel
