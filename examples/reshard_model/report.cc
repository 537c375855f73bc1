#include "examples/reshard_model/report.h"

#include <array>
#include <cstdio>

#include "hyper_parallel/base/text.h"

namespace hyper_parallel::examples {
namespace {

constexpr int kNameWidth = 44;

std::string format(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string column(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return str_cat(format(unit == 0 ? "%.0f" : "%.1f", value), " ", kUnits[unit]);
}

void print_header(std::ostream& out) {
  std::string name = "phase";
  name.resize(kNameWidth, ' ');
  out << name << " tensors     sent  lower bound     time     GB/s\n" << std::string(kNameWidth + 49, '-') << "\n";
}

void print_row(std::ostream& out, const PhaseResult& phase) {
  std::string name = phase.name;
  name.resize(kNameWidth, ' ');
  const double rate = phase.seconds > 0 ? static_cast<double>(phase.bytes_moved) / phase.seconds / 1e9 : 0;
  out << name << column(str_cat(phase.tensors), 8) << column(bytes_text(phase.bytes_sent), 9)
      << column(bytes_text(phase.lower_bound), 13) << column(format("%.3f s", phase.seconds), 9)
      << column(format("%.2f", rate), 9) << std::endl;
}

}  // namespace hyper_parallel::examples
