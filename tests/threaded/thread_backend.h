#pragma once

// A c10d::Backend whose ranks are threads of one process: multi-rank code runs under the sanitizers and in
// milliseconds.
//
// The backend is real: messages and collectives move the data between the ranks' tensors. It is strict where others
// are lax: messages match by (source, destination, tag) in order, a size mismatch and a collective that the ranks
// disagree about raise on both sides, and a rank that never comes makes the others raise after the timeout instead of
// hanging. A send is not buffered: its memory is read when the receive is there, and neither end keeps its tensor
// alive, so that a sanitizer sees memory that is freed too early.

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace hyper_parallel::test {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

struct ThreadGroupOptions {
  /// What the backend calls itself: "gloo" makes the library take its point-to-point paths, any other its collectives.
  std::string backend_name = "threaded";
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  /// The group's name in its store.
  std::string group_name = "world";
};

/// The process groups of `size` ranks that talk to each other, in rank order; each is to be used by one thread.
std::vector<GroupPtr> create_thread_groups(int size, const ThreadGroupOptions& options = {});

/// A rank's view of a running test.
struct ThreadRank {
  int rank;
  int size;
  GroupPtr group;
  /// A further group over the world ranks `members`, called by these ranks only, all with the same list.
  std::function<GroupPtr(const std::vector<int>& members)> subgroup;
};

/// Runs `body` once per rank, each in its own thread, and returns what each threw (null where nothing), in rank order.
std::vector<std::exception_ptr> run_ranks_collecting(int size, const std::function<void(const ThreadRank&)>& body,
                                                     const ThreadGroupOptions& options = {});

/// The same; if any rank threw, throws an Error with the code of the lowest such rank (kInternal for what is no Error)
/// and the texts of all of them.
void run_ranks(int size, const std::function<void(const ThreadRank&)>& body, const ThreadGroupOptions& options = {});

}  // namespace hyper_parallel::test
