#pragma once

// What every collective of the library asks of, and does with, a process group.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace hyper_parallel {

/// Throws kType if `group` is null, naming the operation.
void check_group(std::string_view operation, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

/// The other members, starting behind this rank so that not all ranks begin with the same one. Rank 1 of 4: {2, 3, 0}.
std::vector<int64_t> peers_of(const c10d::ProcessGroup& group);

/// Whether tensors like `tensor` travel fastest as point-to-point messages: true on Gloo, whose collectives cannot be
/// uneven. Other backends have uneven collectives of their own. Throws kFailedPrecondition if the group has no backend
/// for the tensor's device.
bool prefers_messages(c10d::ProcessGroup& group, const at::Tensor& tensor);

/// Posts one collective and waits for it; a failure becomes kFailedPrecondition naming the operation and this rank.
void run_collective(const c10d::ProcessGroup& group, std::string_view operation,
                    const std::function<c10::intrusive_ptr<c10d::Work>()>& post);

}  // namespace hyper_parallel
