#include "hyper_parallel/checkpoint/tensor_name.h"

#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// The second byte is where overlong forms, surrogates and values that are too large show.
bool second_byte_fits(uint8_t first, uint8_t second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0;
    case 0xED:
      return second < 0xA0;
    case 0xF0:
      return second >= 0x90;
    case 0xF4:
      return second < 0x90;
    default:
      return true;
  }
}

// The sequence length that a first byte announces; 0 if no sequence starts with it.
size_t announced_length(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

bool is_control(std::string_view sequence) {
  const uint8_t first = byte_at(sequence, 0);
  if (first < 0x20 || first == 0x7F) return true;
  return sequence.size() == 2 && first == 0xC2 && byte_at(sequence, 1) < 0xA0;
}

void append_escaped(std::string& out, std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (size_t i = 0; i < bytes.size(); ++i) {
    out += "\\x";
    out += kHex[byte_at(bytes, i) >> 4];
    out += kHex[byte_at(bytes, i) & 0xF];
  }
}

}  // namespace

size_t utf8_sequence_length(std::string_view text) {
  if (text.empty()) return 0;
  const size_t length = announced_length(byte_at(text, 0));
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte_at(text, i))) return 0;
  }
  if (length > 1 && !second_byte_fits(byte_at(text, 0), byte_at(text, 1))) return 0;
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    if (length == 0 || is_control(sequence)) {
      append_escaped(out, sequence);
    } else {
      out += sequence;
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

std::string quoted_name(std::string_view name) {
  if (name.size() <= kQuotedNameBytes) return str_cat("'", printable(name), "'");
  size_t cut = kQuotedNameBytes;
  while (cut > 0 && is_continuation(byte_at(name, cut))) --cut;
  return str_cat("'", printable(name.substr(0, cut)), "...' (", name.size(), " bytes)");
}

std::string shape_text(std::span<const int64_t> shape) {
  if (shape.size() <= kShownDims) return tuple_text(shape);
  return str_cat("(", join(shape.first(kShownDims), ", "), ", ...) (", shape.size(), " dims)");
}

}  // namespace hyper_parallel
