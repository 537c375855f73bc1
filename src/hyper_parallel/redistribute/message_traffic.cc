#include "hyper_parallel/redistribute/message_traffic.h"

#include <algorithm>
#include <optional>
#include <variant>
#include <vector>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/redistribute/traffic.h"

namespace hyper_parallel {
namespace {

/// Counts, from above, the ranks that hold a cell of a region. A holder shares the receiver's coordinate on the mesh
/// dims that do not split, so the count is a product over tensor dims and, for the rest, over mesh dims.
class HolderCount {
 public:
  explicit HolderCount(const Distribution& from) : from_(from), shards_(from.shape().size()) {
    for (size_t dim = 0; dim < from.dim_splits().size(); ++dim) {
      const int64_t parts = from.mesh().size(static_cast<int64_t>(dim));
      std::visit(Overloaded{
                     [](const Replicate&) {},
                     [](const Partial&) {},
                     [&](const Shard& shard) { shards_[static_cast<size_t>(shard.dim)].push_back(parts); },
                     [&](const RaggedShard& ragged) { ragged_.emplace(ragged, from.shape()); },
                     [&](const FlatSplit&) { flat_parts_ *= parts; },
                 },
                 from.dim_splits()[dim]);
    }
  }

  int64_t holders(const Region& wanted) const {
    if (wanted.empty()) return 0;
    int64_t count = flat_parts_;
    if (ragged_) count *= ragged_->owners(flat_hull(wanted, from_.shape())).size();
    const Box box = bounding_box(wanted);
    for (size_t dim = 0; dim < shards_.size(); ++dim) {
      if (shards_[dim].empty()) continue;
      const Interval rows = box.range(dim);
      count *= chunk_number(dim, rows.end - 1) - chunk_number(dim, rows.begin) + 1;
    }
    return count;  // at most the ranks of the mesh
  }

 private:
  /// The number of the innermost chunk that holds `row`, the chunks of nested shards counted from the outermost in.
  int64_t chunk_number(size_t dim, int64_t row) const {
    Interval range{0, from_.shape()[dim]};
    int64_t number = 0;
    for (const int64_t parts : shards_[dim]) {
      const int64_t index = (row - range.begin) / ceil_div(range.size(), parts);
      number = number * parts + index;
      range = chunk_of(range, parts, index);
    }
    return number;
  }

  const Distribution& from_;
  std::vector<std::vector<int64_t>> shards_;  // per tensor dim the sizes of the mesh dims that cut it, outermost first
  std::optional<RaggedSplit> ragged_;
  int64_t flat_parts_ = 1;
};

int64_t messages_of(const Step& step, const Move&) {
  const HolderCount count(step.from);
  int64_t messages = 0;
  for (const int64_t rank : step.to.mesh().ranks()) {
    const Region wanted = step.to.owned(*step.to.mesh().coordinate(rank));
    const Region held = step.from.owned(*step.from.mesh().coordinate(rank));
    const int64_t itself = overlap_numel(held, wanted, step.from.shape()) > 0 ? 1 : 0;
    messages = checked_add(messages, count.holders(wanted) - itself);
  }
  return messages;
}

/// Every rank that owns a part of the result hears from all others of its group.
int64_t messages_of(const Step& step, const Reduce& reduce) {
  const auto owns = [&](int64_t rank) { return !step.to.owned(*step.to.mesh().coordinate(rank)).empty(); };
  return checked_mul(std::ranges::count_if(step.to.mesh().ranks(), owns), shares_of(step, reduce) - 1);
}

}  // namespace

MessageTraffic message_traffic(const Plan& plan) {
  MessageTraffic mesh;
  for (const int64_t rank : plan.source.mesh().ranks()) {
    const RankTraffic own = traffic(plan, rank);
    mesh.messages += own.messages;
    mesh.max_sent = std::max(mesh.max_sent, own.sent);
    mesh.max_peak_extra = std::max(mesh.max_peak_extra, own.peak_extra);
  }
  return mesh;
}

int64_t max_messages(const Plan& plan) {
  int64_t messages = 0;
  for (const Step& step : plan.steps) {
    if (is_local(step)) continue;
    const int64_t of_step = std::visit([&](const auto& action) { return messages_of(step, action); }, step.action);
    messages = checked_add(messages, of_step);
  }
  return messages;
}

}  // namespace hyper_parallel
