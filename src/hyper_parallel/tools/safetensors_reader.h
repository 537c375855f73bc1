#pragma once

// A safetensors file whose header is read and checked and whose data is still on the disk: for files of any size, read
// in pieces.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/safetensors_header.h"

namespace hyper_parallel {

struct SafetensorsReader {
  FileDescriptor file;
  std::string source;  // the path in quotes
  int64_t bytes = 0;   // the whole file
  int64_t data_begin = 0;
  SafetensorsHeader header;
};

/// Reads the header of an open file. Throws as `parse_safetensors_header` does, and kDataLoss if the system fails.
SafetensorsReader read_safetensors(FileDescriptor file, std::string source);

/// The size of an open file. Throws kDataLoss, naming `source`, if the system fails.
int64_t file_size(const FileDescriptor& file, std::string_view source);

/// Fills `out` with the bytes from `offset` on. Throws kDataLoss, naming `source`, if the file ends before or the
/// system fails.
void read_exactly(const FileDescriptor& file, int64_t offset, std::span<std::byte> out, std::string_view source);

}  // namespace hyper_parallel
