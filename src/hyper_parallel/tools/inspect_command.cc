#include "hyper_parallel/tools/inspect_command.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/base/human_size.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/text_table.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kSizeColumn = 3;

struct Total {
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;

  void add(const TensorEntry& tensor, int64_t tensor_elements) {
    ++tensors;
    elements += tensor_elements;
    bytes += tensor.size_bytes();
  }
};

struct Summary {
  Total all;
  std::map<DType, Total> by_dtype;
};

// The header's check makes the bytes exactly elements * bits / 8, within int64 before the division.
int64_t element_count(const TensorEntry& tensor) { return tensor.size_bytes() * 8 / bits_per_element(tensor.dtype); }

Summary summarize(const SafetensorsHeader& header) {
  Summary summary;
  for (const TensorEntry& tensor : header.tensors()) {
    summary.all.add(tensor, element_count(tensor));
    summary.by_dtype[tensor.dtype].add(tensor, element_count(tensor));
  }
  return summary;
}

TableRow tensor_row(const TensorEntry& tensor) {
  return {printable(tensor.name), std::string(to_string(tensor.dtype)), shape_text(tensor.shape),
          human_size(tensor.size_bytes())};
}

void print_total(std::string_view label, const Total& total, std::ostream& out) {
  out << label << ": " << count_text(total.tensors, "tensor") << ", " << count_text(total.elements, "element") << ", "
      << exact_size_text(total.bytes) << '\n';
}

void print_table(const SafetensorsFile& file, std::ostream& out) {
  std::vector<TableRow> rows = {{"name", "dtype", "shape", "size"}};
  for (const TensorEntry& tensor : file.header().tensors()) rows.push_back(tensor_row(tensor));
  print_rows(rows, kSizeColumn, out);
  const Summary summary = summarize(file.header());
  out << '\n';
  for (const auto& [dtype, total] : summary.by_dtype) print_total(to_string(dtype), total, out);
  print_total("total", summary.all, out);
  out << "file: " << exact_size_text(file.size()) << ", data from byte " << file.data_begin() << '\n';
  for (const auto& [key, value] : file.header().metadata()) {
    out << "metadata " << printable(key) << ": " << printable(value) << '\n';
  }
}

Json tensor_json(const TensorEntry& tensor) {
  return {{"name", tensor.name},          {"dtype", to_string(tensor.dtype)},
          {"shape", tensor.shape},        {"elements", element_count(tensor)},
          {"bytes", tensor.size_bytes()}, {"data_offsets", {tensor.begin, tensor.end}}};
}

void print_json(const std::filesystem::path& path, const SafetensorsFile& file, std::ostream& out) {
  const Summary summary = summarize(file.header());
  Json dtypes = Json::object();
  for (const auto& [dtype, total] : summary.by_dtype) {
    dtypes[std::string(to_string(dtype))] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  Json tensors = Json::array();
  for (const TensorEntry& tensor : file.header().tensors()) tensors.push_back(tensor_json(tensor));
  const Json document = {{"file", path.string()},
                         {"file_bytes", file.size()},
                         {"header_bytes", file.data_begin() - kSafetensorsLengthBytes},
                         {"data_bytes", summary.all.bytes},
                         {"elements", summary.all.elements},
                         {"dtypes", std::move(dtypes)},
                         {"metadata", Json(file.header().metadata())},
                         {"tensors", std::move(tensors)}};
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace

void inspect_safetensors(const std::filesystem::path& path, const InspectOptions& options, std::ostream& out) {
  const SafetensorsFile file(path);
  switch (options.format) {
    case InspectFormat::kTable:
      return print_table(file, out);
    case InspectFormat::kJson:
      return print_json(path, file, out);
  }
}

}  // namespace hyper_parallel
