#pragma once

// Bytes of messages between the ranks of one job: integers in little endian, everything else behind its length.
//
// What a ByteReader is given came from a ByteWriter of the same library, so a fault is a bug (kInternal). All the same
// it reads nothing past the end and allocates no more than the bytes that are there can fill.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/dims.h"
#include "hyper_parallel/checkpoint/value.h"

namespace hyper_parallel {

class ByteWriter {
 public:
  void write_byte(uint8_t value) { bytes_ += static_cast<char>(value); }
  void write_uint32(uint32_t value) { write_little_endian(value, 4); }
  void write_uint64(uint64_t value) { write_little_endian(value, 8); }
  void write_int64(int64_t value) { write_uint64(static_cast<uint64_t>(value)); }
  /// The length of a list, whose items the caller writes next.
  void write_count(size_t count) { write_uint64(count); }
  /// The bits, NaNs included.
  void write_double(double value);
  void write_string(std::string_view text);
  void write_dims(const Dims& dims);

  const std::string& bytes() const { return bytes_; }
  /// Leaves the writer empty.
  std::string take() { return std::exchange(bytes_, {}); }

 private:
  void write_little_endian(uint64_t value, int bytes);

  std::string bytes_;
};

/// Reads in the order in which it was written. Throws kInternal for bytes that end too early.
class ByteReader {
 public:
  /// The bytes must outlive the reader and the views that it hands out.
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  uint8_t read_byte();
  uint32_t read_uint32() { return static_cast<uint32_t>(read_little_endian(4)); }
  uint64_t read_uint64() { return read_little_endian(8); }
  int64_t read_int64() { return static_cast<int64_t>(read_uint64()); }
  /// The length of a list whose items take at least `item_bytes` each (one or more); throws if the rest cannot hold
  /// them.
  size_t read_count(size_t item_bytes);
  double read_double();
  std::string_view read_view();
  std::string read_string() { return std::string(read_view()); }
  Dims read_dims();

  /// Throws kInternal if bytes are left.
  void finish() const;

 private:
  std::string_view take(size_t count);
  uint64_t read_little_endian(int bytes);

  std::string_view bytes_;
};

/// Throws kInvalidArgument for a value that is nested deeper than kMaxValueDepth.
void write_value(ByteWriter& out, const Value& value);
Value read_value(ByteReader& in);

}  // namespace hyper_parallel
