#include "hyper_parallel/checkpoint/value_json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/base64.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint64_t kNanBits = 0x7ff8000000000000;  // of Python's and C's nan
constexpr std::string_view kNanPrefix = "nan:";    // before the bits of any other

template <typename Number>
void append_shortest(std::string& out, Number number) {
  std::array<char, 32> buffer{};
  out.append(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr);
}

std::string nan_text(double nan) {
  const auto bits = std::bit_cast<uint64_t>(nan);
  if (bits == kNanBits) return "nan";
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), bits, 16).ptr;
  return str_cat(kNanPrefix, std::string_view(digits.data(), end));
}

std::optional<double> parse_special_float(std::string_view text) {
  if (text == "nan") return std::bit_cast<double>(kNanBits);
  if (text == "inf") return kInfinity;
  if (text == "-inf") return -kInfinity;
  if (!text.starts_with(kNanPrefix)) return std::nullopt;
  uint64_t bits = 0;
  std::from_chars(text.data() + kNanPrefix.size(), text.data() + text.size(), bits, 16);
  const auto nan = std::bit_cast<double>(bits);
  return std::isnan(nan) && nan_text(nan) == text ? std::optional(nan) : std::nullopt;
}

void append_float(std::string& out, double value) {
  if (std::isnan(value)) {
    out += str_cat(R"({"float":")", nan_text(value), R"("})");
  } else if (std::isinf(value)) {
    out += value < 0 ? R"({"float":"-inf"})" : R"({"float":"inf"})";
  } else {
    const size_t begin = out.size();
    append_shortest(out, value);
    if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
  }
}

// For a message.
std::string short_text(const Value& value) { return printable(to_string(value).substr(0, kQuotedNameBytes)); }

class JsonPrinter {
 public:
  explicit JsonPrinter(std::string& out) : out_(out) {}

  void print(const Value& value) { std::visit(*this, value.variant()); }

  void operator()(std::monostate) { out_ += "null"; }
  void operator()(bool value) { out_ += value ? "true" : "false"; }
  void operator()(int64_t value) { append_shortest(out_, value); }
  void operator()(const BigInteger& value) {
    out_ += R"({"int":)";
    append_json_text(out_, value.digits);
    out_ += '}';
  }
  void operator()(double value) { append_float(out_, value); }
  void operator()(const std::complex<double>& value) {
    out_ += R"({"complex":[)";
    append_float(out_, value.real());
    out_ += ',';
    append_float(out_, value.imag());
    out_ += "]}";
  }
  void operator()(const std::string& value) { append_json_text(out_, value); }
  void operator()(const Bytes& value) { out_ += str_cat(R"({"bytes":")", base64_encode(value.data), R"("})"); }
  void operator()(const ValueList& value) { print_items(value.items); }
  void operator()(const ValueTuple& value) {
    out_ += R"({"tuple":)";
    print_items(value.items);
    out_ += '}';
  }
  void operator()(const ValueDict& value) {
    enter();
    out_ += R"({"dict":[)";
    for (const auto& [key, item] : value.items) {
      separate();
      out_ += '[';
      print(key);
      out_ += ',';
      print(item);
      out_ += ']';
    }
    out_ += "]}";
    --depth_;
  }

 private:
  void print_items(const std::vector<Value>& items) {
    enter();
    out_ += '[';
    for (const Value& item : items) {
      separate();
      print(item);
    }
    out_ += ']';
    --depth_;
  }

  void separate() {
    if (out_.back() != '[') out_ += ',';
  }

  void enter() {
    ++depth_;
    HP_CHECK(depth_ <= kMaxValueDepth, kInvalidArgument, "a value is nested deeper than ", kMaxValueDepth, " levels");
  }

  std::string& out_;
  int depth_ = 0;
};

}  // namespace

void append_json_text(std::string& out, std::string_view text) {
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (std::ranges::all_of(text, is_plain)) {
    out += '"';
    out += text;
    out += '"';
    return;
  }
  HP_CHECK(is_utf8(text), kInvalidArgument, "the text ", quoted_name(text), " is not UTF-8");
  out += nlohmann::json(text).dump();
}

void append_json_value(std::string& out, const Value& value) { JsonPrinter(out).print(value); }

void ValueBuilder::begin(std::string owner) {
  owner_ = std::move(owner);
  frames_.clear();
  depth_ = 0;
  result_ = {};
  complete_ = false;
}

void ValueBuilder::add_object() {
  const Kind around = frames_.empty() ? Kind::kList : frames_.back().kind;
  if (around == Kind::kObject || around == Kind::kDict) refuse("an object");
  frames_.push_back({.kind = Kind::kObject, .items = {}, .dict = {}});
}

void ValueBuilder::add_key(std::string_view key) {
  Frame& object = frames_.back();
  HP_CHECK(object.tag == Tag::kNone, kDataLoss, owner_, ": an object must have one field, found another, ",
           quoted_name(key));
  object.tag = find_tag(key);
  HP_CHECK(object.tag != Tag::kNone, kDataLoss, owner_, ": ", quoted_name(key),
           " is not one of the kinds 'int', 'float', 'complex', 'bytes', 'tuple' and 'dict'");
}

void ValueBuilder::end_object() {
  HP_CHECK(frames_.back().tag != Tag::kNone, kDataLoss, owner_, ": an object must have one field, found none");
  Value content = std::move(frames_.back().items.front());
  frames_.pop_back();
  accept(std::move(content));
}

void ValueBuilder::add_array() {
  const Kind around = frames_.empty() ? Kind::kList : frames_.back().kind;
  if (around == Kind::kComplex) refuse("a list");
  if (around == Kind::kDict) return push(Kind::kPair);
  if (around != Kind::kObject) return push(Kind::kList);
  switch (frames_.back().tag) {
    case Tag::kTuple:
      return push(Kind::kTuple);
    case Tag::kDict:
      return push(Kind::kDict);
    case Tag::kComplex:
      return push(Kind::kComplex);
    case Tag::kNone:
    case Tag::kInt:
    case Tag::kFloat:
    case Tag::kBytes:
      refuse("a list");
  }
}

void ValueBuilder::end_array() {
  Frame array = std::move(frames_.back());
  frames_.pop_back();
  if (array.kind == Kind::kList || array.kind == Kind::kTuple || array.kind == Kind::kDict) --depth_;
  switch (array.kind) {
    case Kind::kList:
      return accept(ValueList{std::move(array.items)});
    case Kind::kTuple:
      return fill_object(ValueTuple{std::move(array.items)});
    case Kind::kDict:
      return fill_object(std::move(array.dict));
    case Kind::kPair:
      return add_pair(array.items);
    case Kind::kComplex:
      return fill_object(complex_of(array.items));
    case Kind::kObject:
      break;  // JSON's grammar ends a list only
  }
  raise(ErrorCode::kInternal, "internal error: the end of a list inside an object");
}

void ValueBuilder::add_text(std::string& text) {
  if (frames_.empty() || frames_.back().kind != Kind::kObject) return accept(std::move(text));
  fill_object(tagged_text(frames_.back().tag, text));
}

void ValueBuilder::add_number(Value value) {
  if (!frames_.empty() && frames_.back().kind == Kind::kObject) refuse(short_text(value));
  accept(std::move(value));
}

// A value of its own is complete: it goes into what is around it.
void ValueBuilder::accept(Value value) {
  if (frames_.empty()) {
    result_ = std::move(value);
    complete_ = true;
    return;
  }
  Frame& around = frames_.back();
  if (around.kind == Kind::kDict) refuse(short_text(value));
  if (around.kind == Kind::kComplex && !std::holds_alternative<double>(value.variant())) refuse(short_text(value));
  around.items.push_back(std::move(value));
}

// The content of the object on top: its one field.
void ValueBuilder::fill_object(Value content) { frames_.back().items.push_back(std::move(content)); }

void ValueBuilder::add_pair(std::vector<Value>& items) {
  if (items.size() != 2) refuse(str_cat("a list of ", items.size()));
  frames_.back().dict.items.emplace_back(std::move(items[0]), std::move(items[1]));
}

Value ValueBuilder::complex_of(const std::vector<Value>& items) const {
  if (items.size() != 2) refuse(str_cat("a list of ", items.size()));
  return std::complex<double>(std::get<double>(items[0].variant()), std::get<double>(items[1].variant()));
}

Value ValueBuilder::tagged_text(Tag tag, std::string& text) const {
  switch (tag) {
    case Tag::kInt:
      return BigInteger{std::move(text)};
    case Tag::kFloat:
      if (const auto number = parse_special_float(text)) return *number;
      break;
    case Tag::kBytes:
      if (auto bytes = base64_decode(text)) return Bytes{*std::move(bytes)};
      break;
    case Tag::kNone:
    case Tag::kComplex:
    case Tag::kTuple:
    case Tag::kDict:
      break;
  }
  refuse(quoted_name(text));
}

void ValueBuilder::push(Kind kind) {
  if (kind != Kind::kPair && kind != Kind::kComplex) ++depth_;
  HP_CHECK(depth_ <= kMaxValueDepth, kDataLoss, owner_, " is nested deeper than ", kMaxValueDepth, " levels");
  frames_.push_back({.kind = kind, .items = {}, .dict = {}});
}

void ValueBuilder::refuse(std::string_view found) const {
  if (frames_.empty()) raise(ErrorCode::kDataLoss, owner_, " must be a value, found ", found);
  switch (frames_.back().kind) {
    case Kind::kObject:
      raise(ErrorCode::kDataLoss, owner_, ": ", rule_of(frames_.back().tag), ", found ", found);
    case Kind::kDict:
      raise(ErrorCode::kDataLoss, owner_, ": ", rule_of(Tag::kDict), ", found ", found);
    case Kind::kComplex:
      raise(ErrorCode::kDataLoss, owner_, ": ", rule_of(Tag::kComplex), ", found ", found);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kPair:
      raise(ErrorCode::kDataLoss, owner_, ": an item must be a value, found ", found);
  }
  raise(ErrorCode::kInternal, "internal error: a value of no kind");
}

ValueBuilder::Tag ValueBuilder::find_tag(std::string_view key) {
  using Named = std::pair<std::string_view, Tag>;
  static constexpr std::array kTags = {Named{"int", Tag::kInt},         Named{"float", Tag::kFloat},
                                       Named{"complex", Tag::kComplex}, Named{"bytes", Tag::kBytes},
                                       Named{"tuple", Tag::kTuple},     Named{"dict", Tag::kDict}};
  const auto* found = std::ranges::find(kTags, key, &Named::first);
  return found == kTags.end() ? Tag::kNone : found->second;
}

std::string_view ValueBuilder::rule_of(Tag tag) {
  switch (tag) {
    case Tag::kInt:
      return "an 'int' must be text of digits";
    case Tag::kFloat:
      return "a 'float' must be one of 'nan', 'inf', '-inf', and 'nan:' with the bits of another nan in hex";
    case Tag::kComplex:
      return "a 'complex' must be a list of 2 floats";
    case Tag::kBytes:
      return "'bytes' must be text in base64";
    case Tag::kTuple:
      return "a 'tuple' must be a list";
    case Tag::kDict:
      return "a 'dict' must be a list of pairs, each a list of key and value";
    case Tag::kNone:
      break;
  }
  return "an object must have one field";
}

}  // namespace hyper_parallel
