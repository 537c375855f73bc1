#pragma once

// Bytes of a safetensors file to a SafetensorsHeader and back.
//
//   file = N: header length, 8 bytes, little endian  ·  header: N bytes of JSON  ·  data section: the rest
//   JSON = {"__metadata__": {key: text, ...},
//           name: {"dtype": text, "shape": [ints], "data_offsets": [begin, end]}, ...}
//
// The header is untrusted. Reading it touches no byte past the span it is given, allocates in proportion to the bytes
// that are there (never by a number that a file declares), and recurses nowhere. It is strict: everything that is not
// exactly the format is refused, also where the stock library is lenient (the same name twice, unknown fields, a
// blank before the first brace, null for __metadata__).
//
// Faults of a file's content throw kDataLoss, the message starts with `source`.
//
// To read a file that is mapped or in memory, pass all of it to both functions. To read one through pread, fetch 8
// bytes, ask `safetensors_data_begin`, fetch the rest of the header, then parse:
//
//   int64_t data_begin = safetensors_data_begin(first_8_bytes, file_size, path);
//   SafetensorsHeader header = parse_safetensors_header(first_data_begin_bytes, file_size, path);

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hyper_parallel/checkpoint/safetensors_header.h"

namespace hyper_parallel {

/// The largest N that is read or written, the stock library's limit.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Bytes of the field N.
inline constexpr int64_t kSafetensorsLengthBytes = 8;

/// Where the data section begins in the file: 8 + N.
/// `head` is the file's first bytes, at least min(8, file_size). Throws kDataLoss if the file has fewer than 8 bytes,
/// if N is over the limit, or if the file ends before the header does; kInvalidArgument if `head` is too short for its
/// file.
int64_t safetensors_data_begin(std::span<const std::byte> head, int64_t file_size, std::string_view source);

/// Reads the header and proves that it describes `file_size` bytes exactly.
/// `head` is the file's first bytes, at least 8 + N of them; more does no harm. Throws kDataLoss for any fault of the
/// content, kInvalidArgument if `head` is too short for its file.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, int64_t file_size, std::string_view source);

/// The 8 + N bytes that come before the data section. Equal headers give equal bytes: metadata by key, then tensors in
/// the order of their bytes. Spaces pad N to a multiple of 8, so that the data section is aligned.
/// Throws kInvalidArgument if N is over the limit.
std::string write_safetensors_header(const SafetensorsHeader& header);

}  // namespace hyper_parallel
