#include "hyper_parallel/checkpoint/base64.h"

#include <array>
#include <cstdint>

namespace hyper_parallel {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoLetter = 64;

// The number of each letter.
constexpr auto kNumbers = [] {
  std::array<uint8_t, 256> numbers{};
  numbers.fill(kNoLetter);
  for (size_t i = 0; i < kLetters.size(); ++i) numbers[static_cast<uint8_t>(kLetters[i])] = static_cast<uint8_t>(i);
  return numbers;
}();

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (; !bytes.empty(); bytes.remove_prefix(bytes.size() < 3 ? bytes.size() : 3)) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i) group = (group << 8) | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0U);
    for (size_t i = 0; i < 4; ++i) text += i <= bytes.size() ? kLetters[(group >> (18 - 6 * i)) & 0x3F] : '=';
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : (text.ends_with('=') ? 1 : 0);
  text.remove_suffix(padding);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t group = 0;
  int group_bits = 0;
  for (const char letter : text) {
    const uint32_t number = kNumbers[static_cast<uint8_t>(letter)];
    if (number == kNoLetter) return std::nullopt;
    group = ((group << 6) | number) & 0xFFFF;
    group_bits += 6;
    if (group_bits < 8) continue;
    group_bits -= 8;
    bytes += static_cast<char>((group >> group_bits) & 0xFF);
  }
  const uint32_t left = group & ((uint32_t{1} << group_bits) - 1);
  return left == 0 ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace hyper_parallel
