#pragma once

// A rank's step on raw bytes: what a framework runs whose tensors C++ does not see.
//
// The framework sends and receives the messages of `RankStep::sends` and `receives`, as many elements as they say, and
// calls these functions for everything else:
//
//   Move      copy_own(source -> target); pack_message for each send; unpack_message for each receive
//   Reduce    pack_message for each send; combine_messages(source, all received -> target)
//
// `source` and `target` are the rank's whole local buffers, flat, of elements of one size, which must not overlap.
// Every function throws kInvalidArgument for a buffer of another size than the step says and for a step of the other
// kind, kOutOfRange for a message that the step does not have.

#include <cstddef>
#include <cstdint>
#include <span>

#include "hyper_parallel/base/dtype.h"
#include "hyper_parallel/redistribute/rank_plan.h"

namespace hyper_parallel {

/// What stays on this rank in a move.
void copy_own(const RankStep& step, int64_t item_bytes, std::span<const std::byte> source, std::span<std::byte> target);

/// Fills the message `step.sends[send]`.
void pack_message(const RankStep& step, int64_t send, int64_t item_bytes, std::span<const std::byte> source,
                  std::span<std::byte> message);

/// Puts the message `step.receives[receive]` of a move in its place.
void unpack_message(const RankStep& step, int64_t receive, int64_t item_bytes, std::span<const std::byte> message,
                    std::span<std::byte> target);

/// The own share in `source` and the received `messages`, in the order of `step.receives`, combined in mesh order,
/// divided and placed. Throws kType for a reduction that `dtype` does not have.
void combine_messages(const RankStep& step, DType dtype, std::span<const std::byte> source,
                      std::span<const std::span<const std::byte>> messages, std::span<std::byte> target);

}  // namespace hyper_parallel
