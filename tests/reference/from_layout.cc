#include "tests/reference/from_layout.h"

namespace hyper_parallel::reference {
namespace {

Rule rule_of(const Placement& placement, int64_t ndim) {
  Rule rule;
  if (const auto* shard = std::get_if<Shard>(&placement)) {
    rule.kind = Rule::Kind::kShard;
    rule.tensor_dim = shard->dim < 0 ? shard->dim + ndim : shard->dim;
  } else if (const auto* partial = std::get_if<Partial>(&placement)) {
    rule.kind = Rule::Kind::kPartial;
    rule.op = to_string(partial->op);
  } else if (const auto* ragged = std::get_if<RaggedShard>(&placement)) {
    rule.kind = Rule::Kind::kRagged;
    rule.prefix_dims = ragged->dim_count();
    rule.units = ragged->local_units();
  }
  return rule;
}

}  // namespace

Scheme scheme_of(const Layout& layout, const std::vector<int64_t>& shape) {
  Scheme scheme{layout.mesh().shape(), layout.mesh().ranks(), {}, shape};
  for (const Placement& placement : layout.placements()) {
    scheme.rules.push_back(rule_of(placement, static_cast<int64_t>(shape.size())));
  }
  return scheme;
}

}  // namespace hyper_parallel::reference
