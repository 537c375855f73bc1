#pragma once

// The file `.metadata`: JSON of a CheckpointMetadata, versioned.
//
//   {"format": "hyper_parallel.checkpoint", "version": 1, "save_id": "16 hex digits",
//    "files": [["name", bytes], ...],
//    "tensors": {name: {"dtype": "F32", "shape": [ints],
//                       "chunks": [[file, begin, offsets..., sizes...], ...],   one row of 2 + 2*ndim integers each
//                       "tensor_keys": [key, ...],   as many as chunks, "" for the name; left out if all are ""
//                       "crc32c": [of every block of every chunk, in order]}, ...},
//    "values": {name: value, ...},
//    "structure": value,
//    "crc32c": of the text in front of the comma before this field}   left out: nothing vouches for the text
//
//   value = null | true | false | "text" | integer in int64 | float: a number with '.' or exponent | [value, ...]
//         | {"int": "digits"} | {"float": "nan" | "inf" | "-inf"} | {"complex": [float, float]}
//         | {"bytes": base64} | {"tuple": [value, ...]} | {"dict": [[key, value], ...]}
//
// A nan with other bits than Python's is {"float": "nan:<its bits in hex>"}. "format" and "version" come first, in this
// order, and "crc32c" last; other fields may stand in any order.
//
// The text is untrusted: reading it allocates in proportion to what is there, recurses nowhere beyond kMaxValueDepth,
// and refuses everything that is not exactly the format: a field twice, a name twice, an unknown field, a number that
// does not fit, an unknown version (the message names it and the newest that is known).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

namespace hyper_parallel {

/// The name of the file in a checkpoint's directory.
inline constexpr std::string_view kMetadataFile = ".metadata";

/// The newest version, which is the one written; older ones are read.
inline constexpr int64_t kMetadataVersion = 1;

/// The largest text that is read or written.
inline constexpr int64_t kMaxMetadataBytes = int64_t{1} << 30;

/// True if the text starts as this format does, whatever follows: to tell it from other programs' files.
bool looks_like_metadata(std::span<const std::byte> text);

/// Throws kDataLoss, the message starts with `source`, for any fault of the text.
CheckpointMetadata parse_metadata(std::span<const std::byte> text, std::string_view source);

/// Equal metadata give equal text, one line per tensor. Throws kInvalidArgument if it is over the limit.
std::string write_metadata(const CheckpointMetadata& metadata);

}  // namespace hyper_parallel
