#include "hyper_parallel/checkpoint/replica_check.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/byte_codec.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

/// What a rank holds under a key: the key says which box of which tensor, or which value, as the text of an error.
using Fingerprints = std::vector<std::pair<std::string, uint32_t>>;

Fingerprints fingerprints_of(SavePlanner& planner) {
  const SavePlan plan = planner.build_local_plan();
  Fingerprints found;
  for (const PlannedTensor& tensor : plan.tensors) {
    for (size_t i = 0; i < tensor.boxes.size(); ++i) {
      const HeldBytes held = planner.get_data({&tensor, i});
      // Dtype and shape are part of the key: where these differ, planning the save tells it better.
      found.emplace_back(str_cat("the cells ", to_string(tensor.boxes[i]), " of ", to_string(tensor.dtype), " tensor ",
                                 quoted_name(tensor.name), " of shape ", shape_text(tensor.shape)),
                         crc32c(held.bytes));
    }
  }
  for (const NamedValue& value : plan.values) {
    ByteWriter bytes;
    write_value(bytes, value.value);
    found.emplace_back(str_cat("the value ", quoted_name(value.name)), crc32c(std::as_bytes(std::span(bytes.bytes()))));
  }
  return found;
}

std::string encode(const Fingerprints& fingerprints) {
  ByteWriter bytes;
  bytes.write_count(fingerprints.size());
  for (const auto& [key, checksum] : fingerprints) {
    bytes.write_string(key);
    bytes.write_uint32(checksum);
  }
  return bytes.take();
}

/// Compares one rank's fingerprints with those of the ranks before it.
void compare(std::map<std::string, std::pair<uint32_t, int64_t>>& first, int64_t rank, const std::string& message) {
  ByteReader bytes(message);
  for (size_t left = bytes.read_count(12); left > 0; --left) {
    std::string key = bytes.read_string();
    const uint32_t checksum = bytes.read_uint32();
    const auto [known, is_new] = first.try_emplace(std::move(key), checksum, rank);
    HP_CHECK(is_new || known->second.first == checksum, kFailedPrecondition, "ranks ", known->second.second, " and ",
             rank, " differ in ", known->first, ", of which both are to hold the same; saving would keep one of them");
  }
}

}  // namespace

void check_replicas(Exchange& exchange, SavePlanner& planner) {
  const auto local = [&] { return encode(fingerprints_of(planner)); };
  const auto coordinate = [](const std::vector<std::string>& messages) {
    std::map<std::string, std::pair<uint32_t, int64_t>> first;
    for (size_t rank = 0; rank < messages.size(); ++rank) compare(first, static_cast<int64_t>(rank), messages[rank]);
    return std::vector<std::string>(messages.size());
  };
  run_round(exchange, "comparing replicas", local, coordinate);
}

}  // namespace hyper_parallel
