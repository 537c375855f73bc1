#pragma once

// A safetensors file opened for reading: its header, and each tensor's bytes in place, without a copy.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "hyper_parallel/checkpoint/mapped_file.h"
#include "hyper_parallel/checkpoint/safetensors_header.h"

namespace hyper_parallel {

class SafetensorsFile {
 public:
  /// Maps the file and checks its whole header; reads none of the data. Every message names the file.
  /// Throws kInvalidArgument if nothing is there or it is not a regular file, kFailedPrecondition if it may not be
  /// read, kDataLoss if its content is not exactly a safetensors file (an empty file is none). Example:
  /// SafetensorsFile("model.safetensors").bytes("embeddings.weight")
  explicit SafetensorsFile(const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }

  /// The tensor's bytes, row-major, little endian. They live as long as this object. The file decides the address: it
  /// need not be a multiple of the element size, so elements are to be read by memcpy or after a check.
  /// Throws kInvalidArgument if there is no such tensor.
  std::span<const std::byte> bytes(std::string_view name) const;

  /// As above, for an entry of this file's header. Throws kInvalidArgument if it lies outside the data section.
  std::span<const std::byte> bytes(const TensorEntry& tensor) const;

  /// Where the data section begins in the file: bytes of the length field and the header.
  int64_t data_begin() const { return data_begin_; }

  /// Bytes of the whole file.
  int64_t size() const { return static_cast<int64_t>(file_.bytes().size()); }

 private:
  MappedFile file_;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
};

}  // namespace hyper_parallel
