#pragma once

// Process groups for plain C++ programs: a c10d::ProcessGroup that talks through Gloo, and the stores its members meet
// in. This is the only place of the library that knows Gloo's headers; everything else takes any c10d::ProcessGroup.
//
//   auto store = create_file_store("/tmp/run/rendezvous", 4);
//   auto group = create_gloo_group(store, rank, 4);
//
// All members must call with the same store contents, size and name; the call returns once all are connected.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
// Whole, so that a program that makes a group can also use it.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hyper_parallel {

struct GlooGroupOptions {
  /// How long one operation may wait for a peer before it raises.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// The address that this process listens on; the default keeps all traffic on the loopback interface.
  std::string hostname = "127.0.0.1";
  /// Tells groups apart that share a store: groups with different members need different names.
  std::string name = "world";
};

/// A process group of `size` members over Gloo, of which this process is member `rank`, on CPU tensors.
///
/// Where the process has left SIGPIPE at its default, it is ignored from here on: Gloo writes to the sockets of peers
/// that may have died, and the write must fail, so that the collective raises, instead of ending the process.
///
/// Throws kType for a null store, kInvalidArgument unless 0 <= rank < size, kFailedPrecondition when the members do
/// not find each other within the timeout. Example: create_gloo_group(store, 0, 4, {.timeout =
/// std::chrono::seconds(10)}).
c10::intrusive_ptr<c10d::ProcessGroup> create_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                         int64_t size, const GlooGroupOptions& options = {});

/// A store in the file at `path` (its folder must exist, the file should not) for `size` processes of one machine.
/// Throws kFailedPrecondition when the file cannot be opened.
c10::intrusive_ptr<c10d::Store> create_file_store(const std::string& path, int64_t size);

/// A store at `host`:`port` for `size` processes; rank 0 serves it. Throws kFailedPrecondition when the port is taken
/// (rank 0) or nobody serves it within `timeout` (the others).
c10::intrusive_ptr<c10d::Store> create_tcp_store(const std::string& host, uint16_t port, int64_t rank, int64_t size,
                                                 std::chrono::milliseconds timeout = std::chrono::minutes(1));

}  // namespace hyper_parallel
