#include "hyper_parallel/simulate/simulator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {
namespace {

using Buffer = std::vector<double>;

/// Calls `visit(index)` for each element of the view in row-major order.
template <typename Visit>
void for_each_element(const StridedView& view, const Visit& visit) {
  Dims index(view.sizes.size(), 0);
  const int64_t count = view.numel();
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = view.offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * view.strides[d];
    visit(at);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < view.sizes[d]) break;
      index[d] = 0;
    }
  }
}

Buffer gather(const Buffer& buffer, const std::vector<StridedView>& pieces) {
  Buffer out;
  for (const StridedView& piece : pieces) {
    for_each_element(piece, [&](int64_t at) { out.push_back(buffer.at(static_cast<size_t>(at))); });
  }
  return out;
}

double combined(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kMin:
      return std::min(a, b);
  }
  raise(ErrorCode::kInternal, "unknown reduce op");
}

/// A target buffer that knows how often each cell was written.
class Target {
 public:
  explicit Target(int64_t numel) : values_(static_cast<size_t>(numel)), writes_(static_cast<size_t>(numel)) {}

  void write(const std::vector<StridedView>& pieces, const Buffer& message, std::optional<ReduceOp> op) {
    size_t next = 0;
    for (const StridedView& piece : pieces) {
      for_each_element(piece, [&](int64_t at) {
        const size_t cell = static_cast<size_t>(at);
        const double value = message.at(next++);
        values_.at(cell) = op && writes_[cell] > 0 ? combined(*op, values_[cell], value) : value;
        ++writes_[cell];
      });
    }
    HP_DCHECK(next == message.size());
  }

  /// The values, each of which must have been written `times` times.
  Buffer finish(int64_t times, double divisor) && {
    HP_DCHECK(std::ranges::all_of(writes_, [&](int64_t count) { return count == times; }));
    for (double& value : values_) value /= divisor;
    return std::move(values_);
  }

 private:
  Buffer values_;
  std::vector<int64_t> writes_;
};

using Mail = std::map<std::pair<int64_t, int64_t>, Buffer>;  // (sender, receiver) -> message

Buffer take(Mail& mail, int64_t sender, const Transfer& receive, int64_t receiver) {
  const auto found = mail.find({sender, receiver});
  HP_CHECK(found != mail.end() && std::cmp_equal(found->second.size(), receive.numel), kInternal, "rank ", receiver,
           " waits for ", receive.numel, " elements of rank ", sender, " which sends another number");
  Buffer message = std::move(found->second);
  mail.erase(found);
  return message;
}

void write_own(Target& target, const RankStep& step, const Buffer& source, std::optional<ReduceOp> op) {
  for (const LocalCopy& copy : step.copies) target.write({copy.to}, gather(source, {copy.from}), op);
}

Buffer run_move(const RankStep& step, int64_t rank, const Buffer& source, Mail& mail) {
  Target target(step.target_numel);
  write_own(target, step, source, std::nullopt);
  for (const Transfer& receive : step.receives) {
    target.write(receive.pieces, take(mail, receive.peer, receive, rank), std::nullopt);
  }
  return std::move(target).finish(1, 1);
}

Buffer run_reduce(const RankStep& step, int64_t rank, const Buffer& source, Mail& mail) {
  Target target(step.target_numel);
  const ReduceOp op = step.combine->op;
  for (const int64_t sender : step.combine->sources) {
    if (sender == rank) {
      write_own(target, step, source, op);
      continue;
    }
    const auto receive = std::ranges::find(step.receives, sender, &Transfer::peer);
    if (receive != step.receives.end()) target.write(receive->pieces, take(mail, sender, *receive, rank), op);
  }
  return std::move(target).finish(static_cast<int64_t>(step.combine->sources.size()),
                                  static_cast<double>(step.combine->divisor));
}

/// Throws unless `shares` holds what the ranks own under `distribution`.
void check_shares(const Distribution& distribution, const Shares& shares) {
  const DeviceMesh& mesh = distribution.mesh();
  HP_CHECK(std::cmp_equal(shares.size(), mesh.size()), kInvalidArgument, "there are ", shares.size(),
           " shares but the mesh has ", mesh.size(), " ranks");
  for (const auto& [rank, share] : shares) {
    const auto coordinate = mesh.coordinate(rank);
    HP_CHECK(coordinate.has_value(), kInvalidArgument, "there is a share of rank ", rank, ", which is not in ",
             to_string(mesh));
    const int64_t numel = distribution.owned(*coordinate).numel();
    HP_CHECK(std::cmp_equal(share.size(), numel), kInvalidArgument, "the share of rank ", rank, " has ", share.size(),
             " elements but the layout gives it ", numel);
  }
}

Shares run_step(const Step& step, const Shares& source) {
  std::map<int64_t, RankStep> programs;
  Mail mail;
  for (const auto& [rank, buffer] : source) {
    const RankStep& program = programs.emplace(rank, rank_step(step, rank)).first->second;
    HP_DCHECK(std::cmp_equal(buffer.size(), program.source_numel));
    for (const Transfer& send : program.sends) {
      const bool first = mail.emplace(std::pair(rank, send.peer), gather(buffer, send.pieces)).second;
      HP_DCHECK(first);
    }
  }
  Shares target;
  for (const auto& [rank, program] : programs) {
    const Buffer& buffer = source.at(rank);
    target[rank] = program.combine ? run_reduce(program, rank, buffer, mail) : run_move(program, rank, buffer, mail);
  }
  HP_CHECK(mail.empty(), kInternal, "rank ", mail.begin()->first.second, " never receives what rank ",
           mail.begin()->first.first, " sends");
  return target;
}

/// What a rank at `coordinate` adds to hold a share of `value`: the first member of each Partial group holds it, scaled
/// for avg, the others hold what does not count.
double share_of(const Distribution& distribution, const Dims& coordinate, double value) {
  for (size_t dim = distribution.dim_splits().size(); dim-- > 0;) {
    const auto* partial = std::get_if<Partial>(&distribution.dim_splits()[dim]);
    if (partial == nullptr || partial->op == ReduceOp::kMax || partial->op == ReduceOp::kMin) continue;
    if (coordinate[dim] != 0) return 0;
    if (partial->op == ReduceOp::kAvg)
      value *= static_cast<double>(distribution.mesh().size(static_cast<int64_t>(dim)));
  }
  return value;
}

}  // namespace

Shares distribute_values(const Distribution& distribution, const std::vector<double>& values) {
  const Region whole = region_of(whole_box(distribution.shape()));
  HP_CHECK(std::cmp_equal(values.size(), whole.numel()), kInvalidArgument, "there are ", values.size(),
           " values but shape ", tuple_text(distribution.shape()), " has ", whole.numel());
  Shares shares;
  for (const int64_t rank : distribution.mesh().ranks()) {
    const Dims coordinate = *distribution.mesh().coordinate(rank);
    const Region region = distribution.owned(coordinate);
    Buffer& share = shares[rank];
    share.resize(static_cast<size_t>(region.numel()));
    for (const Piece& piece : intersect(whole, region, distribution.shape())) {
      const Buffer cells = gather(values, {piece.in_a});
      size_t next = 0;
      for_each_element(piece.in_b, [&](int64_t at) {
        share[static_cast<size_t>(at)] = share_of(distribution, coordinate, cells[next++]);
      });
    }
  }
  return shares;
}

Shares simulate(const Plan& plan, const Shares& source) {
  check_shares(plan.source, source);
  Shares shares = source;
  for (const Step& step : plan.steps) shares = run_step(step, shares);
  return shares;
}

}  // namespace hyper_parallel
