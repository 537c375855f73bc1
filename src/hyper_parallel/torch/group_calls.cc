#include "hyper_parallel/torch/group_calls.h"

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {
namespace {

[[noreturn]] void raise_failed(const c10d::ProcessGroup& group, std::string_view operation, std::string_view reason) {
  raise(ErrorCode::kFailedPrecondition, operation, ": failed on rank ", group.getRank(), " of ", group.getSize(), ": ",
        reason);
}

}  // namespace

void check_group(std::string_view operation, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  HP_CHECK(group, kType, operation, ": group is null but must be a process group");
}

std::vector<int64_t> peers_of(const c10d::ProcessGroup& group) {
  const int64_t size = group.getSize();
  std::vector<int64_t> peers;
  for (int64_t step = 1; step < size; ++step) peers.push_back((group.getRank() + step) % size);
  return peers;
}

bool prefers_messages(c10d::ProcessGroup& group, const at::Tensor& tensor) {
  const c10::DeviceType device = tensor.device().type();
  HP_CHECK(group.hasBackendForDeviceType(device), kFailedPrecondition, "the process group has no backend for ",
           c10::DeviceTypeName(device, true), " tensors");
  return group.getBackend(device)->getBackendName() == "gloo";
}

void run_collective(const c10d::ProcessGroup& group, std::string_view operation,
                    const std::function<c10::intrusive_ptr<c10d::Work>()>& post) {
  bool done = false;
  try {
    const auto work = post();
    done = work->wait();
  } catch (const c10::Error& error) {
    raise_failed(group, operation, error.what_without_backtrace());
  } catch (const std::exception& error) {
    raise_failed(group, operation, error.what());
  }
  if (!done) raise_failed(group, operation, "the backend aborted it");
}

}  // namespace hyper_parallel
