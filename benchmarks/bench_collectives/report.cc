#include "benchmarks/bench_collectives/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel::benchmarks {
namespace {

std::string number(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string left(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string amount(Unit unit, double value) {
  if (unit == Unit::kSeconds) return number("%.2f ms", value * 1e3);
  return value < 1 << 20 ? number("%.0f B", value) : number("%.1f MiB", value / (1 << 20));
}

std::string spread(const Quartiles& ratio) {
  return number("%.2f", ratio.median) + " [" + number("%.2f", ratio.q1) + ", " + number("%.2f", ratio.q3) + "]";
}

std::string goal_text(const Goal& goal) {
  switch (goal.kind) {
    case Goal::Kind::kAtMost:
      return number("<= %.4gx", goal.bound);
    case Goal::Kind::kFaster:
      return number(">= %.4gx faster", goal.bound);
    case Goal::Kind::kEqual:
      return "equal";
  }
  raise(ErrorCode::kInternal, "Goal::Kind has no such value");
}

class TableReport : public Report {
 public:
  TableReport(const Options& options, std::ostream& out) : out_(out) {
    out_ << "float32, " << options.size_mib
         << " MiB in all, processes over Gloo on the loopback interface, one thread each; " << options.pairs
         << " pairs.\nTimes are those of the slowest rank, medians; ratios are medians of paired ratios "
         << "[quartiles]: ours / baseline,\nor how many times faster ours is. A/A is the baseline against itself.\n\n";
    print({"what", "baseline", "ours", "baseline", "ratio", "A/A", "reach", "reached"});
    out_ << std::string(160, '-') << "\n";
  }

  void add(const Row& row) override {
    print({row.what, row.baseline, amount(row.unit, row.ours), amount(row.unit, row.theirs),
           row.noise ? spread(row.ratio) : number("%.2f", row.ratio.median), row.noise ? spread(*row.noise) : "-",
           goal_text(row.goal), row.reached ? "yes" : "missed"});
  }

  void finish() override {}

 private:
  void print(const std::array<std::string, 8>& cells) {
    out_ << left(cells[0], 46) << left(cells[1], 36) << right(cells[2], 11) << right(cells[3], 11) << "  "
         << left(cells[4], 19) << left(cells[5], 19) << left(cells[6], 16) << cells[7] << std::endl;
  }

  std::ostream& out_;
};

nlohmann::ordered_json to_json(const Quartiles& ratio) {
  return {{"q1", ratio.q1}, {"median", ratio.median}, {"q3", ratio.q3}};
}

class JsonReport : public Report {
 public:
  JsonReport(const Options& options, std::ostream& out) : out_(out) {
    document_["size_mib"] = options.size_mib;
    document_["pairs"] = options.pairs;
    document_["rows"] = nlohmann::ordered_json::array();
  }

  void add(const Row& row) override {
    nlohmann::ordered_json entry;
    entry["what"] = row.what;
    entry["baseline"] = row.baseline;
    entry["unit"] = row.unit == Unit::kSeconds ? "seconds" : "bytes";
    entry["ours"] = row.ours;
    entry["theirs"] = row.theirs;
    entry["ratio"] = to_json(row.ratio);
    entry["noise"] = row.noise ? to_json(*row.noise) : nlohmann::ordered_json();
    entry["goal"] = goal_text(row.goal);
    entry["reached"] = row.reached;
    document_["rows"].push_back(std::move(entry));
  }

  void finish() override { out_ << document_.dump(2) << std::endl; }

 private:
  std::ostream& out_;
  nlohmann::ordered_json document_;
};

}  // namespace

std::unique_ptr<Report> make_report(const Options& options, std::ostream& out) {
  if (options.format == OutputFormat::kJson) return std::make_unique<JsonReport>(options, out);
  return std::make_unique<TableReport>(options, out);
}

}  // namespace hyper_parallel::benchmarks
