#pragma once

// `hyper-parallel inspect FILE`: what a safetensors file holds.
//
// Only the header is read, so a file of any size is shown at once. The table is for people and is safe on a terminal
// (control characters in names are escaped); the JSON is for programs and gives every name as it is in the file.

#include <filesystem>
#include <ostream>

namespace hyper_parallel {

enum class InspectFormat { kTable, kJson };

struct InspectOptions {
  InspectFormat format = InspectFormat::kTable;
};

/// Opens and checks the file, then prints it to `out`: each tensor's name, dtype, shape and size in the order of the
/// data, totals by dtype and over all, and the file's string map. Prints nothing if the file is refused. Throws as
/// SafetensorsFile does, each message one line that names the file.
///
/// The JSON is one object: "file", "file_bytes", "header_bytes" (of the JSON header, padding included), "data_bytes",
/// "elements", "dtypes" (name to {"tensors", "bytes"}), "metadata", and "tensors", a list of {"name", "dtype", "shape",
/// "elements", "bytes", "data_offsets"}. A path that is not UTF-8 has its bad bytes replaced.
void inspect_safetensors(const std::filesystem::path& path, const InspectOptions& options, std::ostream& out);

}  // namespace hyper_parallel
