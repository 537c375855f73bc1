#include "hyper_parallel/tools/plan_report.h"

#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/redistribute/planner.h"

namespace hyper_parallel {
namespace {

RankReport make_rank_report(const Plan& plan, int64_t rank) {
  Dims coordinate = *plan.source.mesh().coordinate(rank);
  Dims source_shape = plan.source.local_shape(coordinate);
  RankPlan own = rank_plan(plan, rank);
  const RankTraffic cost = traffic(own);
  return {rank, std::move(coordinate), std::move(source_shape), std::move(own), cost, received_lower_bound(plan, rank)};
}

}  // namespace

PlanReport make_plan_report(const PlanRequest& request, int64_t max_listed) {
  Plan plan = plan_redistribution(request.source, request.target, request.shape);
  const MeshTraffic mesh = mesh_traffic(plan);
  const int64_t most = max_messages(plan);
  PlanReport report{std::move(plan), request.dtype, checked_product(request.shape), mesh, most,
                    std::nullopt,    std::nullopt};
  if (most <= max_listed) report.messages = message_traffic(report.plan);
  if (request.rank) report.rank = make_rank_report(report.plan, *request.rank);
  return report;
}

int64_t bytes_of(const PlanReport& report, int64_t elements) {
  int64_t bytes = 0;
  HP_CHECK(!__builtin_mul_overflow(elements, report.dtype.bytes, &bytes), kInvalidArgument, elements, " elements of ",
           report.dtype.name, " are more bytes than int64 counts");
  return bytes;
}

}  // namespace hyper_parallel
