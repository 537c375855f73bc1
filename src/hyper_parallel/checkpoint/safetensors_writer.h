#pragma once

// Writes a safetensors file as a stream: the header first, then each tensor's bytes in the header's order, in pieces of
// any size. Nothing but the header is held in memory. The file appears at `commit`, complete, or never.
//
//   SafetensorsWriter writer("out.safetensors", arrange_tensors({{"w", DType::kF32, {2, 3}}}));
//   for (const TensorEntry& tensor : writer.header().tensors()) writer.append(tensor.name, bytes_of(tensor));
//   writer.commit();

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "hyper_parallel/checkpoint/atomic_file.h"
#include "hyper_parallel/checkpoint/safetensors_header.h"

namespace hyper_parallel {

class SafetensorsWriter {
 public:
  /// Creates a temporary file beside `path` and writes the header to it.
  /// Throws as AtomicFile does, and kInvalidArgument if the header is over the format's limit.
  SafetensorsWriter(std::filesystem::path path, SafetensorsHeader header);

  const SafetensorsHeader& header() const { return header_; }

  /// The next bytes of tensor `name`, row-major, little endian. Naming the tensor guards against a wrong order.
  /// Throws kInvalidArgument, and writes nothing, if there is no such tensor, if it is not the one whose bytes come
  /// next, or if it would get more bytes than its entry says; kDataLoss if the system cannot write.
  void append(std::string_view name, std::span<const std::byte> bytes);

  /// Flushes the file and renames it into place. Throws kInvalidArgument if bytes are missing; kDataLoss if the system
  /// fails. Without a commit, `path` keeps what it had.
  void commit();

 private:
  SafetensorsHeader header_;
  AtomicFile file_;
  int64_t position_ = 0;  // bytes of the data section written so far
};

}  // namespace hyper_parallel
