#pragma once

// ViewCursor: walks the bytes of a StridedView in the row-major order of its cells, run by run.

#include <cstdint>

#include "hyper_parallel/geometry/interval.h"
#include "hyper_parallel/geometry/strided_view.h"

namespace hyper_parallel {

/// A view counted in bytes: its cells are runs of `run` bytes each, and run x lies at offset + sum(x[d] * strides[d]).
struct ByteView {
  int64_t offset = 0;
  int64_t run = 0;
  Dims sizes;
  Dims strides;

  /// The smallest interval of bytes that holds the view.
  Interval hull() const;
};

/// Throws kInvalidArgument for a view without cells or one that leaves int64, kUnimplemented if a run of elements of a
/// sub-byte type does not begin and end between bytes.
ByteView byte_view(const StridedView& view, int64_t bits_per_element);

class ViewCursor {
 public:
  explicit ViewCursor(ByteView view);

  /// True behind the last byte.
  bool done() const { return run_ == 0; }
  /// The next byte.
  int64_t position() const { return position_; }
  /// Bytes from there to the end of its run, 0 when done.
  int64_t run() const { return run_; }

  /// Goes on by `bytes`, at most run().
  void advance(int64_t bytes) {
    position_ += bytes;
    run_ -= bytes;
    if (run_ == 0) next_run();
  }

 private:
  void next_run();

  ByteView view_;
  Dims index_;
  int64_t begin_ = 0;  // of the current run
  int64_t position_ = 0;
  int64_t run_ = 0;
};

}  // namespace hyper_parallel
