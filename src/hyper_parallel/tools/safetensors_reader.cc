#include "hyper_parallel/tools/safetensors_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/safetensors_codec.h"

namespace hyper_parallel {
int64_t file_size(const FileDescriptor& file, std::string_view source) {
  struct stat status{};
  HP_CHECK(::fstat(file.get(), &status) == 0, kDataLoss, "cannot read the size of ", source, ": ", errno_text(errno));
  return status.st_size;
}

void read_exactly(const FileDescriptor& file, int64_t offset, std::span<std::byte> out, std::string_view source) {
  const ReadOutcome outcome = read_all(file.get(), offset, out);
  HP_CHECK(outcome.error == 0, kDataLoss, "cannot read ", source, ": ", errno_text(outcome.error));
  HP_CHECK(outcome.bytes == out.size(), kDataLoss, source, " ends at byte ",
           offset + static_cast<int64_t>(outcome.bytes), ", but ", out.size() - outcome.bytes, " more are needed");
}

SafetensorsReader read_safetensors(FileDescriptor file, std::string source) {
  const int64_t bytes = file_size(file, source);
  std::vector<std::byte> head(static_cast<size_t>(std::min(bytes, kSafetensorsLengthBytes)));
  read_exactly(file, 0, head, source);
  const int64_t data_begin = safetensors_data_begin(head, bytes, source);
  head.resize(static_cast<size_t>(data_begin));
  read_exactly(file, 0, head, source);
  SafetensorsHeader header = parse_safetensors_header(head, bytes, source);
  return {std::move(file), std::move(source), bytes, data_begin, std::move(header)};
}

}  // namespace hyper_parallel
