#include "hyper_parallel/checkpoint/safetensors_codec.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::json;

// Follows the JSON events of a header; each state is what may come next. The JSON library's parser keeps its nesting in
// a vector, and the states here admit a depth of three, so no input can exhaust the stack. Every fault is thrown at
// the event that shows it.
class HeaderEvents final : public nlohmann::json_sax<Json> {
 public:
  std::vector<TensorEntry> take_tensors() { return std::move(tensors_); }
  SafetensorsMetadata take_metadata() { return std::move(metadata_); }

  bool start_object(size_t /*size*/) override {
    if (state_ == State::kHeader) return go(State::kName);
    if (state_ == State::kMetadata) return go(State::kMetadataKey);
    if (state_ == State::kTensor) return go(State::kField);
    refuse("an object");
  }

  bool key(std::string& text) override {
    if (state_ == State::kName) return enter_name(text);
    if (state_ == State::kMetadataKey) return enter_metadata_key(text);
    HP_DCHECK(state_ == State::kField);
    return enter_field(text);
  }

  bool end_object() override {
    if (state_ == State::kField) finish_tensor();
    return go(state_ == State::kName ? State::kEnd : State::kName);
  }

  bool start_array(size_t /*size*/) override {
    if (state_ == State::kShape) return go(State::kDims);
    if (state_ == State::kOffsets) return go(State::kOffsetItems);
    refuse("a list");
  }

  bool end_array() override {
    if (state_ == State::kOffsetItems && offsets_seen_ != 2) refuse(str_cat("a list of ", offsets_seen_));
    return go(State::kField);
  }

  bool string(std::string& text) override {
    if (state_ == State::kMetadataText) {
      metadata_[metadata_key_] = std::move(text);
      return go(State::kMetadataKey);
    }
    if (state_ != State::kDType) refuse(quoted_name(text));
    const std::optional<DType> dtype = find_dtype(text);
    HP_CHECK(dtype.has_value(), kDataLoss, tensor_text(), " has the unknown dtype ", quoted_name(text));
    tensors_.back().dtype = *dtype;
    return go(State::kField);
  }

  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) refuse(str_cat(value));
    const auto number = static_cast<int64_t>(value);
    if (state_ == State::kDims) {
      tensors_.back().shape.push_back(number);
    } else if (state_ == State::kOffsetItems) {
      if (offsets_seen_ == 2) refuse("a third item");
      (offsets_seen_ == 0 ? tensors_.back().begin : tensors_.back().end) = number;
      ++offsets_seen_;
    } else {
      refuse(str_cat(value));
    }
    return true;
  }

  bool number_integer(int64_t value) override { refuse(str_cat(value == 0 ? "-" : "", value)); }
  bool number_float(double /*value*/, const std::string& text) override { refuse(text.substr(0, kQuotedNameBytes)); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool null() override { refuse("null"); }
  bool binary(Json::binary_t& /*value*/) override { refuse("binary data"); }

  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    // The library's text is "[...] parse error at line L, column C: <reason>", and it quotes input of any length.
    const std::string_view text = error.what();
    const size_t colon = text.find(": ");
    const std::string_view reason = colon == std::string_view::npos ? text : text.substr(colon + 2);
    raise(ErrorCode::kDataLoss, "the header is not JSON at its byte ", position, ": ",
          printable(reason.substr(0, kQuotedNameBytes)));
  }

 private:
  enum class State {
    kHeader,        // the value of the whole header
    kName,          // a tensor name or "__metadata__", or the end
    kMetadata,      // the value of "__metadata__"
    kMetadataKey,   // a key in it, or its end
    kMetadataText,  // the value of such a key
    kTensor,        // the value of a tensor name
    kField,         // a field of a tensor, or the tensor's end
    kDType,         // the value of "dtype"
    kShape,         // the value of "shape"
    kDims,          // a dim, or the end of the list
    kOffsets,       // the value of "data_offsets"
    kOffsetItems,   // begin, end, or the end of the list
    kEnd,           // nothing
  };

  struct Field {
    std::string_view name;
    State value;
  };
  static constexpr std::array kFields = {Field{"dtype", State::kDType}, Field{"shape", State::kShape},
                                         Field{"data_offsets", State::kOffsets}};

  bool go(State next) {
    state_ = next;
    return true;
  }

  bool enter_name(std::string& text) {
    if (text == "__metadata__") {
      HP_CHECK(!metadata_seen_, kDataLoss, "__metadata__ occurs twice");
      metadata_seen_ = true;
      return go(State::kMetadata);
    }
    tensors_.push_back({.name = std::move(text), .shape = {}});
    fields_seen_ = {};
    offsets_seen_ = 0;
    return go(State::kTensor);
  }

  bool enter_metadata_key(std::string& text) {
    HP_CHECK(!metadata_.contains(text), kDataLoss, "__metadata__ has the key ", quoted_name(text), " twice");
    metadata_key_ = std::move(text);
    return go(State::kMetadataText);
  }

  bool enter_field(const std::string& text) {
    const auto* field = std::ranges::find(kFields, text, &Field::name);
    HP_CHECK(field != kFields.end(), kDataLoss, tensor_text(), " has the unknown field ", quoted_name(text));
    bool& seen = fields_seen_[static_cast<size_t>(field - kFields.begin())];
    HP_CHECK(!seen, kDataLoss, tensor_text(), " has the field '", text, "' twice");
    seen = true;
    return go(field->value);
  }

  void finish_tensor() const {
    const auto missing = std::ranges::find(fields_seen_, false);
    if (missing == fields_seen_.end()) return;
    const auto& field = kFields[static_cast<size_t>(missing - fields_seen_.begin())];
    raise(ErrorCode::kDataLoss, tensor_text(), " lacks the field '", field.name, "'");
  }

  std::string tensor_text() const { return str_cat("tensor ", quoted_name(tensors_.back().name)); }

  [[noreturn]] void refuse(std::string_view found) const {
    raise(ErrorCode::kDataLoss, rule_text(), ", found ", found);
  }

  std::string rule_text() const {
    switch (state_) {
      case State::kHeader:
        return "the header must be a JSON object";
      case State::kMetadata:
        return "__metadata__ must be an object of strings";
      case State::kMetadataText:
        return str_cat("__metadata__ ", quoted_name(metadata_key_), " must be a string");
      case State::kTensor:
        return str_cat(tensor_text(), " must be an object");
      case State::kDType:
        return str_cat(tensor_text(), " dtype must be a string");
      case State::kShape:
      case State::kDims:
        return str_cat(tensor_text(), " shape must be a list of integers from 0 to 2^63-1");
      case State::kOffsets:
      case State::kOffsetItems:
        return str_cat(tensor_text(), " data_offsets must be a list of 2 integers from 0 to 2^63-1");
      case State::kName:
      case State::kMetadataKey:
      case State::kField:
      case State::kEnd:
        break;  // JSON's grammar puts no value here
    }
    raise(ErrorCode::kInternal, "internal error: a JSON value where only a key may stand");
  }

  State state_ = State::kHeader;
  std::vector<TensorEntry> tensors_;  // the last one is being read
  std::array<bool, kFields.size()> fields_seen_{};
  int64_t offsets_seen_ = 0;
  SafetensorsMetadata metadata_;
  std::string metadata_key_;
  bool metadata_seen_ = false;
};

uint64_t read_little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = (value << 8) | std::to_integer<uint64_t>(bytes[i - 1]);
  return value;
}

void append_little_endian(std::string& out, uint64_t value) {
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
}

SafetensorsHeader parse_json(std::string_view text) {
  // The JSON library skips a byte order mark and takes a zero byte for the end of its input; the format allows neither.
  HP_CHECK(text.starts_with('{'), kDataLoss, "the header must be a JSON object and begin with '{', found ",
           text.empty() ? "nothing" : quoted_name(text.substr(0, 1)));
  HP_CHECK(text.find('\0') == std::string_view::npos, kDataLoss, "the header is not JSON: it holds a zero byte at ",
           text.find('\0'));
  HeaderEvents events;
  const bool complete = Json::sax_parse(text.data(), text.data() + text.size(), &events);
  HP_DCHECK(complete);
  return SafetensorsHeader(events.take_tensors(), events.take_metadata());
}

void check_data_size(const SafetensorsHeader& header, int64_t data_bytes) {
  HP_CHECK(header.data_size() <= data_bytes, kDataLoss, "the tensors take ", header.data_size(), " bytes, but only ",
           data_bytes, " follow the header: the file is cut short");
  HP_CHECK(header.data_size() == data_bytes, kDataLoss, "the tensors take ", header.data_size(), " bytes, but ",
           data_bytes, " follow the header, and every byte must belong to a tensor");
}

// The text of a JSON string, quotes and escapes included. The header's invariants make every text UTF-8.
std::string json_string(const std::string& text) { return Json(text).dump(); }

std::string header_json(const SafetensorsHeader& header) {
  std::string json = "{";
  const auto separate = [&json] { json += json.back() == '{' ? "" : ","; };
  if (!header.metadata().empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata()) {
      separate();
      json += json_string(key) + ":" + json_string(value);
    }
    json += "}";
  }
  for (const TensorEntry& tensor : header.tensors()) {
    separate();
    json += str_cat(json_string(tensor.name), ":{\"dtype\":\"", tensor.dtype, "\",\"shape\":[", join(tensor.shape, ","),
                    "],\"data_offsets\":[", tensor.begin, ",", tensor.end, "]}");
  }
  return json + "}";
}

}  // namespace

int64_t safetensors_data_begin(std::span<const std::byte> head, int64_t file_size, std::string_view source) {
  HP_CHECK(file_size > 0, kDataLoss, source, ": the file is empty, not a safetensors file");
  HP_CHECK(file_size >= kSafetensorsLengthBytes, kDataLoss, source, ": the file has ", file_size,
           " bytes, but a safetensors file begins with a header length of 8 bytes");
  HP_CHECK(head.size() >= static_cast<size_t>(kSafetensorsLengthBytes), kInvalidArgument, source, ": head has ",
           head.size(), " bytes, but the header length takes 8");
  const uint64_t length = read_little_endian(head.first(static_cast<size_t>(kSafetensorsLengthBytes)));
  HP_CHECK(length <= static_cast<uint64_t>(kMaxSafetensorsHeaderBytes), kDataLoss, source,
           ": the first 8 bytes declare a header of ", length, " bytes, over the limit of ", kMaxSafetensorsHeaderBytes,
           ": not a safetensors file");
  const int64_t data_begin = kSafetensorsLengthBytes + static_cast<int64_t>(length);
  HP_CHECK(data_begin <= file_size, kDataLoss, source, ": the first 8 bytes declare a header of ", length,
           " bytes, but only ", file_size - kSafetensorsLengthBytes, " follow");
  return data_begin;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, int64_t file_size,
                                           std::string_view source) {
  const int64_t data_begin = safetensors_data_begin(head, file_size, source);
  HP_CHECK(head.size() >= static_cast<size_t>(data_begin), kInvalidArgument, source, ": head has ", head.size(),
           " bytes, but the header ends at byte ", data_begin);
  const auto json = head.first(static_cast<size_t>(data_begin)).subspan(static_cast<size_t>(kSafetensorsLengthBytes));
  try {
    SafetensorsHeader header = parse_json({reinterpret_cast<const char*>(json.data()), json.size()});
    check_data_size(header, file_size - data_begin);
    return header;
  } catch (const Error& error) {
    // A header value that breaks its invariants is the caller's fault elsewhere; here it is the file's.
    const bool of_file = error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kDataLoss;
    raise(of_file ? ErrorCode::kDataLoss : error.code(), source, ": ", error.what());
  }
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  std::string json = header_json(header);
  json.resize((json.size() + 7) / 8 * 8, ' ');
  HP_CHECK(static_cast<int64_t>(json.size()) <= kMaxSafetensorsHeaderBytes, kInvalidArgument, "the header of ",
           header.tensors().size(), " tensors takes ", json.size(), " bytes, over the limit of ",
           kMaxSafetensorsHeaderBytes);
  std::string bytes;
  bytes.reserve(static_cast<size_t>(kSafetensorsLengthBytes) + json.size());
  append_little_endian(bytes, json.size());
  return bytes += json;
}

}  // namespace hyper_parallel
