#pragma once

// For tests of the metadata's text: one document, and changes of it.

#include <stdexcept>
#include <string>
#include <string_view>

namespace hyper_parallel {

/// A tensor of two chunks and a value, with every field.
inline constexpr std::string_view kMetadataText =
    R"({"format":"hyper_parallel.checkpoint","version":1,"save_id":"0123456789abcdef","files":[["a",64]],)"
    R"("tensors":{"w":{"dtype":"F32","shape":[2,2],"chunks":[[0,8,0,0,1,2],[0,16,1,0,1,2]],)"
    R"("tensor_keys":["","w.1"],"crc32c":[1,2]}},"values":{"step":3},"structure":null})";

/// The document with the one place where `from` stands replaced.
inline std::string changed_text(std::string_view from, std::string_view to) {
  std::string text(kMetadataText);
  const size_t at = text.find(from);
  if (at == std::string::npos || text.find(from, at + 1) != std::string::npos) {
    throw std::logic_error("'" + std::string(from) + "' must stand in the document once");
  }
  return text.replace(at, from.size(), to);
}

}  // namespace hyper_parallel
