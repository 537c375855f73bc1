#include "hyper_parallel/checkpoint/metadata_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <span>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"

namespace hyper_parallel {

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
  const ReadOutcome outcome = read_all(file->get(), 0, std::as_writable_bytes(std::span(text)));
  HP_CHECK(outcome.error == 0, kDataLoss, "cannot read ", path, ": ", errno_text(outcome.error));
  text.resize(outcome.bytes);  // what is missing shows when the text is parsed
  return text;
}

}  // namespace hyper_parallel
