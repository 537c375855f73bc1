#pragma once

// Reads the blocks of one stored chunk that a load needs, each once, verifies them and delivers their cells.
//
// All overlaps of the chunk with wanted boxes are served together, in the order of the chunk's bytes: the next block is
// the one that the first undelivered byte lies in, so a block that no overlap touches is never read.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/progress.h"
#include "hyper_parallel/geometry/view_cursor.h"

namespace hyper_parallel {

/// An overlap: which bytes of the chunk go to which bytes of `storage`. Both cursors walk equally many bytes, the
/// chunk's upwards.
struct Delivery {
  ViewCursor chunk;
  ViewCursor target;
  std::span<std::byte> storage;
};

/// Fills `into` with a file's bytes from byte `begin` on. Throws kDataLoss with a predicate as its message, that the
/// block they belong to is put before: "cannot be read: Input/output error", "is not there: the file ends at byte 7".
using ReadBytes = std::function<void(int64_t begin, std::span<std::byte> into)>;

/// Reads from an open file, which must outlive the result.
ReadBytes reads_from(int descriptor);

/// Where a chunk's bytes are, and how to speak of it.
struct ChunkSource {
  ReadBytes read;
  std::string path;         // in quotes
  std::string_view tensor;  // the logical name
  StoredChunk chunk;
};

/// `buffer` has at least min(kBlockBytes, source.chunk.bytes) bytes. A block that lies in one target in one run is read
/// straight into place. Throws kDataLoss, naming file, tensor and block, for bytes that are not there, cannot be read
/// or do not have their checksum. Tells `progress` the bytes delivered.
void read_chunk(const ChunkSource& source, std::vector<Delivery> deliveries, std::span<std::byte> buffer,
                Progress& progress);

}  // namespace hyper_parallel
