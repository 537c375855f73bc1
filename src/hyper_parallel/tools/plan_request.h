#pragma once

// What `hyper-parallel plan` is asked for: the options as text, and the layouts and shape that they mean.

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "hyper_parallel/base/dims.h"
#include "hyper_parallel/layout/layout.h"

namespace hyper_parallel {

/// The options as they were typed. One that was not given is nothing; an empty text is not nothing: --shape "" has 0
/// dims.
struct PlanOptions {
  std::string shape;                    // "6,4,8"
  std::string mesh;                     // "2,2"
  std::string from;                     // "[Shard(0), R]"; "@FILE" and "-" (standard input) hold such a text
  std::string to;                       // likewise
  std::optional<std::string> names;     // "dp,tp"
  std::optional<std::string> ranks;     // "0,2,1,3", "4-7,0-3"
  std::optional<std::string> to_mesh;   // another mesh over the same rank list for the target
  std::optional<std::string> to_names;  // its names
  std::string dtype = "float32";
  std::optional<std::string> rank;  // the rank to look at
};

struct ElementType {
  std::string_view name;
  int64_t bytes;
};

struct PlanRequest {
  Dims shape;
  Layout source;
  Layout target;
  ElementType dtype;
  std::optional<int64_t> rank;  // one that the meshes hold
};

/// Reads the options; `in` is standard input. Throws the library's errors, the option in front: "--mesh: DeviceMesh
/// shape is (0,) but every dim must be at least 1".
PlanRequest read_plan_request(const PlanOptions& options, std::istream& in);

}  // namespace hyper_parallel
