#include "hyper_parallel/checkpoint/planner.h"

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {

HeldBytes checked_data(SavePlanner& planner, const WriteItem& item) {
  HeldBytes data = planner.get_data(item);
  HP_CHECK(static_cast<int64_t>(data.bytes.size()) == item.bytes(), kInvalidArgument, "get_data of tensor ",
           quoted_name(item.tensor->name), " gave ", data.bytes.size(), " bytes, but box ", to_string(item.extent()),
           " of ", item.tensor->dtype, " takes ", item.bytes());
  return data;
}

}  // namespace hyper_parallel
