#include <cmath>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/diff_command.h"
#include "hyper_parallel/tools/text_table.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::ordered_json;
using Kind = EntryDifference::Kind;

constexpr size_t kMaxShownValue = 200;

std::string number_text(double value) {
  std::ostringstream out;
  out << std::setprecision(std::numeric_limits<double>::max_digits10 - 1) << value;
  return std::move(out).str();
}

std::string contents_text(const EntryDifference& difference) {
  const ElementDifference& contents = difference.contents;
  std::string text = str_cat(contents.elements, " of ", count_text(difference.elements, "element"),
                             contents.elements == 1 ? " differs" : " differ");
  if (!difference.has_distance) return text;
  if (contents.undefined < contents.elements) {
    text += str_cat(", the largest absolute difference is ", number_text(contents.largest));
  }
  if (contents.undefined > 0) text += str_cat(", ", contents.undefined, " by NaN or an infinity");
  return text;
}

std::string difference_text(const EntryDifference& difference) {
  const auto sides = [&](std::string_view what) {
    return str_cat(what, shortened(difference.in_a, kMaxShownValue), " in A, ",
                   shortened(difference.in_b, kMaxShownValue), " in B");
  };
  switch (difference.kind) {
    case Kind::kOnlyInA:
      return str_cat(difference.in_a, " only in A");
    case Kind::kOnlyInB:
      return str_cat(difference.in_b, " only in B");
    case Kind::kKind:
      return sides("");
    case Kind::kDType:
      return sides("dtype ");
    case Kind::kShape:
      return sides("shape ");
    case Kind::kValue:
      return sides("value ");
    case Kind::kContents:
      return contents_text(difference);
  }
  raise(ErrorCode::kInternal, "internal error: a difference of an unknown kind");
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kOnlyInA:
      return "only_in_a";
    case Kind::kOnlyInB:
      return "only_in_b";
    case Kind::kKind:
      return "kind";
    case Kind::kDType:
      return "dtype";
    case Kind::kShape:
      return "shape";
    case Kind::kValue:
      return "value";
    case Kind::kContents:
      return "contents";
  }
  raise(ErrorCode::kInternal, "internal error: a difference of an unknown kind");
}

Json difference_json(const EntryDifference& difference) {
  Json json = {{"name", difference.name}, {"kind", kind_name(difference.kind)}};
  if (!difference.in_a.empty()) json["a"] = difference.in_a;
  if (!difference.in_b.empty()) json["b"] = difference.in_b;
  if (difference.kind != Kind::kContents) return json;
  json["elements"] = difference.elements;
  json["differing"] = difference.contents.elements;
  json["max_abs_difference"] = nullptr;
  if (difference.has_distance) {
    const double largest = difference.contents.largest;
    json["max_abs_difference"] = std::isinf(largest) ? Json("inf") : Json(largest);
    json["undefined"] = difference.contents.undefined;
  }
  return json;
}

}  // namespace

void print_text(const std::filesystem::path& a, const std::filesystem::path& b, const DiffReport& report,
                std::ostream& out) {
  out << "A: " << printable(a.string()) << "\nB: " << printable(b.string()) << '\n';
  for (const EntryDifference& difference : report.differences) {
    out << printable(difference.name) << ": " << difference_text(difference) << '\n';
  }
  if (report.structures_differ) out << "the entries are nested otherwise\n";
  if (report.equal()) {
    out << "equal: ";
  } else {
    const int64_t count = std::ssize(report.differences) + (report.structures_differ ? 1 : 0);
    out << count_text(count, "difference") << "; ";
  }
  out << "compared " << count_text(report.tensors, "tensor") << ", " << exact_size_text(report.bytes) << '\n';
}

void print_json(const std::filesystem::path& a, const std::filesystem::path& b, const DiffReport& report,
                std::ostream& out) {
  Json differences = Json::array();
  for (const EntryDifference& difference : report.differences) differences.push_back(difference_json(difference));
  const Json document = {{"a", a.string()},
                         {"b", b.string()},
                         {"equal", report.equal()},
                         {"structures_differ", report.structures_differ},
                         {"tensors", report.tensors},
                         {"bytes", report.bytes},
                         {"differences", std::move(differences)}};
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace hyper_parallel
