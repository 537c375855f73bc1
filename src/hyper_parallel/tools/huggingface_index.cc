#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/huggingface_folder.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::json;

/// Takes the events of the text: keeps the weight_map and passes over every other field, however deep.
class IndexEvents final : public Json::json_sax_t {
 public:
  std::map<std::string, std::string> take() {
    HP_CHECK(weight_map_.has_value(), kDataLoss, "it has no 'weight_map'");
    return std::move(*weight_map_);
  }

  bool start_object(size_t /*size*/) override {
    if (depth_ == 1 && at_map_) {
      HP_CHECK(!weight_map_.has_value(), kDataLoss, "it has 'weight_map' twice");
      weight_map_.emplace();
      in_map_ = true;
    } else if (in_map_) {
      refuse();
    }
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1) in_map_ = false;
    return true;
  }
  bool start_array(size_t /*size*/) override {
    HP_CHECK(depth_ > 0, kDataLoss, "it must be a JSON object");
    check_no_map();
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 1) at_map_ = text == "weight_map";
    if (in_map_) {
      HP_CHECK(!weight_map_->contains(text), kDataLoss, "its weight_map has tensor ", quoted_name(text), " twice");
      tensor_ = std::move(text);
    }
    return true;
  }
  bool string(std::string& text) override {
    if (in_map_) {
      weight_map_->emplace(std::move(tensor_), std::move(text));
      return true;
    }
    return scalar();
  }
  bool null() override { return scalar(); }
  bool boolean(bool /*value*/) override { return scalar(); }
  bool number_integer(int64_t /*value*/) override { return scalar(); }
  bool number_unsigned(uint64_t /*value*/) override { return scalar(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return scalar(); }
  bool binary(Json::binary_t& /*value*/) override { return scalar(); }
  bool parse_error(size_t position, const std::string& /*token*/, const Json::exception& /*error*/) override {
    raise(ErrorCode::kDataLoss, "it is not JSON at its byte ", position);
  }

 private:
  [[noreturn]] static void refuse() { raise(ErrorCode::kDataLoss, "its weight_map must be an object of strings"); }

  void check_no_map() const {
    if (in_map_ || (depth_ == 1 && at_map_)) refuse();
  }
  bool scalar() const {
    HP_CHECK(depth_ > 0, kDataLoss, "it must be a JSON object");
    check_no_map();
    return true;
  }

  std::optional<std::map<std::string, std::string>> weight_map_;
  std::string tensor_;   // the last key of the map
  int64_t depth_ = 0;    // of objects and arrays
  bool at_map_ = false;  // the last key of the outermost object is "weight_map"
  bool in_map_ = false;
};

}  // namespace

std::map<std::string, std::string> parse_huggingface_index(std::string_view text, std::string_view source) {
  try {
    // The JSON library takes a zero byte for the end of its input.
    HP_CHECK(text.find('\0') == std::string_view::npos, kDataLoss, "it holds a zero byte at ", text.find('\0'));
    IndexEvents events;
    Json::sax_parse(text.data(), text.data() + text.size(), &events);
    return events.take();
  } catch (const Error& error) {
    raise(error.code(), source, " is not the index of a Hugging Face folder: ", error.what());
  }
}

}  // namespace hyper_parallel
