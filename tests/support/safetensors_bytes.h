#pragma once

// Safetensors files put together byte by byte, right or wrong, without the code under test.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hyper_parallel {

/// The length field: 8 bytes, little endian.
inline std::string length_field(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((length >> (8 * i)) & 0xFF);
  return bytes;
}

/// A file with this JSON and this data, whatever they say.
inline std::string file_of(std::string_view json, std::string_view data = "") {
  return length_field(json.size()).append(json).append(data);
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace hyper_parallel
