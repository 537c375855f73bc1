#include "hyper_parallel/checkpoint/parts_codec.h"

#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/byte_codec.h"

namespace hyper_parallel {
namespace {

// The fewest bytes of an item, each length taking 8.
constexpr size_t kFileBytes = 16;
constexpr size_t kTensorBytes = 25;
constexpr size_t kChunkBytes = 48;
constexpr size_t kNamedValueBytes = 9;

void write_chunk(ByteWriter& out, const StoredChunk& chunk, std::string_view name) {
  out.write_dims(chunk.box.offsets);
  out.write_dims(chunk.box.sizes);
  out.write_int64(chunk.file);
  out.write_int64(chunk.begin);
  out.write_string(chunk.key == name ? std::string_view() : chunk.key);
  out.write_count(chunk.checksums.size());
  for (const uint32_t checksum : chunk.checksums) out.write_uint32(checksum);
}

void write_tensor(ByteWriter& out, const StoredTensor& tensor) {
  out.write_string(tensor.name());
  out.write_byte(static_cast<uint8_t>(tensor.dtype()));
  out.write_dims(tensor.shape());
  out.write_count(static_cast<size_t>(tensor.chunk_count()));
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) write_chunk(out, tensor.chunk(i), tensor.name());
}

void read_chunk(ByteReader& in, StoredTensor& tensor) {
  Box box;
  box.offsets = in.read_dims();
  box.sizes = in.read_dims();
  const int64_t file = in.read_int64();
  const int64_t begin = in.read_int64();
  const std::string_view key = in.read_view();
  std::vector<uint32_t> checksums(in.read_count(4));
  for (uint32_t& checksum : checksums) checksum = in.read_uint32();
  tensor.add_chunk(box, file, begin, key, checksums);
}

StoredTensor read_tensor(ByteReader& in) {
  std::string name = in.read_string();
  const size_t dtype = in.read_byte();
  HP_CHECK(dtype < all_dtypes().size(), kInternal, "internal error: a message holds the unknown dtype ", dtype);
  StoredTensor tensor(std::move(name), all_dtypes()[dtype], in.read_dims());
  const size_t chunks = in.read_count(kChunkBytes);
  tensor.reserve(static_cast<int64_t>(chunks));
  for (size_t i = 0; i < chunks; ++i) read_chunk(in, tensor);
  return tensor;
}

CheckpointParts read_parts(ByteReader& in) {
  CheckpointParts parts;
  parts.save_id = in.read_string();
  for (size_t left = in.read_count(kFileBytes); left > 0; --left) {
    std::string name = in.read_string();
    parts.files.push_back({std::move(name), in.read_int64()});
  }
  for (size_t left = in.read_count(kTensorBytes); left > 0; --left) parts.tensors.push_back(read_tensor(in));
  parts.values = read_named_values(in);
  parts.structure = read_value(in);
  in.finish();
  return parts;
}

}  // namespace

void write_named_values(ByteWriter& out, const std::vector<NamedValue>& values) {
  out.write_count(values.size());
  for (const NamedValue& entry : values) {
    out.write_string(entry.name);
    write_value(out, entry.value);
  }
}

std::vector<NamedValue> read_named_values(ByteReader& in) {
  std::vector<NamedValue> values(in.read_count(kNamedValueBytes));
  for (NamedValue& entry : values) {
    entry.name = in.read_string();
    entry.value = read_value(in);
  }
  return values;
}

std::string encode_parts(const CheckpointParts& parts) {
  ByteWriter out;
  out.write_string(parts.save_id);
  out.write_count(parts.files.size());
  for (const StoredFile& file : parts.files) {
    out.write_string(file.name);
    out.write_int64(file.bytes);
  }
  out.write_count(parts.tensors.size());
  for (const StoredTensor& tensor : parts.tensors) write_tensor(out, tensor);
  write_named_values(out, parts.values);
  write_value(out, parts.structure);
  return out.take();
}

CheckpointParts decode_parts(std::string_view bytes) {
  ByteReader in(bytes);
  try {
    return read_parts(in);
  } catch (const Error& error) {
    // A shape or box that breaks the rules cannot come from parts that held one.
    if (error.code() == ErrorCode::kInternal) throw;
    raise(ErrorCode::kInternal, "internal error: a message holds wrong parts: ", error.what());
  }
}

}  // namespace hyper_parallel
