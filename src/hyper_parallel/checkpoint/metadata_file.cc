#include "hyper_parallel/checkpoint/metadata_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"

namespace hyper_parallel {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

}  // namespace

std::optional<std::string> read_metadata_file(const Directory& directory) {
  const std::string name(kMetadataFile);
  const std::optional<FileDescriptor> file = directory.open_regular(name, O_RDONLY);
  if (!file.has_value()) return std::nullopt;
  const std::string path = quoted_path(directory.path() / name);
  struct stat status{};
  HP_CHECK(::fstat(file->get(), &status) == 0, kDataLoss, "cannot examine ", path, ": ", errno_text(errno));
  HP_CHECK(status.st_size <= kMaxMetadataBytes, kDataLoss, path, " has ", status.st_size,
           " bytes, more than the limit of ", kMaxMetadataBytes);
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file->get(), text.data() + done, std::min(text.size() - done, kPieceBytes));
    if (count < 0 && errno == EINTR) continue;
    HP_CHECK(count >= 0, kDataLoss, "cannot read ", path, ": ", errno_text(errno));
    if (count == 0) break;  // what is missing shows when the text is parsed
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace hyper_parallel
