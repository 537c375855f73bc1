#pragma once

// The bytes of the cells of a StridedView: packed end to end, spread out again, or copied to another view.
//
// Buffers are raw bytes, of elements of `item_bytes` each; a view counts elements. Runs of neighbouring cells are
// copied at once. Every function throws kInvalidArgument, before it writes anything, for item_bytes below 1, a view
// that leaves its buffer, and sizes that do not agree.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hyper_parallel/geometry/strided_view.h"

namespace hyper_parallel {

/// The cells of `views` in `from`, in row-major order, to `message`, which has their number of bytes.
void pack_cells(std::span<const StridedView> views, int64_t item_bytes, std::span<const std::byte> from,
                std::span<std::byte> message);

/// The inverse: `message` to the cells of `views` in `to`.
void unpack_cells(std::span<const StridedView> views, int64_t item_bytes, std::span<const std::byte> message,
                  std::span<std::byte> to);

/// The cells of `source` in `from` to those of `target` in `to`, in row-major order. Both are in their smallest form,
/// so their shapes may differ; they must have equally many cells.
void copy_cells(const StridedView& source, std::span<const std::byte> from, const StridedView& target,
                std::span<std::byte> to, int64_t item_bytes);

}  // namespace hyper_parallel
