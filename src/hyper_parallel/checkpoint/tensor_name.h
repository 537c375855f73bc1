#pragma once

// Names and shapes that came from a file, made safe to show.
//
// A tensor name is any UTF-8 text, chosen by whoever wrote the file: it may be empty, hold line feeds or terminal
// escape sequences, or be a hundred megabytes long; a shape may have millions of dims. What is printed or put into a
// message goes through here.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hyper_parallel {

/// Bytes of the well-formed UTF-8 sequence that `text` starts with: 1 to 4, or 0 if it starts with none.
/// Overlong forms, surrogates and values over U+10FFFF are not well-formed.
size_t utf8_sequence_length(std::string_view text);

bool is_utf8(std::string_view text);

/// `text` with each control character (C0, DEL, C1) and each byte that is not UTF-8 as \xNN.
/// The result is one line of UTF-8. Example: printable("a\nb") == "a\\x0ab".
std::string printable(std::string_view text);

/// `printable` in single quotes, cut after about `kQuotedNameBytes` bytes with the full length behind it.
/// Example: quoted_name("w") == "'w'".
std::string quoted_name(std::string_view name);

/// The longest name that `quoted_name` shows whole, in bytes.
inline constexpr size_t kQuotedNameBytes = 200;

/// A shape as a Python tuple, cut after `kShownDims` dims with the full count behind it. Example: "(6, 4)".
std::string shape_text(std::span<const int64_t> shape);

/// The most dims that `shape_text` shows.
inline constexpr size_t kShownDims = 16;

}  // namespace hyper_parallel
