// Readers while a saver replaces the checkpoint again and again: each load is one generation, complete, and never an
// older one than the load before it.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/faults/generation.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

// A process that saves one generation after the other, from 2 on, until it is killed.
class EndlessSaver {
 public:
  explicit EndlessSaver(const std::filesystem::path& directory) : process_(::fork()) {
    if (process_ == 0) save_for_ever(directory);
  }
  ~EndlessSaver() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  EndlessSaver(const EndlessSaver&) = delete;
  EndlessSaver& operator=(const EndlessSaver&) = delete;

  bool runs() const { return ::waitpid(process_, nullptr, WNOHANG) == 0; }

 private:
  [[noreturn]] static void save_for_ever(const std::filesystem::path& directory) {
    try {
      SingleExchange alone;
      for (int64_t generation = 2;; ++generation) {
        save_generation(alone, directory, generation);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    } catch (const std::exception& error) {
      ::_exit(1);
    }
  }

  pid_t process_;
};

TEST(ReaderBesideSaver, EveryLoad_IsOneGenerationAndNeverAnOlderOne) {
  const TemporaryFolder folder;
  SingleExchange alone;
  save_generation(alone, folder / "checkpoint", 1);
  int64_t newest = 1;
  int replacements = 0;
  const auto begin = std::chrono::steady_clock::now();
  EndlessSaver saver(folder / "checkpoint");
  // A slow disk takes longer to show as much.
  while (std::chrono::steady_clock::now() < begin + std::chrono::seconds(replacements < 3 ? 40 : 3)) {
    const int64_t loaded = load_generation(folder / "checkpoint");
    ASSERT_GE(loaded, newest);
    replacements += loaded > newest ? 1 : 0;
    newest = loaded;
  }
  EXPECT_TRUE(saver.runs());
  EXPECT_GE(replacements, 3) << "the saver was too slow to show anything";
}

}  // namespace
}  // namespace hyper_parallel
