#include "hyper_parallel/operations/call_cache.h"

#include "hyper_parallel/base/hash.h"

namespace hyper_parallel {

size_t CallKeyHash::operator()(const CallKey& key) const {
  size_t seed = std::hash<std::string>{}(key.call);
  hash_combine(seed, key.rank);
  for (const CallKey::Operand& operand : key.operands) {
    hash_combine_range(seed, operand.shape);
    hash_combine(seed, operand.layout.hash());
    hash_combine(seed, operand.item_bytes);
  }
  return seed;
}

}  // namespace hyper_parallel
