#include "hyper_parallel/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

// The tensor that owns byte `position` of the data section, as text.
std::string tensor_at_text(const SafetensorsHeader& header, int64_t position) {
  const auto next = std::ranges::upper_bound(header.tensors(), position, {}, &TensorEntry::end);
  return next == header.tensors().end() ? "none, all are complete" : str_cat("tensor ", quoted_name(next->name));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, SafetensorsHeader header)
    : header_(std::move(header)), file_(std::move(path)) {
  const std::string bytes = write_safetensors_header(header_);
  file_.append(std::as_bytes(std::span(bytes)));
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
  const TensorEntry& tensor = header_.at(name);
  if (bytes.empty()) return;
  const auto count = static_cast<int64_t>(bytes.size());
  const int64_t room = tensor.end - std::max(position_, tensor.begin);
  HP_CHECK(count <= room, kInvalidArgument, quoted_path(file_.path()), ": tensor ", quoted_name(name), " of ",
           tensor.size_bytes(), " bytes has room for ", std::max<int64_t>(room, 0), " more, but gets ", count);
  HP_CHECK(tensor.begin <= position_, kInvalidArgument, quoted_path(file_.path()), ": got bytes of tensor ",
           quoted_name(name), ", but next in the order of the header is ", tensor_at_text(header_, position_));
  file_.append(bytes);
  position_ += count;
}

void SafetensorsWriter::commit() {
  HP_CHECK(position_ == header_.data_size(), kInvalidArgument, quoted_path(file_.path()), " got ", position_, " of ",
           header_.data_size(), " bytes; next is ", tensor_at_text(header_, position_));
  file_.commit();
}

}  // namespace hyper_parallel
