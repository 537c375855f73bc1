#include "hyper_parallel/tools/inspect_command.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/safetensors_codec.h"
#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/human_size.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::ordered_json;

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

constexpr size_t kMaxColumn = 64;  // a longer cell pushes out its own row and no other

// Characters on a terminal, one for each code point.
size_t text_width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

constexpr size_t kColumns = 4;
using Row = std::array<std::string, kColumns>;

Row tensor_row(const TensorEntry& tensor) {
  return {printable(tensor.name), std::string(to_string(tensor.dtype)), shape_text(tensor.shape),
          human_size(tensor.size_bytes())};
}

void print_rows(const std::vector<Row>& rows, std::ostream& out) {
  std::array<size_t, kColumns> width{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (text_width(row[i]) <= kMaxColumn) width[i] = std::max(width[i], text_width(row[i]));
    }
  }
  const auto padding = [&width](const Row& row, size_t i) {
    return std::string(width[i] - std::min(width[i], text_width(row[i])), ' ');
  };
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) out << row[i] << padding(row, i) << "  ";
    out << padding(row, row.size() - 1) << row.back() << '\n';  // sizes are flush right
  }
}

std::string count_text(int64_t count, std::string_view noun) {
  return str_cat(count, " ", noun, count == 1 ? "" : "s");
}

void print_total(std::string_view label, const Total& total, std::ostream& out) {
  out << label << ": " << count_text(total.tensors, "tensor") << ", " << count_text(total.elements, "element") << ", "
      << human_size(total.bytes) << " (" << count_text(total.bytes, "byte") << ")\n";
}

void print_table(const SafetensorsFile& file, std::ostream& out) {
  std::vector<Row> rows = {{"name", "dtype", "shape", "size"}};
  for (const TensorEntry& tensor : file.header().tensors()) rows.push_back(tensor_row(tensor));
  print_rows(rows, out);
  const Summary summary = summarize(file.header());
  out << '\n';
  for (const auto& [dtype, total] : summary.by_dtype) print_total(to_string(dtype), total, out);
  print_total("total", summary.all, out);
  out << "file: " << human_size(file.size()) << " (" << count_text(file.size(), "byte") << "), data from byte "
      << file.data_begin() << '\n';
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
