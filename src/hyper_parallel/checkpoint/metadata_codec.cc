#include "hyper_parallel/checkpoint/metadata_codec.h"

#include <array>
#include <charconv>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/metadata_parser.h"
#include "hyper_parallel/checkpoint/value_json.h"

namespace hyper_parallel {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Takes `token` behind white space off the front of `text`.
bool take(std::string_view& text, std::string_view token) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || !text.substr(begin).starts_with(token)) return false;
  text.remove_prefix(begin + token.size());
  return true;
}

// Appends the pieces of a text that grows large: nothing is made in between.
class TextWriter {
 public:
  TextWriter& text(std::string_view piece) {
    out_ += piece;
    return *this;
  }
  TextWriter& quoted(std::string_view piece) {
    append_json_text(out_, piece);
    return *this;
  }
  TextWriter& number(int64_t value) {
    std::array<char, 24> digits{};
    out_.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
    return *this;
  }
  TextWriter& value(const Value& value) {
    append_json_value(out_, value);
    return *this;
  }
  /// Before an item of a list or object.
  TextWriter& item() {
    if (out_.back() != '[' && out_.back() != '{') out_ += ',';
    return *this;
  }
  /// The field that vouches for all before it.
  TextWriter& checksum() {
    const uint32_t of_text = crc32c(std::as_bytes(std::span(out_)));
    return text(",\n\"crc32c\":").number(of_text);
  }
  void check_size() const {
    HP_CHECK(static_cast<int64_t>(out_.size()) <= kMaxMetadataBytes, kInvalidArgument, "the metadata takes ",
             out_.size(), " bytes and more, over the limit of ", kMaxMetadataBytes);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

template <typename Range>
void write_numbers(TextWriter& out, const Range& numbers) {
  for (const int64_t number : numbers) out.item().number(number);
}

void write_chunk(TextWriter& out, const StoredChunk& chunk) {
  out.item().text("[").number(chunk.file).text(",").number(chunk.begin);
  write_numbers(out, chunk.box.offsets);
  write_numbers(out, chunk.box.sizes);
  out.text("]");
}

void write_keys(TextWriter& out, const StoredTensor& tensor) {
  bool has_keys = false;
  for (int64_t i = 0; i < tensor.chunk_count() && !has_keys; ++i) has_keys = tensor.chunk(i).key != tensor.name();
  if (!has_keys) return;
  out.text(R"(,"tensor_keys":[)");
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) {
    const std::string_view key = tensor.chunk(i).key;
    out.item().quoted(key == tensor.name() ? std::string_view() : key);
  }
  out.text("]");
}

void write_tensor(TextWriter& out, const StoredTensor& tensor) {
  out.item().text("\n").quoted(tensor.name()).text(R"(:{"dtype":)").quoted(to_string(tensor.dtype()));
  out.text(R"(,"shape":[)");
  write_numbers(out, tensor.shape());
  out.text(R"(],"chunks":[)");
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) write_chunk(out, tensor.chunk(i));
  out.text("]");
  write_keys(out, tensor);
  out.text(R"(,"crc32c":[)");
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) write_numbers(out, tensor.chunk(i).checksums);
  out.text("]}");
}

}  // namespace

bool looks_like_metadata(std::span<const std::byte> text) {
  std::string_view rest = text_of(text);
  return rest.starts_with('{') && take(rest, "{") && take(rest, "\"format\"") && take(rest, ":") &&
         take(rest, str_cat("\"", kMetadataFormat, "\""));
}

CheckpointMetadata parse_metadata(std::span<const std::byte> text, std::string_view source) {
  HP_CHECK(static_cast<int64_t>(text.size()) <= kMaxMetadataBytes, kDataLoss, source, ": the metadata has ",
           text.size(), " bytes, over the limit of ", kMaxMetadataBytes);
  try {
    return CheckpointMetadata(parse_metadata_parts(text_of(text)));
  } catch (const Error& error) {
    // Metadata that breaks its invariants is the caller's fault elsewhere; here it is the file's.
    const bool of_file = error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kDataLoss;
    raise(of_file ? ErrorCode::kDataLoss : error.code(), source, ": ", error.what());
  }
}

std::string write_metadata(const CheckpointMetadata& metadata) {
  TextWriter out;
  out.text(R"({"format":)").quoted(kMetadataFormat).text(R"(,"version":)").number(kMetadataVersion);
  out.text(",\n\"save_id\":").quoted(metadata.save_id()).text(",\n\"files\":[");
  for (const StoredFile& file : metadata.files()) {
    out.item().text("[").quoted(file.name).text(",").number(file.bytes).text("]");
  }
  out.text("],\n\"tensors\":{");
  for (const StoredTensor& tensor : metadata.tensors()) {
    write_tensor(out, tensor);
    out.check_size();
  }
  out.text("},\n\"values\":{");
  for (const NamedValue& entry : metadata.values()) {
    out.item().text("\n").quoted(entry.name).text(":").value(entry.value);
    out.check_size();
  }
  out.text("},\n\"structure\":").value(metadata.structure()).checksum().text("}\n");
  out.check_size();
  return out.take();
}

}  // namespace hyper_parallel
