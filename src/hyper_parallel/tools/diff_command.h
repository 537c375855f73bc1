#pragma once

// `hyper-parallel diff A B`: do two checkpoints hold the same?
//
// Names, dtypes, shapes, values and contents are compared, not how they are stored: checkpoints of other ranks, chunks
// and files are equal if their cells are. Contents are compared run by run in bounded memory, and verified on the way.

#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/tools/element_difference.h"

namespace hyper_parallel {

/// One entry in which they differ.
struct EntryDifference {
  enum class Kind { kOnlyInA, kOnlyInB, kKind, kDType, kShape, kValue, kContents };

  std::string name;
  Kind kind = Kind::kContents;
  std::string in_a;  // what A has, where one line says it: a dtype, a shape, a value, "tensor" or "value"
  std::string in_b;
  int64_t elements = 0;       // of the tensor, where the contents differ
  bool has_distance = false;  // `contents.largest` and `.undefined` mean something
  ElementDifference contents{};
};

struct DiffReport {
  std::vector<EntryDifference> differences;  // sorted by name
  bool structures_differ = false;            // the names are nested otherwise
  int64_t tensors = 0;                       // of which the contents were compared
  int64_t bytes = 0;

  bool equal() const { return differences.empty() && !structures_differ; }
};

/// Throws as CheckpointSource does, also for damaged contents of either.
DiffReport diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, Progress& progress);

enum class DiffFormat { kText, kJson };

/// Compares and prints; true if they are equal. The JSON is one object: "a", "b", "equal", "structures_differ",
/// "tensors", "bytes", and "differences", each "name", "kind" ("only_in_a", "only_in_b", "kind", "dtype", "shape",
/// "value", "contents"), "a" and "b" where one line says it, and for contents "elements", "differing",
/// "max_abs_difference" (null for types without one; "inf" for an infinite one) and "undefined".
bool diff_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b, DiffFormat format,
                      std::ostream& out, Progress& progress);

/// The two forms of a report (diff_report.cc).
void print_text(const std::filesystem::path& a, const std::filesystem::path& b, const DiffReport& report,
                std::ostream& out);
void print_json(const std::filesystem::path& a, const std::filesystem::path& b, const DiffReport& report,
                std::ostream& out);

}  // namespace hyper_parallel
