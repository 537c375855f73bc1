#include "hyper_parallel/torch/split_lists.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"

namespace hyper_parallel {

void check_splits(std::string_view operation, std::string_view argument, at::IntArrayRef splits, int64_t group_size) {
  HP_CHECK(static_cast<int64_t>(splits.size()) == group_size, kInvalidArgument, operation, ": ", argument, " has ",
           splits.size(), " entries but the group has ", group_size, " members");
  for (size_t i = 0; i < splits.size(); ++i) {
    HP_CHECK(splits[i] >= 0, kInvalidArgument, operation, ": ", argument, "[", i, "] is ", splits[i],
             " but row counts must not be negative");
  }
  checked_sum({splits.data(), splits.size()});
}

void check_has_rows(std::string_view operation, const at::Tensor& input) {
  HP_CHECK(input.defined(), kType, operation, ": input is undefined but must be a tensor");
  HP_CHECK(input.dim() > 0, kInvalidArgument, operation, ": input has no dims but splits count rows of dim 0");
}

void check_splits_cover(std::string_view operation, std::string_view argument, at::IntArrayRef splits,
                        const at::Tensor& input) {
  const int64_t sum = checked_sum({splits.data(), splits.size()});
  HP_CHECK(sum == input.size(0), kInvalidArgument, operation, ": ", argument, " ", tuple_text(splits), " sums to ", sum,
           " but input has ", input.size(0), " rows");
}

std::vector<at::Tensor> split_rows(const at::Tensor& tensor, at::IntArrayRef splits) {
  std::vector<at::Tensor> rows;
  rows.reserve(splits.size());
  int64_t begin = 0;
  for (const int64_t count : splits) {
    rows.push_back(tensor.narrow(0, begin, count));
    begin += count;
  }
  return rows;
}

at::Tensor empty_rows_like(const at::Tensor& input, int64_t rows) {
  std::vector<int64_t> shape = input.sizes().vec();
  shape[0] = rows;
  // The whole shape may overflow where the input's does not; torch would wrap or report it far from the cause.
  checked_product(shape);
  return at::empty(shape, input.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor as_plain_rows(const at::Tensor& input) { return input.resolve_conj().resolve_neg().contiguous(); }

std::string describe_rows(std::string_view argument, const at::Tensor& input) {
  const bool needs_backward = at::GradMode::is_enabled() && input.requires_grad();
  return str_cat(argument, ": dtype ", c10::toString(input.scalar_type()), ", row shape ",
                 tuple_text(input.sizes().slice(1)), ", requires_grad ", needs_backward ? "true" : "false");
}

}  // namespace hyper_parallel
