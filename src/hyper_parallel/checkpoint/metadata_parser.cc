#include "hyper_parallel/checkpoint/metadata_parser.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/checkpoint/value_json.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::json;

// The fields of one tensor as they stand in the text, in whatever order they come.
struct TensorText {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> rows;
  size_t row_count = 0;
  size_t row_size = 0;   // of the first row, and so of each
  size_t row_begin = 0;  // of the row that is being read
  std::string key_text;  // end to end
  std::vector<size_t> key_ends;
  bool has_keys = false;
  std::vector<uint32_t> checksums;

  // Keeps the memory.
  void restart(std::string new_name) {
    name = std::move(new_name);
    shape.clear();
    rows.clear();
    row_count = 0;
    key_text.clear();
    key_ends.clear();
    has_keys = false;
    checksums.clear();
  }

  std::string_view key(size_t row) const {
    if (!has_keys) return {};
    const size_t begin = row == 0 ? 0 : key_ends[row - 1];
    return std::string_view(key_text).substr(begin, key_ends[row] - begin);
  }
};

std::string tensor_text(const TensorText& tensor) { return str_cat("tensor ", quoted_name(tensor.name)); }

void check_counts(const TensorText& text) {
  const size_t row_size = 2 + 2 * text.shape.size();
  HP_CHECK(text.row_count == 0 || text.row_size == row_size, kDataLoss, tensor_text(text), " has chunks of ",
           text.row_size, " integers, but its shape ", shape_text(text.shape), " needs ", row_size);
  HP_CHECK(!text.has_keys || text.key_ends.size() == text.row_count, kDataLoss, tensor_text(text), " has ",
           text.key_ends.size(), " tensor_keys, but ", text.row_count, " chunks");
}

StoredTensor make_tensor(const TensorText& text) {
  check_counts(text);
  StoredTensor tensor(text.name, text.dtype, Dims(text.shape));
  tensor.reserve(static_cast<int64_t>(text.row_count));
  std::span<const uint32_t> checksums(text.checksums);
  Box box = whole_box(tensor.shape());
  const auto ndim = static_cast<std::ptrdiff_t>(box.ndim());
  auto at = text.rows.begin();
  for (size_t row = 0; row < text.row_count; ++row, at += 2 + 2 * ndim) {
    std::copy_n(at + 2, ndim, box.offsets.begin());
    std::copy_n(at + 2 + ndim, ndim, box.sizes.begin());
    const auto blocks = static_cast<size_t>(block_count(tensor.box_bytes(box)));
    HP_CHECK(blocks <= checksums.size(), kDataLoss, tensor_text(text), " has ", text.checksums.size(),
             " checksums, too few for the blocks of its ", text.row_count, " chunks");
    tensor.add_chunk(box, at[0], at[1], text.key(row), checksums.first(blocks));
    checksums = checksums.subspan(blocks);
  }
  HP_CHECK(checksums.empty(), kDataLoss, tensor_text(text), " has ", text.checksums.size(), " checksums, ",
           checksums.size(), " more than its ", text.row_count, " chunks have blocks");
  return tensor;
}

// Follows the JSON events; each state is what may come next. The JSON library's parser keeps its nesting in a vector.
// The states admit few levels and the values' builder kMaxValueDepth, so no input can exhaust a stack. Every fault is
// thrown at the event that shows it.
class MetadataEvents final : public nlohmann::json_sax<Json> {
 public:
  CheckpointParts take() { return std::move(parts_); }
  std::optional<uint32_t> text_checksum() const { return text_checksum_; }

  bool start_object(size_t /*size*/) override {
    if (is_in_value()) return value_.add_object(), true;
    if (state_ == State::kDocument) return go(State::kField);
    if (state_ == State::kTensors) return go(State::kTensorName);
    if (state_ == State::kTensor) return go(State::kTensorField);
    if (state_ == State::kValues) return go(State::kValueName);
    refuse("an object");
  }

  bool key(std::string& text) override {
    if (is_in_value()) return value_.add_key(text), true;
    if (state_ == State::kField) return enter_field(text);
    if (state_ == State::kTensorField) return enter_tensor_field(text);
    if (state_ == State::kTensorName) {
      tensor_.restart(std::move(text));
      tensor_fields_seen_ = {};
      return go(State::kTensor);
    }
    HP_DCHECK(state_ == State::kValueName);
    value_.begin(str_cat("value ", quoted_name(text)));
    parts_.values.push_back({std::move(text), {}});
    return go(State::kValue);
  }

  bool end_object() override {
    if (is_in_value()) {
      value_.end_object();
      return leave_value();
    }
    if (state_ == State::kTensorField) {
      finish_fields(kTensorFields, tensor_fields_seen_, tensor_text(tensor_), "tensor_keys");
      parts_.tensors.push_back(make_tensor(tensor_));
      return go(State::kTensorName);
    }
    if (state_ != State::kField) return go(State::kField);
    finish_fields(kFields, fields_seen_, "the metadata", "crc32c");
    return go(State::kEnd);
  }

  bool start_array(size_t /*size*/) override {
    switch (state_) {
      case State::kRows:
        tensor_.row_begin = tensor_.rows.size();
        return go(State::kRow);
      case State::kFiles:
        return go(State::kFileList);
      case State::kFileList:
        return go(State::kFileName);
      case State::kShape:
        return go(State::kDims);
      case State::kChunks:
        return go(State::kRows);
      case State::kKeys:
        tensor_.has_keys = true;
        return go(State::kKeyList);
      case State::kChecksums:
        return go(State::kChecksumList);
      default:
        if (!is_in_value()) refuse("a list");
        value_.add_array();
        return true;
    }
  }

  bool end_array() override {
    if (state_ == State::kRow) return finish_row();
    if (is_in_value()) {
      value_.end_array();
      return leave_value();
    }
    if (state_ == State::kFileName || state_ == State::kFileBytes) refuse("the end of the list");
    if (state_ == State::kFileEnd) return go(State::kFileList);
    return go(state_ == State::kFileList ? State::kField : State::kTensorField);
  }

  bool string(std::string& text) override {
    switch (state_) {
      case State::kKeyList:
        tensor_.key_text += text;
        tensor_.key_ends.push_back(tensor_.key_text.size());
        return true;
      case State::kFileName:
        parts_.files.push_back({std::move(text), 0});
        return go(State::kFileBytes);
      case State::kFormat:
        HP_CHECK(text == kMetadataFormat, kDataLoss, "the format is ", quoted_name(text), ", not '", kMetadataFormat,
                 "'");
        return go(State::kField);
      case State::kSaveId:
        parts_.save_id = std::move(text);
        return go(State::kField);
      case State::kDType:
        return set_dtype(text);
      default:
        if (!is_in_value()) refuse(quoted_name(text));
        value_.add_text(text);
        return leave_value();
    }
  }

  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) refuse_number(str_cat(value));
    const auto number = static_cast<int64_t>(value);
    switch (state_) {
      case State::kRow:
        tensor_.rows.push_back(number);
        return true;
      case State::kChecksumList:
        if (value > std::numeric_limits<uint32_t>::max()) refuse(str_cat(value));
        tensor_.checksums.push_back(static_cast<uint32_t>(value));
        return true;
      case State::kDims:
        tensor_.shape.push_back(number);
        return true;
      case State::kFileBytes:
        parts_.files.back().bytes = number;
        return go(State::kFileEnd);
      case State::kVersion:
        return check_version(number);
      case State::kTextChecksum:
        if (value > std::numeric_limits<uint32_t>::max()) refuse(str_cat(value));
        text_checksum_ = static_cast<uint32_t>(value);
        return go(State::kField);
      default:
        if (!is_in_value()) refuse(str_cat(number));
        return add_to_value(number);
    }
  }

  // The JSON library calls this for numbers with a minus, -0 among them.
  bool number_integer(int64_t value) override {
    if (value == 0) refuse_number("-0");
    if (!is_in_value()) refuse(str_cat(value));
    return add_to_value(value);
  }

  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos) refuse_number(text.substr(0, kQuotedNameBytes));
    if (!is_in_value()) refuse(text.substr(0, kQuotedNameBytes));
    return add_to_value(value);
  }

  bool boolean(bool value) override {
    if (!is_in_value()) refuse(value ? "true" : "false");
    return add_to_value(value);
  }

  bool null() override {
    if (!is_in_value()) refuse("null");
    return add_to_value({});
  }

  bool binary(Json::binary_t& /*value*/) override { refuse("binary data"); }

  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    // The library's text is "[...] parse error at line L, column C: <reason>", and it quotes input of any length.
    const std::string_view text = error.what();
    const size_t colon = text.find(": ");
    const std::string_view reason = colon == std::string_view::npos ? text : text.substr(colon + 2);
    raise(ErrorCode::kDataLoss, "the text is not JSON at its byte ", position, ": ",
          printable(reason.substr(0, kQuotedNameBytes)));
  }

 private:
  enum class State {
    kDocument,  // the whole
    kField,     // one of its fields, or its end
    kFormat,    // the values of these fields
    kVersion,
    kSaveId,
    kFiles,
    kFileList,  // a file, or the end of the list
    kFileName,  // of a file: its name, then its size, then its end
    kFileBytes,
    kFileEnd,
    kTensors,
    kTensorName,   // a tensor's name, or the end
    kTensor,       // the value of such a name
    kTensorField,  // one of its fields, or its end
    kDType,        // the values of these fields
    kShape,
    kDims,  // a dim, or the end of the list
    kChunks,
    kRows,  // a row, or the end of the list
    kRow,   // an integer of a row, or its end
    kKeys,
    kKeyList,  // a key, or the end of the list
    kChecksums,
    kChecksumList,  // a checksum, or the end of the list
    kValues,
    kValueName,  // a value's name, or the end
    kValue,      // the value of such a name, or something in it
    kStructure,  // the structure, or something in it
    kTextChecksum,
    kEnd,  // nothing
  };

  struct Field {
    std::string_view name;
    State value;
  };
  static constexpr std::array kFields = {Field{"format", State::kFormat},       Field{"version", State::kVersion},
                                         Field{"save_id", State::kSaveId},      Field{"files", State::kFiles},
                                         Field{"tensors", State::kTensors},     Field{"values", State::kValues},
                                         Field{"structure", State::kStructure}, Field{"crc32c", State::kTextChecksum}};
  static constexpr std::array kTensorFields = {Field{"dtype", State::kDType}, Field{"shape", State::kShape},
                                               Field{"chunks", State::kChunks}, Field{"tensor_keys", State::kKeys},
                                               Field{"crc32c", State::kChecksums}};

  bool go(State next) {
    state_ = next;
    return true;
  }

  bool is_in_value() const { return state_ == State::kValue || state_ == State::kStructure; }

  bool enter_field(const std::string& text) {
    const State value = enter(kFields, fields_seen_, "the metadata", text);
    // A newer version may have other fields, but it says so before.
    HP_CHECK(fields_seen_[0] && (fields_seen_[1] || value == State::kFormat), kDataLoss, "the metadata has the field ",
             quoted_name(text), " too early: 'format' must come first and 'version' second");
    HP_CHECK(!text_checksum_ || value == State::kTextChecksum, kDataLoss, "the metadata has the field ",
             quoted_name(text), " too late: 'crc32c' must come last");
    if (value == State::kStructure) value_.begin("the structure");
    return go(value);
  }

  bool enter_tensor_field(const std::string& text) {
    return go(enter(kTensorFields, tensor_fields_seen_, tensor_text(tensor_), text));
  }

  template <size_t count>
  static State enter(const std::array<Field, count>& fields, std::array<bool, count>& seen, std::string_view owner,
                     const std::string& text) {
    const auto* field = std::ranges::find(fields, text, &Field::name);
    HP_CHECK(field != fields.end(), kDataLoss, owner, " has the unknown field ", quoted_name(text));
    bool& field_seen = seen[static_cast<size_t>(field - fields.begin())];
    HP_CHECK(!field_seen, kDataLoss, owner, " has the field '", text, "' twice");
    field_seen = true;
    return field->value;
  }

  template <size_t count>
  static void finish_fields(const std::array<Field, count>& fields, const std::array<bool, count>& seen,
                            std::string_view owner, std::string_view optional) {
    for (size_t i = 0; i < count; ++i) {
      HP_CHECK(seen[i] || fields[i].name == optional, kDataLoss, owner, " lacks the field '", fields[i].name, "'");
    }
  }

  bool check_version(int64_t version) {
    HP_CHECK(version == kMetadataVersion, kDataLoss, "the metadata has version ", version,
             ", but this library reads versions up to ", kMetadataVersion);
    return go(State::kField);
  }

  bool set_dtype(const std::string& text) {
    const std::optional<DType> dtype = find_dtype(text);
    HP_CHECK(dtype.has_value(), kDataLoss, tensor_text(tensor_), " has the unknown dtype ", quoted_name(text));
    tensor_.dtype = *dtype;
    return go(State::kTensorField);
  }

  bool finish_row() {
    const size_t size = tensor_.rows.size() - tensor_.row_begin;
    if (tensor_.row_count == 0) tensor_.row_size = size;
    HP_CHECK(size == tensor_.row_size, kDataLoss, tensor_text(tensor_), " has chunks of ", tensor_.row_size, " and of ",
             size, " integers");
    ++tensor_.row_count;
    return go(State::kRows);
  }

  bool add_to_value(Value value) {
    value_.add_number(std::move(value));
    return leave_value();
  }

  bool leave_value() {
    if (!value_.is_complete()) return true;
    if (state_ == State::kStructure) {
      parts_.structure = value_.take();
      return go(State::kField);
    }
    parts_.values.back().value = value_.take();
    return go(State::kValueName);
  }

  [[noreturn]] void refuse_number(std::string_view text) const {
    if (is_in_value()) value_.refuse(str_cat("the integer ", text, ", which int64 cannot hold"));
    refuse(text);
  }

  [[noreturn]] void refuse(std::string_view found) const {
    raise(ErrorCode::kDataLoss, rule_text(), ", found ", found);
  }

  std::string rule_text() const {
    switch (state_) {
      case State::kDocument:
        return "the metadata must be a JSON object";
      case State::kFormat:
        return "the format must be text";
      case State::kVersion:
        return "the version must be an integer from 0 to 2^63-1";
      case State::kSaveId:
        return "the save_id must be text";
      case State::kFiles:
      case State::kFileList:
      case State::kFileName:
      case State::kFileBytes:
      case State::kFileEnd:
        return "the files must be a list, each [name, bytes]";
      case State::kTensors:
        return "the tensors must be an object";
      case State::kValues:
        return "the values must be an object";
      case State::kTextChecksum:
        return "the crc32c must be an integer from 0 to 2^32-1";
      default:
        return str_cat(tensor_text(tensor_), " ", tensor_rule());
    }
  }

  std::string_view tensor_rule() const {
    switch (state_) {
      case State::kTensor:
        return "must be an object";
      case State::kDType:
        return "dtype must be text";
      case State::kShape:
      case State::kDims:
        return "shape must be a list of integers from 0 to 2^63-1";
      case State::kChunks:
      case State::kRows:
      case State::kRow:
        return "chunks must be a list of lists of integers from 0 to 2^63-1";
      case State::kKeys:
      case State::kKeyList:
        return "tensor_keys must be a list of text";
      case State::kChecksums:
      case State::kChecksumList:
        return "crc32c must be a list of integers from 0 to 2^32-1";
      default:
        // JSON's grammar puts no value here, or the values' builder has the rule.
        raise(ErrorCode::kInternal, "internal error: a JSON value where only a key may stand");
    }
  }

  State state_ = State::kDocument;
  CheckpointParts parts_;
  std::array<bool, kFields.size()> fields_seen_{};
  TensorText tensor_;
  std::array<bool, kTensorFields.size()> tensor_fields_seen_{};
  ValueBuilder value_;
  std::optional<uint32_t> text_checksum_;
};

// `text` ends with the field that states `expected`.
void check_text(std::string_view text, uint32_t expected) {
  const std::string_view before_field = text.substr(0, text.rfind("\"crc32c\""));
  const uint32_t found = crc32c(std::as_bytes(std::span(before_field.substr(0, before_field.rfind(',')))));
  HP_CHECK(found == expected, kDataLoss, "the text has checksum ", checksum_text(found), " but its 'crc32c' says ",
           checksum_text(expected), ": it was damaged, or edited without leaving that field out");
}

}  // namespace

CheckpointParts parse_metadata_parts(std::string_view text) {
  // The JSON library skips a byte order mark and takes a zero byte for the end of its input; the format allows neither.
  HP_CHECK(text.starts_with('{'), kDataLoss, "the metadata must be a JSON object and begin with '{', found ",
           text.empty() ? "nothing" : quoted_name(text.substr(0, 1)));
  HP_CHECK(text.find('\0') == std::string_view::npos, kDataLoss, "the text is not JSON: it holds a zero byte at ",
           text.find('\0'));
  MetadataEvents events;
  const bool complete = Json::sax_parse(text.data(), text.data() + text.size(), &events);
  HP_DCHECK(complete);
  if (const auto expected = events.text_checksum()) check_text(text, *expected);
  return events.take();
}

}  // namespace hyper_parallel
