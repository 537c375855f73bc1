#pragma once

// Counts what a process group communicates: a process group that passes every operation on to another one and adds up,
// per kind of operation, the calls and the bytes that this rank sends to and receives from *other* ranks.
//
// Point-to-point operations are counted exactly: the bytes of their tensors (zero for a message to oneself).
// For collectives the wire traffic is the algorithm's secret, so the counts are the least that any algorithm must move,
// taken from the arguments alone. With n ranks and `bytes(x)` the bytes of a tensor:
//
//   kind             sent                                        received
//   broadcast        root: bytes(x); others: 0                   root: 0; others: bytes(x)
//   allreduce        bytes(x) * (n-1)/n, twice                   the same        (reduce-scatter, then all-gather)
//   reduce           root: 0; others: bytes(x)                   root: bytes(x); others: 0
//   allgather        bytes(input)                                bytes(outputs of the other ranks)
//   gather           root: 0; others: bytes(input)               root: bytes(outputs of the other ranks); others: 0
//   scatter          root: bytes(inputs of the other ranks)      root: 0; others: bytes(output)
//   reduce_scatter   bytes(inputs of the other ranks)            bytes(output)
//   alltoall         bytes(input pieces of the other ranks)      bytes(output pieces of the other ranks)
//   barrier          0                                           0
//
// A group of one rank moves nothing. Bytes are counted when the operation is posted, also if it fails later.

#include <c10/util/intrusive_ptr.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

enum class OperationKind {
  kSend,
  kReceive,
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};

inline constexpr size_t kOperationKinds = 11;

/// The kind's name, e.g. "all_to_all".
std::string_view to_string(OperationKind kind);

struct OperationCount {
  int64_t calls = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;

  OperationCount& operator+=(const OperationCount& other);
  friend bool operator==(const OperationCount&, const OperationCount&) = default;
};

/// The counters of one rank of one group. Safe to use from several threads.
class CommunicationCounters {
 public:
  /// What operations of this kind did since the last reset.
  OperationCount of(OperationKind kind) const;
  /// All kinds together.
  OperationCount total() const;
  /// One line per kind that was called: "send: 3 calls, 96 bytes sent, 0 bytes received".
  std::string to_string() const;

  void add(OperationKind kind, const OperationCount& count);
  void reset();

 private:
  mutable std::mutex mutex_;
  std::array<OperationCount, kOperationKinds> counts_{};
};

struct CountedGroup {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<CommunicationCounters> counters;
};

/// A process group with the store, rank, size, name and backend names of `group`, whose operations run on `group`'s
/// backends and are counted. `group` itself stays usable and is not counted. Throws kType for a null group.
///
/// Example: auto [counted, counters] = wrap_counting(group);  ...  counters->total().bytes_received
CountedGroup wrap_counting(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace hyper_parallel
