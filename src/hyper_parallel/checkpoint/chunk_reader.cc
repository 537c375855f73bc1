#include "hyper_parallel/checkpoint/chunk_reader.h"

#include <algorithm>
#include <cstring>
#include <queue>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/streaming_writer.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/geometry/interval.h"

namespace hyper_parallel {
namespace {

// Bytes of the chunk.
Interval block_range(const StoredChunk& chunk, int64_t block) {
  return {block * kBlockBytes, std::min((block + 1) * kBlockBytes, chunk.bytes)};
}

// "checkpoint file 'x': block 3 of tensor 'w' (bytes [a, b))", bytes of the file.
std::string block_text(const ChunkSource& source, int64_t block) {
  const Interval range = block_range(source.chunk, block);
  return str_cat("checkpoint file ", source.path, ": block ", block, " of tensor ", quoted_name(source.tensor),
                 " (bytes [", source.chunk.begin + range.begin, ", ", source.chunk.begin + range.end, "))");
}

void read_block(const ChunkSource& source, int64_t block, std::span<std::byte> bytes) {
  try {
    source.read(source.chunk.begin + block_range(source.chunk, block).begin, bytes);
  } catch (const Error& error) {
    raise(error.code(), block_text(source, block), " ", error.what());
  }
  const uint32_t expected = source.chunk.checksums[static_cast<size_t>(block)];
  const uint32_t found = crc32c(bytes);
  HP_CHECK(found == expected, kDataLoss, block_text(source, block), " has checksum ", checksum_text(found),
           " but the metadata says ", checksum_text(expected));
}

// True if the delivery takes the whole range in one run.
bool takes_in_one_run(const Delivery& delivery, Interval range) {
  return delivery.chunk.position() == range.begin && delivery.chunk.run() >= range.size() &&
         delivery.target.run() >= range.size();
}

std::span<std::byte> place_of(const Delivery& delivery, int64_t bytes) {
  return delivery.storage.subspan(static_cast<size_t>(delivery.target.position()), static_cast<size_t>(bytes));
}

// Calls `copy(to, from, count)` for each piece of what lies in `range` of the chunk, whose bytes are `block`. Returns
// how many bytes these are.
template <typename Copy>
int64_t deliver(Delivery& delivery, Interval range, const std::byte* block, Copy&& copy) {
  int64_t total = 0;
  while (!delivery.chunk.done() && delivery.chunk.position() < range.end) {
    const int64_t begin = delivery.chunk.position();
    const int64_t count = std::min({delivery.chunk.run(), delivery.target.run(), range.end - begin});
    copy(delivery.storage.data() + delivery.target.position(), block + (begin - range.begin),
         static_cast<size_t>(count));
    delivery.chunk.advance(count);
    delivery.target.advance(count);
    total += count;
  }
  return total;
}

// From here on a block is so large that its cells are likely to leave the caches before they are used.
constexpr int64_t kStreamedBlockBytes = kBlockBytes / 4;

int64_t deliver(Delivery& delivery, Interval range, const std::byte* block, StreamingWriter& writer) {
  if (range.size() < kStreamedBlockBytes) return deliver(delivery, range, block, &std::memcpy);
  return deliver(delivery, range, block,
                 [&](std::byte* to, const std::byte* from, size_t count) { writer.copy(to, from, count); });
}

// Reads the block and serves all that touch it. Returns the bytes delivered.
int64_t serve_block(const ChunkSource& source, int64_t block, std::span<Delivery*> touching,
                    std::span<std::byte> buffer, StreamingWriter& writer) {
  const Interval range = block_range(source.chunk, block);
  const auto direct = std::ranges::find_if(touching, [&](const Delivery* d) { return takes_in_one_run(*d, range); });
  const bool in_place = direct != touching.end();
  const std::span<std::byte> bytes =
      in_place ? place_of(**direct, range.size()) : buffer.first(static_cast<size_t>(range.size()));
  read_block(source, block, bytes);
  int64_t delivered = 0;
  for (Delivery* delivery : touching) {
    if (in_place && delivery == *direct) {
      delivery->chunk.advance(range.size());
      delivery->target.advance(range.size());
      delivered += range.size();
    } else {
      delivered += deliver(*delivery, range, bytes.data(), writer);
    }
  }
  return delivered;
}

}  // namespace

ReadBytes reads_from(int descriptor) {
  return [descriptor](int64_t begin, std::span<std::byte> into) {
    const ReadOutcome outcome = read_all(descriptor, begin, into);
    HP_CHECK(outcome.error == 0, kDataLoss, "cannot be read: ", errno_text(outcome.error));
    HP_CHECK(outcome.bytes == into.size(), kDataLoss, "is not there: the file ends at byte ",
             begin + static_cast<int64_t>(outcome.bytes));
  };
}

void read_chunk(const ChunkSource& source, std::vector<Delivery> deliveries, std::span<std::byte> buffer,
                Progress& progress) {
  const auto later = [](const Delivery* a, const Delivery* b) { return a->chunk.position() > b->chunk.position(); };
  std::priority_queue<Delivery*, std::vector<Delivery*>, decltype(later)> waiting(later);
  for (Delivery& delivery : deliveries) waiting.push(&delivery);
  std::vector<Delivery*> touching;
  StreamingWriter writer;
  while (!waiting.empty()) {
    const int64_t block = waiting.top()->chunk.position() / kBlockBytes;
    const int64_t end = block_range(source.chunk, block).end;
    touching.clear();
    while (!waiting.empty() && waiting.top()->chunk.position() < end) {
      touching.push_back(waiting.top());
      waiting.pop();
    }
    progress.advance(serve_block(source, block, touching, buffer, writer));
    for (Delivery* delivery : touching) {
      if (!delivery->chunk.done()) waiting.push(delivery);
    }
  }
}

}  // namespace hyper_parallel
