// A cache changes how long planning takes and nothing else.

#include "hyper_parallel/redistribute/plan_cache.h"
#include "hyper_parallel/redistribute/planner.h"
#include "tests/property/random_cases.h"

namespace hyper_parallel::test {
namespace {

TEST(PlanCache, OfAnyCapacity_GivesWhatPlanningGives) {
  check_property(300, [] {
    const std::vector<Redistribution> pairs = *drawn([] {
      std::vector<Redistribution> some;
      for (int64_t more = draw(1, 5); more > 0; --more) {
        some.push_back(draw_chance(50) ? draw_redistribution_of_partial() : draw_redistribution_without_partial());
      }
      return some;
    });
    const int64_t capacity = *drawn([] { return draw(0, 6); });
    PlanCache cache(static_cast<size_t>(capacity));
    for (int64_t call = 1; call <= 30; ++call) {
      const Redistribution& pair = pairs[*drawn([count = pairs.size()] { return draw_index(count); })];
      const int64_t rank = *drawn([mesh = pair.source.mesh()] { return draw_of(mesh.ranks()); });
      const auto cached = cache.get(pair.source, pair.target, pair.shape, rank);
      RC_ASSERT(*cached == rank_plan(plan_redistribution(pair.source, pair.target, pair.shape), rank));
      RC_ASSERT(cache.size() <= static_cast<size_t>(capacity));
      RC_ASSERT(cache.hits() + cache.misses() == call);
    }
  });
}

TEST(PlanCache, AnUnfoldedLayout_FindsThePlanOfTheFoldedOne) {
  check_property(500, [] {
    const Redistribution pair = *drawn(draw_redistribution_without_partial);
    const int64_t ndim = static_cast<int64_t>(pair.shape.size());
    const int64_t rank = pair.source.mesh().ranks().front();
    PlanCache cache(4);
    const auto folded = cache.get(pair.source.folded(ndim), pair.target.folded(ndim), pair.shape, rank);
    RC_ASSERT(cache.get(pair.source, pair.target, pair.shape, rank) == folded);
    RC_ASSERT(cache.size() == 1u);
    RC_ASSERT(cache.hits() == 1);
  });
}

}  // namespace
}  // namespace hyper_parallel::test
