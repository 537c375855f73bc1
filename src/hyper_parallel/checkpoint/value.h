#pragma once

// Value: what a state dict holds beside tensors, as plain data: the values that Python programs keep in one.
//
//   None · bool · int of any size · float · complex · str · bytes · list · tuple · dict with keys of any such kind
//
// A value keeps its type: 1 is not True, 1.0 is not 1, () is not []. Text is UTF-8.

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace hyper_parallel {

class Value;

/// An integer outside int64: decimal digits with an optional '-', no leading zero. Smaller ones are int64_t.
struct BigInteger {
  std::string digits;
  friend bool operator==(const BigInteger&, const BigInteger&) = default;
};

struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

struct ValueList {
  std::vector<Value> items;
  friend bool operator==(const ValueList&, const ValueList&);
};

struct ValueTuple {
  std::vector<Value> items;
  friend bool operator==(const ValueTuple&, const ValueTuple&);
};

/// Entries in the order of insertion; keys are unique.
struct ValueDict {
  std::vector<std::pair<Value, Value>> items;
  friend bool operator==(const ValueDict&, const ValueDict&);
};

class Value {
 public:
  using Variant = std::variant<std::monostate, bool, int64_t, BigInteger, double, std::complex<double>, std::string,
                               Bytes, ValueList, ValueTuple, ValueDict>;

  template <typename T>
  static constexpr bool kIsAlternative =
      std::is_same_v<T, std::monostate> || std::is_same_v<T, bool> || std::is_same_v<T, int64_t> ||
      std::is_same_v<T, BigInteger> || std::is_same_v<T, double> || std::is_same_v<T, std::complex<double>> ||
      std::is_same_v<T, std::string> || std::is_same_v<T, Bytes> || std::is_same_v<T, ValueList> ||
      std::is_same_v<T, ValueTuple> || std::is_same_v<T, ValueDict>;

  /// None.
  Value() = default;
  /// A value of exactly that kind: an int stays an int64_t, true a bool.
  template <typename T>
    requires(kIsAlternative<std::remove_cvref_t<T>>)
  Value(T&& value) : variant_(std::in_place_type<std::remove_cvref_t<T>>, std::forward<T>(value)) {}
  Value(const char* text) : variant_(std::string(text)) {}

  const Variant& variant() const { return variant_; }
  Variant& variant() { return variant_; }
  bool is_none() const { return std::holds_alternative<std::monostate>(variant_); }

  /// Same type and same content. Floats compare by their bits: NaN equals the same NaN, 0.0 is not -0.0.
  friend bool operator==(const Value& a, const Value& b);

 private:
  Variant variant_;
};

/// The most lists, tuples and dicts around an item of a value. Values nested deeper are refused wherever one is read or
/// written.
inline constexpr int kMaxValueDepth = 64;

/// Throws kInvalidArgument, the message starts with `owner`, for a value that no checkpoint can hold: one that is
/// nested deeper than kMaxValueDepth, whose text is not UTF-8, that has a dict with a key twice, or a BigInteger whose
/// digits are not as described there.
void check_value(const Value& value, std::string_view owner);

/// As Python prints it: "{'lr': 0.1, 'betas': (0.9, 0.999), 7: None}". Control characters and bytes that are not text
/// are escaped, so that the result is one line.
std::string to_string(const Value& value);

}  // namespace hyper_parallel
