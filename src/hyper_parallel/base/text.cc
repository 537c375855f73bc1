#include "hyper_parallel/base/text.h"

#include <charconv>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

}  // namespace

void Scanner::skip_space() {
  while (position_ < text_.size() && is_space(text_[position_])) ++position_;
}

bool Scanner::accept(std::string_view token) {
  skip_space();
  if (!text_.substr(position_).starts_with(token)) return false;
  position_ += token.size();
  return true;
}

void Scanner::expect(std::string_view token) {
  if (!accept(token)) fail(str_cat("'", token, "'"));
}

int64_t Scanner::integer() {
  skip_space();
  int64_t value = 0;
  const char* begin = text_.data() + position_;
  const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (status != std::errc{}) fail("an int64");
  position_ += static_cast<size_t>(end - begin);
  return value;
}

std::string Scanner::identifier() {
  skip_space();
  const size_t begin = position_;
  while (position_ < text_.size() && is_word(text_[position_])) ++position_;
  if (position_ == begin) fail("a name");
  return std::string(text_.substr(begin, position_ - begin));
}

std::vector<int64_t> Scanner::integer_tuple(std::string_view open, std::string_view close) {
  std::vector<int64_t> values;
  expect(open);
  while (!accept(close)) {
    values.push_back(integer());
    if (accept(close)) break;
    expect(",");
  }
  return values;
}

bool Scanner::at_end() {
  skip_space();
  return position_ == text_.size();
}

void Scanner::finish() {
  if (!at_end()) fail("the end");
}

void Scanner::fail(std::string_view expected) const {
  raise(ErrorCode::kInvalidArgument, "cannot read '", text_, "': expected ", expected, " at position ", position_);
}

}  // namespace hyper_parallel
