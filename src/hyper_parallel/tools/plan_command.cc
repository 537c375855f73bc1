#include "hyper_parallel/tools/plan_command.h"

#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>

#include "hyper_parallel/base/human_size.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

constexpr int kLabelWidth = 34;

void print_row(std::string_view indent, std::string_view label, const std::string& value, std::ostream& out) {
  const int width = kLabelWidth - static_cast<int>(indent.size());
  out << indent << std::left << std::setw(width) << label << value << "\n";
}

/// "1.5 KiB (1536 bytes)"; below one KiB the exact number says all.
std::string size_text(int64_t bytes) {
  const std::string exact = str_cat(bytes, bytes == 1 ? " byte" : " bytes");
  return bytes < 1024 ? exact : str_cat(human_size(bytes), " (", exact, ")");
}

std::string elements_text(const PlanReport& report, int64_t elements) { return size_text(bytes_of(report, elements)); }

std::string ratio_text(const MeshTraffic& mesh) {
  if (mesh.total_received == mesh.lower_bound) return "1 (the least possible)";
  if (mesh.lower_bound == 0) return "none, the lower bound is 0";
  std::ostringstream out;
  out << std::fixed << std::setprecision(3)
      << static_cast<double>(mesh.total_received) / static_cast<double>(mesh.lower_bound);
  return std::move(out).str();
}

void print_totals(const PlanReport& report, std::ostream& out) {
  const auto row = [&](std::string_view label, const std::string& value) { print_row("", label, value, out); };
  row("tensor",
      str_cat(report.elements, " elements of ", report.dtype.name, ", ", elements_text(report, report.elements)));
  row("received, all ranks", elements_text(report, report.mesh.total_received));
  row("received, busiest rank", elements_text(report, report.mesh.max_received));
  row("lower bound, all ranks", elements_text(report, report.mesh.lower_bound));
  row("received / lower bound", ratio_text(report.mesh));
  const auto& counted = report.messages;
  const std::string not_counted = str_cat("not enumerated: about ", report.max_messages, " messages");
  row("sent, busiest rank", counted ? elements_text(report, counted->max_sent) : not_counted);
  row("messages", counted ? str_cat(counted->messages) : not_counted);
  row("rounds", str_cat(report.mesh.rounds));
  row("peak extra memory, busiest rank", counted ? elements_text(report, counted->max_peak_extra) : not_counted);
}

void print_rank_step(size_t number, const Step& step, const RankStep& own, std::ostream& out) {
  out << "  " << number << ". " << action_text(step) << "\n";
  std::istringstream lines(to_string(own));
  bool any = false;
  for (std::string line; std::getline(lines, line); any = true) out << "     " << line << "\n";
  if (!any) out << "     nothing to send, receive or keep\n";
}

void print_rank(const PlanReport& report, const RankReport& rank, std::ostream& out) {
  out << "\nrank " << rank.rank << " at coordinate " << tuple_text(rank.coordinate) << ", local shape "
      << tuple_text(rank.source_shape) << " -> " << tuple_text(rank.plan.target_shape) << "\n";
  for (size_t i = 0; i < rank.plan.steps.size(); ++i) {
    print_rank_step(i + 1, report.plan.steps[i], rank.plan.steps[i], out);
  }
  const auto row = [&](std::string_view label, const std::string& value) { print_row("  ", label, value, out); };
  row("sent", elements_text(report, rank.traffic.sent));
  row("received", elements_text(report, rank.traffic.received));
  row("lower bound", rank.lower_bound ? elements_text(report, *rank.lower_bound)
                                      : "none for one rank: shares of a sum are pooled anywhere");
  row("messages", str_cat(rank.traffic.messages));
  row("peak extra memory", elements_text(report, rank.traffic.peak_extra));
}

}  // namespace

void print_text(const PlanReport& report, std::ostream& out) {
  out << to_string(report.plan) << "\n";
  print_totals(report, out);
  if (report.rank) print_rank(report, *report.rank, out);
}

void explain_plan(const PlanOptions& options, PlanFormat format, std::istream& in, std::ostream& out) {
  const PlanReport report = make_plan_report(read_plan_request(options, in));
  std::ostringstream text;  // a byte count that overflows is refused before anything is shown
  switch (format) {
    case PlanFormat::kText:
      print_text(report, text);
      break;
    case PlanFormat::kJson:
      print_json(report, text);
      break;
  }
  out << std::move(text).str();
}

}  // namespace hyper_parallel
