#pragma once

// Progress: told how many bytes are done. Called from the thread that reads or writes.

#include <cstdint>
#include <functional>

namespace hyper_parallel {

class Progress {
 public:
  virtual ~Progress() = default;
  /// Before the first byte: how many there will be on this rank.
  virtual void start(int64_t total_bytes) = 0;
  virtual void advance(int64_t bytes) = 0;
  /// After the last byte; not called if the work fails.
  virtual void finish() = 0;
};

/// Says nothing.
class NoProgress final : public Progress {
 public:
  void start(int64_t) override {}
  void advance(int64_t) override {}
  void finish() override {}
};

}  // namespace hyper_parallel
