#include "hyper_parallel/checkpoint/byte_codec.h"

#include <array>
#include <bit>
#include <span>
#include <type_traits>
#include <utility>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

// The alternatives of Value::Variant are told apart by their index, which is the byte in front of each value.
template <size_t index>
using Alternative = std::variant_alternative_t<index, Value::Variant>;

class ValueWriter {
 public:
  explicit ValueWriter(ByteWriter& out) : out_(out) {}

  void write(const Value& value) {
    out_.write_byte(static_cast<uint8_t>(value.variant().index()));
    std::visit(*this, value.variant());
  }

  void operator()(std::monostate) {}
  void operator()(bool value) { out_.write_byte(value ? 1 : 0); }
  void operator()(int64_t value) { out_.write_int64(value); }
  void operator()(const BigInteger& value) { out_.write_string(value.digits); }
  void operator()(double value) { out_.write_double(value); }
  void operator()(const std::complex<double>& value) {
    out_.write_double(value.real());
    out_.write_double(value.imag());
  }
  void operator()(const std::string& value) { out_.write_string(value); }
  void operator()(const Bytes& value) { out_.write_string(value.data); }
  void operator()(const ValueList& value) { write_items(value.items); }
  void operator()(const ValueTuple& value) { write_items(value.items); }
  void operator()(const ValueDict& value) {
    enter();
    out_.write_count(value.items.size());
    for (const auto& [key, item] : value.items) {
      write(key);
      write(item);
    }
    --depth_;
  }

 private:
  void write_items(const std::vector<Value>& items) {
    enter();
    out_.write_count(items.size());
    for (const Value& item : items) write(item);
    --depth_;
  }

  void enter() {
    ++depth_;
    HP_CHECK(depth_ <= kMaxValueDepth, kInvalidArgument, "a value is nested deeper than ", kMaxValueDepth, " levels");
  }

  ByteWriter& out_;
  int depth_ = 0;
};

class ValueReader {
 public:
  explicit ValueReader(ByteReader& in) : in_(in) {}

  Value read() { return read_alternative(std::make_index_sequence<std::variant_size_v<Value::Variant>>()); }

 private:
  template <size_t... indices>
  Value read_alternative(std::index_sequence<indices...>) {
    const size_t index = in_.read_byte();
    Value value;
    const bool known = ((index == indices && (value = make(std::type_identity<Alternative<indices>>()), true)) || ...);
    HP_CHECK(known, kInternal, "internal error: a message holds a value of the unknown kind ", index);
    return value;
  }

  Value make(std::type_identity<std::monostate>) { return {}; }
  Value make(std::type_identity<bool>) { return in_.read_byte() != 0; }
  Value make(std::type_identity<int64_t>) { return in_.read_int64(); }
  Value make(std::type_identity<BigInteger>) { return BigInteger{in_.read_string()}; }
  Value make(std::type_identity<double>) { return in_.read_double(); }
  Value make(std::type_identity<std::complex<double>>) {
    const double real = in_.read_double();
    return std::complex<double>(real, in_.read_double());
  }
  Value make(std::type_identity<std::string>) { return in_.read_string(); }
  Value make(std::type_identity<Bytes>) { return Bytes{in_.read_string()}; }
  Value make(std::type_identity<ValueList>) { return ValueList{read_items()}; }
  Value make(std::type_identity<ValueTuple>) { return ValueTuple{read_items()}; }
  Value make(std::type_identity<ValueDict>) {
    enter();
    ValueDict dict;
    for (size_t left = in_.read_count(2); left > 0; --left) {
      Value key = read();
      dict.items.emplace_back(std::move(key), read());
    }
    --depth_;
    return dict;
  }

  std::vector<Value> read_items() {
    enter();
    std::vector<Value> items;
    for (size_t left = in_.read_count(1); left > 0; --left) items.push_back(read());
    --depth_;
    return items;
  }

  void enter() {
    ++depth_;
    HP_CHECK(depth_ <= kMaxValueDepth, kInternal, "internal error: a message holds a value nested deeper than ",
             kMaxValueDepth, " levels");
  }

  ByteReader& in_;
  int depth_ = 0;
};

}  // namespace

void ByteWriter::write_little_endian(uint64_t value, int bytes) {
  std::array<char, 8> little{};
  for (size_t i = 0; i < little.size(); ++i) little[i] = static_cast<char>((value >> (8 * i)) & 0xFF);
  bytes_.append(little.data(), static_cast<size_t>(bytes));
}

void ByteWriter::write_double(double value) { write_uint64(std::bit_cast<uint64_t>(value)); }

void ByteWriter::write_string(std::string_view text) {
  write_count(text.size());
  bytes_ += text;
}

void ByteWriter::write_dims(const Dims& dims) {
  write_count(dims.size());
  for (const int64_t dim : dims) write_int64(dim);
}

std::string_view ByteReader::take(size_t count) {
  HP_CHECK(count <= bytes_.size(), kInternal, "internal error: a message ends early: ", count, " bytes are wanted, ",
           bytes_.size(), " are left");
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

uint64_t ByteReader::read_little_endian(int bytes) {
  const std::string_view taken = take(static_cast<size_t>(bytes));
  uint64_t value = 0;
  for (size_t i = taken.size(); i-- > 0;) value = (value << 8) | static_cast<uint8_t>(taken[i]);
  return value;
}

uint8_t ByteReader::read_byte() { return static_cast<uint8_t>(read_little_endian(1)); }

double ByteReader::read_double() { return std::bit_cast<double>(read_uint64()); }

size_t ByteReader::read_count(size_t item_bytes) {
  const uint64_t count = read_uint64();
  HP_CHECK(count <= bytes_.size() / item_bytes, kInternal, "internal error: a message ends early: ", count,
           " items are announced, ", bytes_.size(), " bytes are left");
  return count;
}

std::string_view ByteReader::read_view() { return take(read_count(1)); }

Dims ByteReader::read_dims() {
  Dims dims(read_count(8), 0);
  for (int64_t& dim : dims) dim = read_int64();
  return dims;
}

void ByteReader::finish() const {
  HP_CHECK(bytes_.empty(), kInternal, "internal error: a message has ", bytes_.size(), " bytes behind its end");
}

void write_value(ByteWriter& out, const Value& value) { ValueWriter(out).write(value); }

Value read_value(ByteReader& in) { return ValueReader(in).read(); }

}  // namespace hyper_parallel
