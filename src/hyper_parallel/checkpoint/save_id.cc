#include "hyper_parallel/checkpoint/save_id.h"

#include <algorithm>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"
#include "hyper_parallel/checkpoint/random_word.h"

namespace hyper_parallel {
namespace {

constexpr size_t kDigits = 16;
constexpr std::string_view kHex = "0123456789abcdef";

// Takes `part` off the front of `text` if it stands there.
bool take(std::string_view& text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

// What is left of a data file's name behind its id: "-00003.safetensors".
bool is_data_file_tail(std::string_view tail) {
  constexpr std::string_view kEnd = ".safetensors";
  if (!take(tail, "-") || !tail.ends_with(kEnd)) return false;
  tail.remove_suffix(kEnd.size());
  return tail.size() >= 5 && std::ranges::all_of(tail, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string new_save_id() {
  uint64_t number = random_word();
  std::string id(kDigits, '0');
  for (char& digit : id) {
    digit = kHex[number & 0xF];
    number >>= 4;
  }
  return id;
}

std::string temporary_metadata_name(std::string_view save_id) { return str_cat(kMetadataFile, ".tmp-", save_id); }

std::optional<std::string> save_id_of(std::string_view file_name) {
  const bool is_temporary = take(file_name, temporary_metadata_name(""));
  if (!is_temporary && !take(file_name, "data-")) return std::nullopt;
  const std::string_view id = file_name.substr(0, kDigits);
  const std::string_view tail = file_name.substr(id.size());
  if (!is_save_id(id) || !(is_temporary ? tail.empty() : is_data_file_tail(tail))) return std::nullopt;
  return std::string(id);
}

}  // namespace hyper_parallel
