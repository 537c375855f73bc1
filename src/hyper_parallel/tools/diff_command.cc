#include "hyper_parallel/tools/diff_command.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/checkpoint_source.h"

namespace hyper_parallel {
namespace {

using Kind = EntryDifference::Kind;

constexpr int64_t kSlabBytes = int64_t{4} << 20;  // of each side, twice

/// A tensor or a value under a name.
struct Entry {
  const StoredTensor* tensor = nullptr;
  const Value* value = nullptr;
};

std::map<std::string_view, Entry> entries_of(const CheckpointMetadata& metadata) {
  std::map<std::string_view, Entry> entries;
  for (const StoredTensor& tensor : metadata.tensors()) entries[tensor.name()].tensor = &tensor;
  for (const NamedValue& value : metadata.values()) entries[value.name].value = &value.value;
  return entries;
}

std::string kind_text(const Entry& entry) { return entry.tensor != nullptr ? "tensor" : "value"; }

/// Compares two open checkpoints.
class Comparison {
 public:
  Comparison(const std::filesystem::path& a, const std::filesystem::path& b, Progress& progress)
      : a_(a), b_(b), slabs_(a_, kSlabBytes), progress_(progress) {}

  DiffReport run() {
    const auto in_a = entries_of(a_.metadata());
    const auto in_b = entries_of(b_.metadata());
    for (const auto& [name, entry] : in_a) {
      const auto other = in_b.find(name);
      if (other == in_b.end()) {
        add(name, Kind::kOnlyInA, kind_text(entry), "");
      } else {
        compare_entries(name, entry, other->second);
      }
    }
    for (const auto& [name, entry] : in_b) {
      if (!in_a.contains(name)) add(name, Kind::kOnlyInB, "", kind_text(entry));
    }
    report_.structures_differ = !(a_.metadata().structure() == b_.metadata().structure());
    compare_contents();
    std::ranges::sort(report_.differences, {}, &EntryDifference::name);
    return std::move(report_);
  }

 private:
  void add(std::string_view name, Kind kind, std::string in_a, std::string in_b) {
    report_.differences.push_back({std::string(name), kind, std::move(in_a), std::move(in_b)});
  }

  void compare_entries(std::string_view name, const Entry& a, const Entry& b) {
    if ((a.tensor != nullptr) != (b.tensor != nullptr)) {
      add(name, Kind::kKind, kind_text(a), kind_text(b));
    } else if (a.value != nullptr) {
      if (!(*a.value == *b.value)) add(name, Kind::kValue, to_string(*a.value), to_string(*b.value));
    } else if (a.tensor->dtype() != b.tensor->dtype()) {
      add(name, Kind::kDType, str_cat(a.tensor->dtype()), str_cat(b.tensor->dtype()));
    } else if (!(a.tensor->shape() == b.tensor->shape())) {
      add(name, Kind::kShape, shape_text(a.tensor->shape()), shape_text(b.tensor->shape()));
    } else {
      alike_.emplace_back(a.tensor, b.tensor);
    }
  }

  void compare_contents() {
    report_.tensors = std::ssize(alike_);
    for (const auto& [a, b] : alike_) report_.bytes = checked_add(report_.bytes, a->bytes());
    progress_.start(report_.bytes);
    for (const auto& [a, b] : alike_) compare_tensor(*a, *b);
    progress_.finish();
  }

  void compare_tensor(const StoredTensor& a, const StoredTensor& b) {
    EntryDifference difference{a.name(), Kind::kContents, "", "", checked_product(a.shape()), has_distance(a.dtype())};
    slabs_.stream(a, {0, difference.elements}, [&](Interval cells, std::span<const std::byte> bytes) {
      const std::span<std::byte> other = std::span(buffer_of(bytes.size())).first(bytes.size());
      b_.read(b, cells, other);
      add_difference(a.dtype(), bytes, other, difference.contents);
      progress_.advance(std::ssize(bytes));
    });
    if (difference.contents.elements > 0) report_.differences.push_back(std::move(difference));
  }

  std::vector<std::byte>& buffer_of(size_t bytes) {
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    return buffer_;
  }

  CheckpointSource a_;
  CheckpointSource b_;
  SlabReader slabs_;
  Progress& progress_;
  std::vector<std::byte> buffer_;
  std::vector<std::pair<const StoredTensor*, const StoredTensor*>> alike_;
  DiffReport report_;
};

}  // namespace

DiffReport diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, Progress& progress) {
  return Comparison(a, b, progress).run();
}

bool diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, DiffFormat format,
                      std::ostream& out, Progress& progress) {
  const DiffReport report = diff_checkpoints(a, b, progress);
  switch (format) {
    case DiffFormat::kText:
      print_text(a, b, report, out);
      break;
    case DiffFormat::kJson:
      print_json(a, b, report, out);
      break;
  }
  return report.equal();
}

}  // namespace hyper_parallel
