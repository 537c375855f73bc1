#include "hyper_parallel/checkpoint/safetensors_file.h"

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path),
      data_begin_(safetensors_data_begin(file_.bytes(), size(), quoted_path(path))),
      header_(parse_safetensors_header(file_.bytes(), size(), quoted_path(path))) {}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const { return bytes(header_.at(name)); }

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& tensor) const {
  HP_CHECK(0 <= tensor.begin && tensor.begin <= tensor.end && tensor.end <= header_.data_size(), kInvalidArgument,
           "tensor ", quoted_name(tensor.name), " has the bytes [", tensor.begin, ", ", tensor.end,
           "), outside the file's data section of ", header_.data_size(), " bytes");
  return file_.bytes().subspan(static_cast<size_t>(data_begin_ + tensor.begin),
                               static_cast<size_t>(tensor.size_bytes()));
}

}  // namespace hyper_parallel
