#pragma once

// The ranks of a run: their process group, counted and not, and what they tell each other beside the tensors.

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "examples/reshard_model/options.h"
#include "examples/reshard_model/rank_processes.h"
#include "hyper_parallel/torch/counting_backend.h"

namespace hyper_parallel::examples {

class Ranks {
 public:
  /// Meets the other processes. Throws kFailedPrecondition where that fails, a taken port among the reasons.
  Ranks(const Options& options, const ProcessContext& process);

  int rank() const { return group_->getRank(); }
  int size() const { return group_->getSize(); }
  /// Not counted.
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }
  /// What the library communicates through; every byte is counted.
  const c10::intrusive_ptr<c10d::ProcessGroup>& counted_group() const { return counted_.group; }
  CommunicationCounters& counters() const { return *counted_.counters; }

  /// Not counted.
  void barrier() const;
  std::vector<int64_t> sum(const std::vector<int64_t>& values) const;
  double max(double value) const;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  CountedGroup counted_;
};

}  // namespace hyper_parallel::examples
