#include "hyper_parallel/checkpoint/progress_bar.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <sstream>
#include <string>

#include "hyper_parallel/checkpoint/file_descriptor.h"

namespace hyper_parallel {
namespace {

using namespace std::chrono_literals;

/// A bar on a stream, under a clock that the test moves.
struct Drawn {
  std::ostringstream out;
  std::chrono::nanoseconds now = 5s;
  ProgressBar bar{[this](std::string_view text) { out << text; }, [this] { return now; }};

  /// What was written since the last call.
  std::string take() {
    const std::string text = out.str();
    out.str("");
    return text;
  }
};

TEST(ProgressText, SaysBytesPercentRateAndTimeLeft) {
  EXPECT_EQ(progress_text(50, 100, 1s), "[############............]  50%  50 B of 100 B  50 B/s  0:01 left");
  EXPECT_EQ(progress_text(int64_t{256} << 20, int64_t{1} << 30, 500ms),
            "[######..................]  25%  256.0 MiB of 1.0 GiB  512.0 MiB/s  0:02 left");
}

TEST(ProgressText, BeforeTheFirstByte_NamesNoRate) {
  EXPECT_EQ(progress_text(0, 100, 0s), "[........................]   0%  0 B of 100 B");
  EXPECT_EQ(progress_text(0, 100, 7s), "[........................]   0%  0 B of 100 B");
}

TEST(ProgressText, AllDone_HasNothingLeft) {
  EXPECT_EQ(progress_text(100, 100, 2s), "[########################] 100%  100 B of 100 B  50 B/s");
}

TEST(ProgressText, NothingToDo_IsDone) {
  EXPECT_EQ(progress_text(0, 0, 0s), "[########################] 100%  0 B of 0 B");
}

TEST(ProgressText, LastByteMissing_IsNotYetAll) {
  EXPECT_EQ(progress_text(999, 1000, 1s), "[#######################.]  99%  999 B of 1000 B  999 B/s  0:00 left");
}

TEST(ProgressText, LongTimes_AreInHours_AndCut) {
  EXPECT_THAT(progress_text(1, 11046, 1s), ::testing::EndsWith("  1 B/s  3:04:05 left"));
  EXPECT_THAT(progress_text(1, 755, 1s), ::testing::EndsWith("  1 B/s  12:34 left"));
  EXPECT_THAT(progress_text(1, int64_t{1} << 62, 1s), ::testing::EndsWith("  99:00:00 left"));
}

TEST(ProgressText, MoreThanWasAnnounced_IsAll) {
  EXPECT_EQ(progress_text(120, 100, 1s), "[########################] 100%  120 B of 100 B  120 B/s");
}

TEST(ProgressBar_Advance, RedrawsAtMostTenTimesASecond) {
  Drawn drawn;
  drawn.bar.start(100);
  EXPECT_EQ(drawn.take(), "\r[........................]   0%  0 B of 100 B");
  drawn.now += 99ms;
  drawn.bar.advance(10);
  EXPECT_EQ(drawn.take(), "");
  drawn.now += 1ms;
  drawn.bar.advance(15);
  EXPECT_EQ(drawn.take(), "\r[######..................]  25%  25 B of 100 B  250 B/s  0:00 left");
}

TEST(ProgressBar_Finish, DrawsTheLastStateOverTheLongerOne_AndEndsTheLine) {
  Drawn drawn;
  drawn.bar.start(100);
  drawn.now += 100ms;
  drawn.bar.advance(25);
  drawn.take();
  drawn.now += 1ms;
  drawn.bar.advance(75);
  EXPECT_EQ(drawn.take(), "");
  drawn.now += 99ms;
  drawn.bar.finish();
  EXPECT_EQ(drawn.take(), "\r[########################] 100%  100 B of 100 B  500 B/s          \n");
}

TEST(ProgressBar_Start, SecondPieceOfWork_BeginsANewLine) {
  Drawn drawn;
  drawn.bar.start(1);
  drawn.take();
  drawn.bar.start(2);
  EXPECT_EQ(drawn.take(), "\n\r[........................]   0%  0 B of 2 B");
}

TEST(ProgressBar_Destructor, AfterAFault_EndsTheLineOnce) {
  std::string text;
  const auto sink = [&text](std::string_view part) { text += part; };
  {
    ProgressBar bar(sink, [] { return 0s; });
    bar.start(1);
    text.clear();
  }
  EXPECT_EQ(text, "\n");
  text.clear();
  {
    ProgressBar bar(sink, [] { return 0s; });
    bar.start(0);
    bar.finish();
    text.clear();
  }
  EXPECT_EQ(text, "");
  {
    const ProgressBar never_started(sink, [] { return 0s; });
  }
  EXPECT_EQ(text, "");
}

TEST(TerminalProgress, NoTerminal_SaysNothing) {
  const FileDescriptor null = open_file("/dev/null", O_WRONLY, 0, "cannot open");
  EXPECT_NE(dynamic_cast<NoProgress*>(terminal_progress(null.get()).get()), nullptr);
  EXPECT_NE(dynamic_cast<NoProgress*>(terminal_progress(-1).get()), nullptr);
}

TEST(TerminalProgress, Terminal_GetsTheLine) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0) return;  // a container without pseudo terminals: nothing to look at there
  const FileDescriptor owner(master);
  ASSERT_EQ(::grantpt(master), 0);
  ASSERT_EQ(::unlockpt(master), 0);
  const FileDescriptor terminal = open_file(::ptsname(master), O_RDWR | O_NOCTTY, 0, "cannot open");
  const auto progress = terminal_progress(terminal.get());
  progress->start(0);
  progress->finish();
  std::string text(256, '\0');
  const ssize_t count = ::read(master, text.data(), text.size());
  ASSERT_GT(count, 0);
  EXPECT_THAT(text.substr(0, static_cast<size_t>(count)), ::testing::HasSubstr("100%  0 B of 0 B"));
}

}  // namespace
}  // namespace hyper_parallel
