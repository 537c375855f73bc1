#include "hyper_parallel/torch/gloo_group.h"

// The torch wheel is built with Gloo but does not define the macro that its own header asks for.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif

#include <signal.h>

#include <c10/util/Exception.h>
#include <csignal>

#include <filesystem>
#include <limits>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

/// Checks `rank` and `size` and narrows them to what c10d takes.
void check_rank(int64_t rank, int64_t size) {
  HP_CHECK(size > 0 && size <= std::numeric_limits<int>::max(), kInvalidArgument, "group size is ", size,
           " but must be positive and fit in int32");
  HP_CHECK(0 <= rank && rank < size, kInvalidArgument, "rank is ", rank, " but must be in [0, ", size, ")");
}

/// Runs `make` and turns its failure into kFailedPrecondition with `what` in front.
template <typename Make>
auto or_failed_precondition(const std::string& what, Make make) {
  try {
    return make();
  } catch (const c10::Error& error) {
    raise(ErrorCode::kFailedPrecondition, what, ": ", error.what_without_backtrace());
  } catch (const std::exception& error) {
    raise(ErrorCode::kFailedPrecondition, what, ": ", error.what());
  }
}

c10::intrusive_ptr<c10d::Backend> create_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                      const GlooGroupOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.hostname));
  gloo->group_name = options.name;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, std::move(gloo));
}

/// Python ignores SIGPIPE itself; a plain C++ program does not, and would be killed where its peers are.
void ignore_broken_pipes() {
  struct sigaction current{};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> create_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                         int64_t size, const GlooGroupOptions& options) {
  ignore_broken_pipes();
  HP_CHECK(store, kType, "store is null but must be a c10d::Store");
  check_rank(rank, size);
  const std::string what = str_cat("rank ", rank, " of Gloo group '", options.name, "' (size ", size,
                                   ") could not connect on ", options.hostname);
  return or_failed_precondition(what, [&] {
    auto own_store = c10::make_intrusive<c10d::PrefixStore>(options.name, store);
    // The store's own timeout bounds the rendezvous; it must not outlast the group's.
    own_store->setTimeout(options.timeout);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(own_store, static_cast<int>(rank), static_cast<int>(size));
    auto backend = create_gloo_backend(own_store, static_cast<int>(rank), static_cast<int>(size), options);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, std::move(backend));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setGroupName(options.name);
    return group;
  });
}

c10::intrusive_ptr<c10d::Store> create_file_store(const std::string& path, int64_t size) {
  check_rank(0, size);
  // FileStore itself would wait minutes for a folder that is not there.
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  HP_CHECK(std::filesystem::is_directory(folder), kFailedPrecondition, "file store '", path,
           "' cannot be opened: ", folder.string(), " is not a folder");
  return or_failed_precondition(str_cat("file store '", path, "' cannot be opened"), [&] {
    auto store = c10::make_intrusive<c10d::FileStore>(path, static_cast<int>(size));
    // Opening is lazy; touch the file so that a wrong path fails here and not in the first collective.
    store->check({"opened"});
    return c10::intrusive_ptr<c10d::Store>(std::move(store));
  });
}

c10::intrusive_ptr<c10d::Store> create_tcp_store(const std::string& host, uint16_t port, int64_t rank, int64_t size,
                                                 std::chrono::milliseconds timeout) {
  check_rank(rank, size);
  const std::string what =
      str_cat("rank ", rank, " cannot ", rank == 0 ? "serve" : "reach", " a store at ", host, ":", port);
  return or_failed_precondition(what, [&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = rank == 0;
    options.numWorkers = static_cast<size_t>(size);
    options.timeout = timeout;
    return c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::TCPStore>(host, options));
  });
}

}  // namespace hyper_parallel
