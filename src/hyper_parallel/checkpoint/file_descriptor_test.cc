#include "hyper_parallel/checkpoint/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) != -1; }

TEST(FileDescriptor, EndOfLife_ClosesTheFile) {
  int descriptor = -1;
  {
    const FileDescriptor file = open_file("/dev/null", O_RDONLY, 0, "cannot open");
    descriptor = file.get();
    EXPECT_TRUE(is_open(descriptor));
  }
  EXPECT_FALSE(is_open(descriptor));
}

TEST(FileDescriptor, Move_HandsTheFileOver) {
  FileDescriptor first = open_file("/dev/null", O_RDONLY, 0, "cannot open");
  const int descriptor = first.get();
  FileDescriptor second = std::move(first);
  EXPECT_EQ(second.get(), descriptor);
  second = open_file("/dev/zero", O_RDONLY, 0, "cannot open");
  EXPECT_TRUE(is_open(second.get()));
}

TEST(OpenFile, ChildProcess_DoesNotInheritTheFile) {
  const FileDescriptor file = open_file("/dev/null", O_RDONLY, 0, "cannot open");
  EXPECT_NE(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(OpenFile, WrongPath_IsTheCallersFault) {
  const TemporaryFolder folder;
  write_file(folder / "file", "x");
  const auto expect_refused = [](const std::filesystem::path& path, const std::string& text) {
    expect_error(ErrorCode::kInvalidArgument, text, [&] { open_file(path, O_RDONLY, 0, "cannot open"); });
  };
  expect_refused(folder / "nothing", "cannot open '" + (folder / "nothing").string() + "': No such file or directory");
  expect_refused(folder / "file/below", "Not a directory");
  expect_refused(folder / std::string(300, 'x'), "File name too long");
  expect_refused("", "cannot open '': No such file or directory");
}

TEST(OpenFile, ForbiddenPath_IsAFailedPrecondition) {
  const TemporaryFolder folder;
  write_file(folder / "secret", "x");
  std::filesystem::permissions(folder / "secret", std::filesystem::perms::none);
  // The administrator may read everything, so such a test run becomes someone else for a moment.
  constexpr uid_t kNobody = 65534;
  const uid_t user = ::geteuid();
  if (user == 0) {
    std::filesystem::permissions(folder.path(), std::filesystem::perms::others_exec,
                                 std::filesystem::perm_options::add);
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  expect_error(ErrorCode::kFailedPrecondition, "secret': Permission denied",
               [&] { open_file(folder / "secret", O_RDONLY, 0, "cannot open"); });
  ASSERT_EQ(::seteuid(user), 0);
}

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    reader = FileDescriptor(ends[0]);
    writer = FileDescriptor(ends[1]);
  }
  FileDescriptor reader{-1};
  FileDescriptor writer{-1};
};

TEST(WriteAll, MoreThanTheSystemTakesAtOnce_IsWrittenInFull) {
  Pipe pipe;
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) bytes += static_cast<char>(i % 251);
  std::thread writing([&] { write_all(pipe.writer.get(), std::as_bytes(std::span(bytes)), "pipe"); });
  std::string got;
  std::array<char, 4096> buffer{};
  while (got.size() < bytes.size()) {
    const ssize_t count = ::read(pipe.reader.get(), buffer.data(), buffer.size());
    if (count <= 0) break;
    got.append(buffer.data(), static_cast<size_t>(count));
  }
  writing.join();
  EXPECT_EQ(got, bytes);
}

TEST(WriteAll, NoBytes_IsNoCall) { EXPECT_NO_THROW(write_all(-1, {}, "nothing")); }

TEST(WriteAll, Fault_IsDataLossAndNamesTheFile) {
  const FileDescriptor full = open_file("/dev/full", O_WRONLY, 0, "cannot open");
  const std::string bytes = "x";
  expect_error(ErrorCode::kDataLoss, "cannot write '/a/b': No space left on device",
               [&] { write_all(full.get(), std::as_bytes(std::span(bytes)), "/a/b"); });
}

TEST(FlushDescriptor, Fault_IsTheSystemsError) {
  EXPECT_EQ(flush_descriptor(-1), EBADF);
  EXPECT_EQ(flush_directory(-1), EBADF);
}

TEST(FlushDirectory, NothingThatCouldBeFlushed_IsNoFault) {
  const Pipe pipe;
  EXPECT_EQ(flush_descriptor(pipe.writer.get()), EINVAL);
  EXPECT_EQ(flush_directory(pipe.writer.get()), 0);
}

TEST(QuotedPath, IsOneLine) { EXPECT_EQ(quoted_path("/x/a\nb\xff"), R"('/x/a\x0ab\xff')"); }

}  // namespace
}  // namespace hyper_parallel
