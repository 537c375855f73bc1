#include "hyper_parallel/tools/text_table.h"

#include <algorithm>

#include "hyper_parallel/base/human_size.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

constexpr size_t kMaxColumn = 64;

// Characters on a terminal, one for each code point.
size_t text_width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<size_t> column_widths(const std::vector<TableRow>& rows) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows.front().size());
  for (const TableRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (text_width(row[i]) <= kMaxColumn) widths[i] = std::max(widths[i], text_width(row[i]));
    }
  }
  return widths;
}

}  // namespace

void print_rows(const std::vector<TableRow>& rows, size_t right_from, std::ostream& out) {
  const std::vector<size_t> widths = column_widths(rows);
  for (const TableRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - std::min(widths[i], text_width(row[i])), ' ');
      const bool is_last = i + 1 == row.size();
      if (i >= right_from) {
        out << padding << row[i];
      } else {
        out << row[i] << (is_last ? "" : padding);
      }
      out << (is_last ? "\n" : "  ");
    }
  }
}

std::string count_text(int64_t count, std::string_view noun) {
  return str_cat(count, " ", noun, count == 1 ? "" : "s");
}

std::string exact_size_text(int64_t bytes) { return str_cat(human_size(bytes), " (", count_text(bytes, "byte"), ")"); }

std::string shortened(std::string_view text, size_t limit) {
  if (text.size() <= limit) return printable(text);
  size_t end = limit;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return printable(text.substr(0, end)) + "...";
}

}  // namespace hyper_parallel
