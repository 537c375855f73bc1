#include "hyper_parallel/checkpoint/value.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/byte_codec.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

bool same(double a, double b) { return bits(a) == bits(b); }

bool same(const std::complex<double>& a, const std::complex<double>& b) {
  return same(a.real(), b.real()) && same(a.imag(), b.imag());
}

template <typename T>
bool same(const T& a, const T& b) {
  return a == b;
}

bool fits_int64(std::string_view digits) {
  int64_t number = 0;
  return std::from_chars(digits.data(), digits.data() + digits.size(), number).ec == std::errc();
}

bool is_big_integer(std::string_view digits) {
  const std::string_view magnitude = digits.substr(digits.starts_with('-') ? 1 : 0);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !magnitude.empty() && magnitude.front() != '0' && std::ranges::all_of(magnitude, is_digit) &&
         !fits_int64(digits);
}

class ValueChecker {
 public:
  explicit ValueChecker(std::string_view owner) : owner_(owner) {}

  void check(const Value& value) { std::visit(*this, value.variant()); }

  void operator()(std::monostate) {}
  void operator()(bool) {}
  void operator()(int64_t) {}
  void operator()(double) {}
  void operator()(const std::complex<double>&) {}
  void operator()(const Bytes&) {}
  void operator()(const BigInteger& value) {
    HP_CHECK(is_big_integer(value.digits), kInvalidArgument, owner_, " has the big integer ", quoted_name(value.digits),
             ", but its digits must be an integer outside int64 without leading zeros");
  }
  void operator()(const std::string& value) {
    HP_CHECK(is_utf8(value), kInvalidArgument, owner_, " has the text ", quoted_name(value), ", which is not UTF-8");
  }
  void operator()(const ValueList& value) { check_items(value.items); }
  void operator()(const ValueTuple& value) { check_items(value.items); }
  void operator()(const ValueDict& value) {
    enter();
    for (const auto& [key, item] : value.items) {
      check(key);
      check(item);
    }
    check_keys(value);
    --depth_;
  }

 private:
  void check_items(const std::vector<Value>& items) {
    enter();
    for (const Value& item : items) check(item);
    --depth_;
  }

  // Equal values have equal bytes, which can be sorted.
  void check_keys(const ValueDict& dict) const {
    std::vector<std::string> keys;
    keys.reserve(dict.items.size());
    for (const auto& [key, item] : dict.items) {
      ByteWriter out;
      write_value(out, key);
      keys.push_back(out.take());
    }
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice == keys.end()) return;
    ByteReader in(*twice);
    raise(ErrorCode::kInvalidArgument, owner_, " has a dict with the key ", to_string(read_value(in)), " twice");
  }

  void enter() {
    ++depth_;
    HP_CHECK(depth_ <= kMaxValueDepth, kInvalidArgument, owner_, " is nested deeper than ", kMaxValueDepth, " levels");
  }

  std::string_view owner_;
  int depth_ = 0;
};

// Shortest digits that read back the same, in Python's choice of notation; `whole` is what follows a whole number.
std::string float_text(double value, std::string_view whole) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer{};
  const auto print = [&](std::chars_format format) {
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
    return std::string(buffer.data(), end);
  };
  std::string scientific = print(std::chars_format::scientific);
  int exponent = 0;
  const size_t sign = scientific.find('e') + 1;
  std::from_chars(scientific.data() + sign + (scientific[sign] == '+' ? 1 : 0), scientific.data() + scientific.size(),
                  exponent);
  if (exponent < -4 || exponent >= 16) return scientific;
  std::string fixed = print(std::chars_format::fixed);
  if (fixed.find('.') == std::string::npos) fixed += whole;
  return fixed;
}

std::string complex_text(const std::complex<double>& value) {
  std::string imag = float_text(value.imag(), "") + "j";
  if (bits(value.real()) == 0) return imag;
  const bool has_sign = imag.starts_with('-');
  return str_cat("(", float_text(value.real(), ""), has_sign ? "" : "+", imag, ")");
}

std::optional<char> escape_letter(char c) {
  switch (c) {
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return std::nullopt;
  }
}

std::string hex_escape(uint8_t byte) {
  constexpr std::string_view kHex = "0123456789abcdef";
  return {'\\', 'x', kHex[byte >> 4], kHex[byte & 0xF]};
}

// In quotes, with a backslash before quotes and backslashes; `escape` says how else a sequence starts, and returns how
// many bytes it took.
template <typename Escape>
std::string quoted(std::string_view text, Escape escape) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const char c = text.front();
    size_t taken = 1;
    if (c == quote || c == '\\') {
      out.append({'\\', c});
    } else if (const auto letter = escape_letter(c)) {
      out.append({'\\', *letter});
    } else {
      taken = escape(out, text);
    }
    text.remove_prefix(taken);
  }
  return out + quote;
}

std::string string_text(std::string_view text) {
  return quoted(text, [](std::string& out, std::string_view rest) {
    const size_t length = std::max<size_t>(utf8_sequence_length(rest), 1);
    const std::string_view sequence = rest.substr(0, length);
    // Python shows a control character by its code point, which for U+0080 to U+009F is the second byte.
    const std::string shown = printable(sequence);
    out += shown == sequence ? shown : hex_escape(static_cast<uint8_t>(sequence.back()));
    return length;
  });
}

std::string bytes_text(std::string_view data) {
  return "b" + quoted(data, [](std::string& out, std::string_view rest) {
           const char c = rest.front();
           if (c >= ' ' && c <= '~') {
             out += c;
           } else {
             out += hex_escape(static_cast<uint8_t>(c));
           }
           return size_t{1};
         });
}

std::string items_text(const std::vector<Value>& items) {
  std::string out;
  for (const Value& item : items) {
    if (!out.empty()) out += ", ";
    out += to_string(item);
  }
  return out;
}

struct ValuePrinter {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(const BigInteger& value) const { return value.digits; }
  std::string operator()(double value) const { return float_text(value, ".0"); }
  std::string operator()(const std::complex<double>& value) const { return complex_text(value); }
  std::string operator()(const std::string& value) const { return string_text(value); }
  std::string operator()(const Bytes& value) const { return bytes_text(value.data); }
  std::string operator()(const ValueList& value) const { return "[" + items_text(value.items) + "]"; }
  std::string operator()(const ValueTuple& value) const {
    return "(" + items_text(value.items) + (value.items.size() == 1 ? ",)" : ")");
  }
  std::string operator()(const ValueDict& value) const {
    std::string out = "{";
    for (const auto& [key, item] : value.items) {
      if (out.size() > 1) out += ", ";
      out += to_string(key) + ": " + to_string(item);
    }
    return out + "}";
  }
};

}  // namespace

bool operator==(const ValueList& a, const ValueList& b) { return a.items == b.items; }
bool operator==(const ValueTuple& a, const ValueTuple& b) { return a.items == b.items; }
bool operator==(const ValueDict& a, const ValueDict& b) { return a.items == b.items; }

bool operator==(const Value& a, const Value& b) {
  if (a.variant().index() != b.variant().index()) return false;
  return std::visit(
      [&b](const auto& value) { return same(value, std::get<std::remove_cvref_t<decltype(value)>>(b.variant())); },
      a.variant());
}

void check_value(const Value& value, std::string_view owner) { ValueChecker(owner).check(value); }

std::string to_string(const Value& value) { return std::visit(ValuePrinter{}, value.variant()); }

}  // namespace hyper_parallel
