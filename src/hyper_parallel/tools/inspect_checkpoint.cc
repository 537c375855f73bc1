#include "hyper_parallel/tools/inspect_checkpoint.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/human_size.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/checkpoint_source.h"
#include "hyper_parallel/tools/holders_picture.h"
#include "hyper_parallel/tools/text_table.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSizeColumn = 3;
constexpr size_t kMaxShownValue = 200;

struct Total {
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  int64_t chunks = 0;

  void add(const StoredTensor& tensor) {
    ++tensors;
    elements = checked_add(elements, checked_product(tensor.shape()));
    bytes = checked_add(bytes, tensor.bytes());
    chunks += tensor.chunk_count();
  }
};

struct Summary {
  Total all;
  std::map<DType, Total> by_dtype;
  std::vector<int64_t> chunks_by_file;
};

Summary summarize(const CheckpointMetadata& metadata) {
  Summary summary;
  summary.chunks_by_file.resize(metadata.files().size());
  for (const StoredTensor& tensor : metadata.tensors()) {
    summary.all.add(tensor);
    summary.by_dtype[tensor.dtype()].add(tensor);
    for (int64_t i = 0; i < tensor.chunk_count(); ++i) {
      ++summary.chunks_by_file[static_cast<size_t>(tensor.chunk(i).file)];
    }
  }
  return summary;
}

int64_t file_count(const StoredTensor& tensor) {
  std::set<int64_t> files;
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) files.insert(tensor.chunk(i).file);
  return std::ssize(files);
}

TableRow tensor_row(const StoredTensor& tensor) {
  return {printable(tensor.name()),   std::string(to_string(tensor.dtype())), shape_text(tensor.shape()),
          human_size(tensor.bytes()), str_cat(tensor.chunk_count()),          str_cat(file_count(tensor))};
}

void print_total(std::string_view label, const Total& total, std::ostream& out) {
  out << label << ": " << count_text(total.tensors, "tensor") << ", " << count_text(total.elements, "element") << ", "
      << count_text(total.chunks, "chunk") << ", " << exact_size_text(total.bytes) << '\n';
}

void print_table(const CheckpointMetadata& metadata, std::ostream& out) {
  const Summary summary = summarize(metadata);
  std::vector<TableRow> rows = {{"name", "dtype", "shape", "size", "chunks", "files"}};
  for (const StoredTensor& tensor : metadata.tensors()) rows.push_back(tensor_row(tensor));
  print_rows(rows, kSizeColumn, out);
  out << '\n';
  for (const NamedValue& value : metadata.values()) {
    out << "value " << printable(value.name) << ": " << shortened(to_string(value.value), kMaxShownValue) << '\n';
  }
  for (const auto& [dtype, total] : summary.by_dtype) print_total(to_string(dtype), total, out);
  print_total("total", summary.all, out);
  for (size_t i = 0; i < metadata.files().size(); ++i) {
    const StoredFile& file = metadata.files()[i];
    out << "file " << printable(file.name) << ": " << exact_size_text(file.bytes) << ", "
        << count_text(summary.chunks_by_file[i], "chunk") << '\n';
  }
  out << "save " << metadata.save_id() << '\n';
}

Json tensor_json(const StoredTensor& tensor, const std::vector<StoredFile>& files) {
  Json chunks = Json::array();
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) {
    const StoredChunk chunk = tensor.chunk(i);
    chunks.push_back({{"offsets", chunk.box.offsets.to_vector()},
                      {"sizes", chunk.box.sizes.to_vector()},
                      {"file", files[static_cast<size_t>(chunk.file)].name},
                      {"data_range", {chunk.begin, chunk.range().end}},
                      {"tensor_key", chunk.key}});
  }
  return {{"name", tensor.name()},
          {"dtype", to_string(tensor.dtype())},
          {"shape", tensor.shape().to_vector()},
          {"elements", checked_product(tensor.shape())},
          {"bytes", tensor.bytes()},
          {"chunks", std::move(chunks)}};
}

void print_json(const std::filesystem::path& directory, const CheckpointMetadata& metadata, std::ostream& out) {
  const Summary summary = summarize(metadata);
  Json dtypes = Json::object();
  for (const auto& [dtype, total] : summary.by_dtype) {
    dtypes[std::string(to_string(dtype))] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  Json files = Json::array();
  for (size_t i = 0; i < metadata.files().size(); ++i) {
    const StoredFile& file = metadata.files()[i];
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"chunks", summary.chunks_by_file[i]}});
  }
  Json tensors = Json::array();
  for (const StoredTensor& tensor : metadata.tensors()) tensors.push_back(tensor_json(tensor, metadata.files()));
  Json values = Json::array();
  for (const NamedValue& value : metadata.values()) {
    values.push_back({{"name", value.name}, {"value", to_string(value.value)}});
  }
  const Json document = {{"checkpoint", directory.string()}, {"save_id", metadata.save_id()},
                         {"data_bytes", summary.all.bytes},  {"elements", summary.all.elements},
                         {"chunks", summary.all.chunks},     {"dtypes", std::move(dtypes)},
                         {"files", std::move(files)},        {"tensors", std::move(tensors)},
                         {"values", std::move(values)},      {"structure", to_string(metadata.structure())}};
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace

void inspect_checkpoint(const std::filesystem::path& directory, InspectFormat format, std::ostream& out) {
  const CheckpointMetadata metadata = read_checkpoint_metadata(directory);
  switch (format) {
    case InspectFormat::kTable:
      return print_table(metadata, out);
    case InspectFormat::kJson:
      return print_json(directory, metadata, out);
  }
}

void picture_checkpoint(const std::filesystem::path& directory, const std::optional<std::string>& name,
                        std::ostream& out) {
  const CheckpointMetadata metadata = read_checkpoint_metadata(directory);
  if (name) {
    const StoredTensor* tensor = metadata.find_tensor(*name);
    HP_CHECK(tensor != nullptr, kInvalidArgument, "checkpoint ", quoted_path(directory), " has no tensor ",
             quoted_name(*name));
    out << holders_picture(*tensor, metadata.files());
    return;
  }
  std::string_view separator;
  for (const StoredTensor& tensor : metadata.tensors()) {
    out << separator << holders_picture(tensor, metadata.files());
    separator = "\n";
  }
}

}  // namespace hyper_parallel
