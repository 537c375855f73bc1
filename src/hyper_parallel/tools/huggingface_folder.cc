#include "hyper_parallel/tools/huggingface_folder.h"

#include <fcntl.h>

#include <optional>
#include <set>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

std::string read_index(const FileDescriptor& file, const std::string& source) {
  const int64_t bytes = file_size(file, source);
  HP_CHECK(bytes <= kMaxHuggingfaceIndexBytes, kDataLoss, source, " has ", bytes, " bytes, over the limit of ",
           kMaxHuggingfaceIndexBytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  read_exactly(file, 0, std::as_writable_bytes(std::span(text)), source);
  return text;
}

}  // namespace

HuggingfaceFolder::HuggingfaceFolder(const std::filesystem::path& path) : directory_(path) {
  const std::string single(kHuggingfaceFile);
  const std::string index_name(kHuggingfaceIndex);
  const std::optional<FileDescriptor> index_file = directory_.open_regular(index_name, O_RDONLY);
  const bool has_single = directory_.status(single).has_value();
  HP_CHECK(index_file || has_single, kInvalidArgument, quoted_path(path), " holds neither '", single, "' nor '",
           index_name, "': no Hugging Face folder");
  HP_CHECK(!index_file || !has_single, kInvalidArgument, quoted_path(path), " holds both '", single, "' and '",
           index_name, "', and nothing says which is the model: move one away");
  if (!index_file) {
    open(single);
    return;
  }
  const std::string source = quoted_path(path / index_name);
  const std::map<std::string, std::string> index = parse_huggingface_index(read_index(*index_file, source), source);
  std::set<std::string_view> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  for (const std::string_view name : names) open(std::string(name));
  compare(index, source);
}

void HuggingfaceFolder::open(const std::string& name) {
  HP_CHECK(is_file_name(name), kDataLoss, "the file name ", quoted_name(name), " in the index of ",
           quoted_path(directory_.path()), " must be one path component that is not hidden");
  std::optional<FileDescriptor> file = directory_.open_regular(name, O_RDONLY);
  const std::string source = quoted_path(directory_.path() / name);
  HP_CHECK(file.has_value(), kDataLoss, source, ", which the index names, is missing");
  const SafetensorsReader& opened = files_.emplace(name, read_safetensors(std::move(*file), source)).first->second;
  for (const TensorEntry& entry : opened.header.tensors()) {
    const auto [place, is_new] = tensors_.emplace(entry.name, Tensor{&opened, &entry});
    HP_CHECK(is_new, kDataLoss, "tensor ", quoted_name(entry.name), " is in two files, ", place->second.file->source,
             " and ", source);
  }
}

void HuggingfaceFolder::compare(const std::map<std::string, std::string>& index, const std::string& source) const {
  for (const auto& [name, file] : index) {
    const auto found = tensors_.find(name);
    const bool is_there = found != tensors_.end() && found->second.file == &files_.at(file);
    HP_CHECK(is_there, kDataLoss, source, " says that tensor ", quoted_name(name), " is in ", quoted_name(file),
             ", but it is not there");
  }
  for (const auto& [name, tensor] : tensors_) {
    HP_CHECK(index.contains(name), kDataLoss, tensor.file->source, " holds tensor ", quoted_name(name),
             ", of which the index does not know");
  }
}

}  // namespace hyper_parallel
