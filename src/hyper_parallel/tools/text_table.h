#pragma once

// Tables and counts for people, on a terminal.

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace hyper_parallel {

using TableRow = std::vector<std::string>;

/// Prints the rows, all of the same length, with their columns in line, two blanks apart. Columns before `right_from`
/// are flush left, the others right. A cell of more than 64 characters pushes out its own row and no other.
void print_rows(const std::vector<TableRow>& rows, size_t right_from, std::ostream& out);

/// "1 tensor", "2 tensors".
std::string count_text(int64_t count, std::string_view noun);

/// "1.5 KiB (1536 bytes)".
std::string exact_size_text(int64_t bytes);

/// `printable` text, cut after about `limit` bytes with "..." behind it, never inside a character.
std::string shortened(std::string_view text, size_t limit);

}  // namespace hyper_parallel
