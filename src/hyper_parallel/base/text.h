#pragma once

// Small text helpers: concatenation, lists, and a scanner for the library's own notations.

#include <cstdint>
#include <ranges>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace hyper_parallel {

/// Joins the parts as an ostream would print them. Example: str_cat("dim ", 3) == "dim 3".
template <typename... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// The items with `separator` between them. Example: join({1, 2}, ", ") == "1, 2".
template <std::ranges::input_range Range>
std::string join(const Range& items, std::string_view separator) {
  std::ostringstream out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out << separator;
    first = false;
    out << item;
  }
  return std::move(out).str();
}

/// A Python tuple of the items: "()", "(5,)", "(6, 4, 8)".
template <std::ranges::sized_range Range>
std::string tuple_text(const Range& items) {
  return str_cat("(", join(items, ", "), std::ranges::size(items) == 1 ? ",)" : ")");
}

/// Reads a notation from left to right; white space between tokens is skipped.
/// Throws kInvalidArgument with the whole text and the position where it does not fit.
class Scanner {
 public:
  /// The text must outlive the scanner.
  explicit Scanner(std::string_view text) : text_(text) {}
  explicit Scanner(const char* text) : text_(text) {}
  explicit Scanner(std::string&&) = delete;

  /// Takes `token` if it comes next.
  bool accept(std::string_view token);
  /// Takes `token` or throws.
  void expect(std::string_view token);
  /// A decimal integer with an optional sign; throws if it leaves int64.
  int64_t integer();
  /// Letters, digits and underscores, at least one.
  std::string identifier();
  /// The integers of "(1, 2)" or "(1,)" or "()", with either bracket pair.
  std::vector<int64_t> integer_tuple(std::string_view open = "(", std::string_view close = ")");
  /// Throws unless only white space is left.
  void finish();
  bool at_end();

  [[noreturn]] void fail(std::string_view expected) const;

 private:
  void skip_space();

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace hyper_parallel
