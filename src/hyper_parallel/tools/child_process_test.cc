#include "hyper_parallel/tools/child_process.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

int run_shell(const std::string& script) { return run_program({"sh", "-c", script}); }

/// How SIGINT is taken while a test runs.
class InterruptAction {
 public:
  explicit InterruptAction(void (*handler)(int)) : before_(::signal(SIGINT, handler)) {}
  ~InterruptAction() { ::signal(SIGINT, before_); }
  InterruptAction(const InterruptAction&) = delete;
  InterruptAction& operator=(const InterruptAction&) = delete;

 private:
  void (*before_)(int);
};

TEST(RunProgram, ExitCode_IsReturned) {
  EXPECT_EQ(run_shell("exit 0"), 0);
  EXPECT_EQ(run_shell("exit 7"), 7);
  EXPECT_EQ(run_shell("kill -9 $$"), 128 + 9);
}

TEST(RunProgram, Arguments_ArriveAsTheyAre) {
  const TemporaryFolder folder;
  const std::string file = (folder / "witness").string();
  EXPECT_EQ(run_program({"sh", "-c", "printf '%s|' \"$@\" > \"$0\"", file, "a b", "", "$x'\""}), 0);
  EXPECT_EQ(read_file(file), "a b||$x'\"|");
}

TEST(RunProgram, Output_GoesNowhereAndErrorsAreSeen) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_shell("echo said; echo complained >&2"), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "complained\n");
}

TEST(RunProgram, Interrupt_EndsTheChildAlone) {
  const InterruptAction action(SIG_DFL);
  EXPECT_EQ(run_shell("kill -INT $PPID; kill -INT $$; exit 3"), 128 + SIGINT);
  EXPECT_EQ(::signal(SIGINT, SIG_DFL), SIG_DFL);
}

TEST(RunProgram, Interrupt_ThatWasIgnored_StaysIgnored) {
  const InterruptAction action(SIG_IGN);
  EXPECT_EQ(run_shell("kill -INT $$; exit 3"), 3);
  EXPECT_EQ(::signal(SIGINT, SIG_IGN), SIG_IGN);
}

TEST(RunProgram, ThatCannotBeStarted_Throws) {
  expect_error(ErrorCode::kFailedPrecondition, "cannot run '/no/such/program': No such file or directory",
               [] { run_program({"/no/such/program", "argument"}); });
  const TemporaryFolder folder;
  write_file(folder / "text", "no program");
  expect_error(ErrorCode::kFailedPrecondition, "text': Permission denied",
               [&] { run_program({(folder / "text").string()}); });
}

TEST(RunProgram, ChildrenThatTheSystemReaps_CannotBeWaitedFor) {
  void (*const before)(int) = ::signal(SIGCHLD, SIG_IGN);
  expect_error(ErrorCode::kFailedPrecondition, "cannot wait for 'true': No child processes",
               [] { run_program({"true"}); });
  ::signal(SIGCHLD, before);
}

}  // namespace
}  // namespace hyper_parallel
