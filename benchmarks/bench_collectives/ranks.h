#pragma once

// The ranks of one group, and what they tell each other beside what is measured.

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace hyper_parallel::benchmarks {

class Ranks {
 public:
  /// Meets the others in the file store. Groups of one store need unlike names.
  Ranks(const std::filesystem::path& store, const std::string& name, int64_t rank, int64_t size);

  int64_t rank() const { return group_->getRank(); }
  int64_t size() const { return group_->getSize(); }
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  void barrier() const;
  /// The greatest value of any rank.
  double max(double value) const;
  /// The sum of all ranks' values.
  int64_t sum(int64_t value) const;

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace hyper_parallel::benchmarks
