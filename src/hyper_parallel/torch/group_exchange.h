#pragma once

// The Exchange of a save or load over a process group: messages of bytes to and from the group's member 0.
//
// Bytes travel as CPU tensors, so the group needs a backend for these: a Gloo group beside an NCCL one. Nobody else may
// communicate over the group while an exchange does.

#include <c10/util/intrusive_ptr.h>

#include "hyper_parallel/checkpoint/exchange.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace hyper_parallel {

class GroupExchange final : public Exchange {
 public:
  /// Throws kType for a null group, kFailedPrecondition for one without a backend for CPU tensors.
  explicit GroupExchange(c10::intrusive_ptr<c10d::ProcessGroup> group);

  /// Group-relative.
  int64_t rank() const override;
  int64_t size() const override;

  /// Two rounds of point-to-point messages each: sizes, then contents. Throw kFailedPrecondition when a peer does not
  /// come within the group's timeout or is gone; the group must not be used any more then.
  std::vector<std::string> gather(std::string message) override;
  std::string scatter(std::vector<std::string> messages) override;
  /// From one buffer to all, so that the coordinator holds a large message once.
  std::string broadcast(std::string message) override;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace hyper_parallel
