#pragma once

// `hyper-parallel inspect DIR`: what a checkpoint holds. Only `.metadata` is read.

#include <filesystem>
#include <optional>
#include <ostream>
#include <string>

#include "hyper_parallel/tools/inspect_command.h"

namespace hyper_parallel {

/// Prints each tensor's name, dtype, shape, size, number of chunks and of files that hold them; the values; totals by
/// dtype and over all; the files. Prints nothing if the checkpoint is refused. Throws as FileSystemReader's
/// read_metadata and parse_metadata do.
///
/// The JSON is one object: "checkpoint", "save_id", "data_bytes", "elements", "chunks", "dtypes" (name to {"tensors",
/// "bytes"}), "files" (each {"name", "bytes", "chunks"}), "tensors" (each {"name", "dtype", "shape", "elements",
/// "bytes", "chunks"}, a chunk being {"offsets", "sizes", "file", "data_range", "tensor_key"}), "values" (each {"name",
/// "value"}, as Python prints it) and "structure" (likewise).
void inspect_checkpoint(const std::filesystem::path& directory, InspectFormat format, std::ostream& out);

/// Prints who holds what: `holders_picture` of the tensor of that name, of all without one. Throws kInvalidArgument if
/// there is no such tensor.
void picture_checkpoint(const std::filesystem::path& directory, const std::optional<std::string>& name,
                        std::ostream& out);

}  // namespace hyper_parallel
