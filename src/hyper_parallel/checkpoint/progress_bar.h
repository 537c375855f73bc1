#pragma once

// ProgressBar: one line of a terminal that says how far a save or load is, redrawn at most ten times a second.
//
//   [##########..............]  41%  420.0 MiB of 1.0 GiB  512.3 MiB/s  0:01 left
//
// The rate is that of the whole run so far. The line is drawn over with "\r" and ends with "\n": at `finish`, and in
// the destructor where the work failed, so that an error message begins on a line of its own.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hyper_parallel/checkpoint/progress.h"

namespace hyper_parallel {

class ProgressBar final : public Progress {
 public:
  /// Where the text goes; it must not throw.
  using Sink = std::function<void(std::string_view text)>;
  /// The time since any fixed moment.
  using Clock = std::function<std::chrono::nanoseconds()>;

  ProgressBar(Sink sink, Clock clock);
  ~ProgressBar() override;

  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Draws the empty bar. May be called again after `finish`, for the next piece of work.
  void start(int64_t total_bytes) override;
  void advance(int64_t bytes) override;
  void finish() override;

 private:
  void draw();
  void end_line();

  Sink sink_;
  Clock clock_;
  std::chrono::nanoseconds started_{};
  std::chrono::nanoseconds drawn_{};
  int64_t total_ = 0;
  int64_t done_ = 0;
  size_t width_ = 0;      // of the line on the terminal
  bool is_open_ = false;  // a line is drawn and not ended
};

/// The line, without "\r": `done` of `total` bytes after `elapsed`. No time is left where all is done; none is named
/// before the first byte. Example: progress_text(50, 100, 1s) ==
/// "[############............]  50%  50 B of 100 B  50 B/s  0:01 left".
std::string progress_text(int64_t done, int64_t total, std::chrono::nanoseconds elapsed);

/// A bar on the file descriptor if that is a terminal, else one that says nothing.
std::unique_ptr<Progress> terminal_progress(int descriptor);

}  // namespace hyper_parallel
