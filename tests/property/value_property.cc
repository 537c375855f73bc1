// Values of any kind and nesting through both of their encodings.

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/byte_codec.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "tests/property/property.h"
#include "tests/support/value_samples.h"

namespace hyper_parallel::test {
namespace {

double draw_double() { return std::bit_cast<double>((draw(0, 0xFFFFFFFF) << 32) | draw(0, 0xFFFFFFFF)); }

std::string draw_bytes() {
  std::string bytes;
  for (int64_t size = draw(0, 9); size > 0; --size) bytes += static_cast<char>(draw(0, 255));
  return bytes;
}

std::string draw_text() {
  const std::vector<std::string> letters{"a", "\"", "\\", "\n", std::string(1, '\0'), "\xc3\xa9", "\xf0\x9f\x98\x80",
                                         "{"};
  std::string text;
  for (int64_t size = draw(0, 9); size > 0; --size) text += draw_of(letters);
  return text;
}

Value draw_value(int levels);

std::vector<Value> draw_items(int levels) {
  std::vector<Value> items;
  for (int64_t size = draw(0, 4); size > 0; --size) items.push_back(draw_value(levels - 1));
  return items;
}

ValueDict draw_dict(int levels) {
  ValueDict dict;
  for (Value& key : draw_items(levels)) {
    const bool known = std::ranges::any_of(dict.items, [&key](const auto& item) { return item.first == key; });
    if (!known) dict.items.emplace_back(std::move(key), draw_value(levels - 1));
  }
  return dict;
}

Value draw_value(int levels) {
  switch (draw(0, levels > 0 ? 7 : 4)) {
    case 0:
      return draw_of(value_samples());
    case 1:
      return draw_double();
    case 2:
      return std::complex<double>(draw_double(), draw_double());
    case 3:
      return Bytes{draw_bytes()};
    case 4:
      return draw_text();
    case 5:
      return ValueList{draw_items(levels)};
    case 6:
      return ValueTuple{draw_items(levels)};
    default:
      return draw_dict(levels);
  }
}

TEST(AnyValue, ComesBackFromBytesAndFromMetadata) {
  check_property(2000, [] {
    CheckpointParts parts;
    parts.save_id = "0123456789abcdef";
    parts.values = {{"x", *drawn([] { return draw_value(4); })}};
    const CheckpointMetadata metadata(parts);
    const std::string text = write_metadata(metadata);
    RC_ASSERT(parse_metadata(std::as_bytes(std::span(text)), "text") == metadata);
    ByteWriter out;
    write_value(out, parts.values[0].value);
    ByteReader in(out.bytes());
    RC_ASSERT(read_value(in) == parts.values[0].value);
  });
}

}  // namespace
}  // namespace hyper_parallel::test
