#pragma once

// The tensors among the arguments of a ruled call, as DTensors.

#include <deque>
#include <string_view>
#include <vector>

#include "hyper_parallel/torch/operation_binding.h"

namespace hyper_parallel {

class RuledOperands {
 public:
  struct Operand {
    std::string_view name;  // of the argument
    const DTensor* tensor;
  };

  /// Lists are looked into. A plain tensor of one element is a DTensor that is replicated. Refers to `arguments`.
  ///
  /// Throws on every rank: kUnimplemented for a ragged operand; kType without a DTensor, or for a plain tensor of more
  /// than one element; kFailedPrecondition for parts of unlike ranks.
  RuledOperands(const Operation& operation, const BoundArguments& arguments);
  RuledOperands(const RuledOperands&) = delete;
  RuledOperands& operator=(const RuledOperands&) = delete;

  /// The first DTensor of the call: results lie on its mesh.
  const DTensor& first() const { return *first_; }
  size_t size() const { return operands_.size(); }
  const DTensor& operator[](size_t index) const { return *operands_[index].tensor; }
  const std::vector<Operand>& all() const { return operands_; }
  const std::vector<Dims>& shapes() const { return shapes_; }

 private:
  const DTensor* first_ = nullptr;
  std::vector<Operand> operands_;
  std::vector<Dims> shapes_;
  std::deque<DTensor> replicated_;
};

}  // namespace hyper_parallel
