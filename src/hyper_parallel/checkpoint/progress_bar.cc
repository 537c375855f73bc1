#include "hyper_parallel/checkpoint/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <utility>

#include "hyper_parallel/base/human_size.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kRedrawInterval = std::chrono::milliseconds(100);
constexpr size_t kBarWidth = 24;

double fraction_of(int64_t done, int64_t total) {
  if (total <= 0) return 1;
  return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

std::string bar_text(double fraction) {
  const auto full = static_cast<size_t>(fraction * static_cast<double>(kBarWidth));
  return str_cat("[", std::string(full, '#'), std::string(kBarWidth - full, '.'), "]");
}

/// "0:07", "12:34", "3:04:05".
std::string duration_text(int64_t seconds) {
  std::ostringstream out;
  out << std::setfill('0');
  const int64_t hours = seconds / 3600;
  const int64_t minutes = seconds / 60 % 60;
  if (hours > 0) out << hours << ':' << std::setw(2);
  out << minutes << ':' << std::setw(2) << seconds % 60;
  return std::move(out).str();
}

/// What follows from the rate, which is known once a byte and a moment have passed.
std::string rate_text(int64_t done, int64_t total, nanoseconds elapsed) {
  const double seconds = std::chrono::duration<double>(elapsed).count();
  if (done <= 0 || seconds <= 0) return "";
  constexpr double kMaxShown = 9e18;  // what int64 holds
  const double rate = std::min(static_cast<double>(done) / seconds, kMaxShown);
  std::string text = str_cat("  ", human_size(static_cast<int64_t>(rate)), "/s");
  if (done >= total) return text;
  constexpr double kLongest = 99 * 3600;
  const double left = std::min(static_cast<double>(total - done) / rate, kLongest);
  return text += str_cat("  ", duration_text(std::llround(left)), " left");
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a terminal that went away must not end the work
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string progress_text(int64_t done, int64_t total, nanoseconds elapsed) {
  const double fraction = fraction_of(done, total);
  std::ostringstream out;
  out << bar_text(fraction) << ' ' << std::setw(3) << static_cast<int>(fraction * 100) << "%  " << human_size(done)
      << " of " << human_size(total) << rate_text(done, total, elapsed);
  return std::move(out).str();
}

ProgressBar::ProgressBar(Sink sink, Clock clock) : sink_(std::move(sink)), clock_(std::move(clock)) {}

ProgressBar::~ProgressBar() { end_line(); }

void ProgressBar::start(int64_t total_bytes) {
  end_line();
  total_ = total_bytes;
  done_ = 0;
  started_ = clock_();
  draw();
}

void ProgressBar::advance(int64_t bytes) {
  done_ += bytes;
  if (clock_() - drawn_ >= kRedrawInterval) draw();
}

void ProgressBar::finish() {
  draw();
  end_line();
}

void ProgressBar::draw() {
  drawn_ = clock_();
  const std::string text = progress_text(done_, total_, drawn_ - started_);
  const std::string rest(width_ > text.size() ? width_ - text.size() : 0, ' ');  // of a longer line before
  sink_(str_cat("\r", text, rest));
  width_ = text.size();
  is_open_ = true;
}

void ProgressBar::end_line() {
  if (!is_open_) return;
  sink_("\n");
  width_ = 0;
  is_open_ = false;
}

std::unique_ptr<Progress> terminal_progress(int descriptor) {
  if (::isatty(descriptor) == 0) return std::make_unique<NoProgress>();
  const auto sink = [descriptor](std::string_view text) { write_all(descriptor, text); };
  const auto clock = [] { return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()); };
  return std::make_unique<ProgressBar>(sink, clock);
}

}  // namespace hyper_parallel
