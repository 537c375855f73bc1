#include "hyper_parallel/checkpoint/deferred_freeing.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

// How many mappings of removed files this process has whose names hold `name`.
int held_files(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with(" (deleted)") && line.find(name) != std::string::npos) ++count;
  }
  return count;
}

int held_files_after_a_while(const std::string& name) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (held_files(name) > 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return held_files(name);
}

const std::string kLarge(size_t{3} << 20, 'x');

TEST(DeferredFreeing, RemovedFile_IsGoneAtOnce_AndFreedAfterwards) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  {
    DeferredFreeing freeing;
    for (const char* name : {"removed-a", "removed-b"}) {
      write_file(folder / name, kLarge);
      EXPECT_TRUE(freeing.remove(directory, name));
      EXPECT_FALSE(std::filesystem::exists(folder / name));
    }
    EXPECT_TRUE(directory.names().empty());
    EXPECT_EQ(held_files("removed-"), 2) << "on a file system of a kind that this test does not know";
  }
  EXPECT_EQ(held_files_after_a_while("removed-"), 0);
}

TEST(DeferredFreeing, SmallFile_IsFreedAtOnce) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  write_file(folder / "small", "x");
  DeferredFreeing freeing;
  EXPECT_TRUE(freeing.remove(directory, "small"));
  EXPECT_FALSE(std::filesystem::exists(folder / "small"));
  EXPECT_EQ(held_files("small"), 0);
}

TEST(DeferredFreeing, WhatIsNoRegularFile_IsRemovedAsADirectoryRemovesIt) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  write_file(folder / "target", kLarge);
  std::filesystem::create_symlink("target", folder / "link");
  std::filesystem::create_directory(folder / "sub");
  DeferredFreeing freeing;
  EXPECT_TRUE(freeing.remove(directory, "link"));
  EXPECT_TRUE(freeing.remove(directory, "none"));
  EXPECT_FALSE(freeing.remove(directory, "sub"));
  EXPECT_TRUE(std::filesystem::exists(folder / "target"));
  EXPECT_TRUE(std::filesystem::exists(folder / "sub"));
}

TEST(DeferredFreeing, ChildProcess_HoldsNothing) {
  const TemporaryFolder folder;
  const Directory directory(folder.path());
  write_file(folder / "of-the-parent", kLarge);
  DeferredFreeing freeing;
  ASSERT_TRUE(freeing.remove(directory, "of-the-parent"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(held_files("of-the-parent"));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hyper_parallel
