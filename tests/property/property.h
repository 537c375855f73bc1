#pragma once

// Runs a RapidCheck property as part of a GoogleTest test, with a seed that replays it.
//
// The whole run has one seed: HP_TEST_SEED if it is set, else drawn at random. It is printed once at the start and
// beside each failure. A test's cases follow from that seed and the test's name alone, so a test that failed in a full
// run fails with the same counterexample when it is run by itself.
//
//   TEST(Sum, Commutes) {
//     check_property(1000, [] {
//       const int64_t a = *drawn([] { return draw(-9, 9); });
//       RC_ASSERT(a + 1 == 1 + a);
//     });
//   }

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <sstream>
#include <utility>
#include <vector>

namespace hyper_parallel::test {

/// The run's seed.
uint64_t run_seed();

/// How many times as many cases are drawn as a test asks for: HP_TEST_TIMES, 1 if it is not set.
int case_factor();

/// The seed of the test that runs now.
uint64_t current_test_seed();

/// A number in [low, high], as likely as every other; shrinks towards `low`. Only inside `drawn`.
inline int64_t draw(int64_t low, int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(low, high + 1));
}

/// A place in a list of `count` items; shrinks towards the first. Only inside `drawn`.
inline size_t draw_index(size_t count) { return static_cast<size_t>(draw(0, static_cast<int64_t>(count) - 1)); }

/// One of the items; shrinks towards the first. Only inside `drawn`.
template <typename T>
T draw_of(const std::vector<T>& items) {
  return items[draw_index(items.size())];
}

/// True in `percent` of the cases; shrinks towards false. Only inside `drawn`.
inline bool draw_chance(int64_t percent) { return draw(1, 100) > 100 - percent; }

/// The generator of what `make` returns. `make` calls `draw` and its kin. It captures by value only: to shrink a
/// failure, RapidCheck calls it again after the property has returned.
template <typename Make>
auto drawn(Make make) {
  return rc::gen::exec(std::move(make));
}

/// Hears nothing: RapidCheck's own listener would print a seed that is not the run's.
class SilentListener : public rc::detail::TestListener {
 public:
  void onTestCaseFinished(const rc::detail::CaseDescription&) override {}
  void onShrinkTried(const rc::detail::CaseDescription&, bool) override {}
  void onTestFinished(const rc::detail::TestMetadata&, const rc::detail::TestResult&) override {}
};

/// Runs `property` on `cases` random cases; a failure fails the current test and shows the smallest case found.
template <typename Property>
void check_property(int cases, Property&& property) {
  rc::detail::TestParams params;
  params.seed = current_test_seed();
  params.maxSuccess = cases * case_factor();
  SilentListener listener;
  const rc::detail::TestResult result =
      rc::detail::checkProperty(rc::detail::toProperty(std::forward<Property>(property)), {}, params, listener, {});
  if (result.is<rc::detail::SuccessResult>()) return;
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  ADD_FAILURE() << message.str() << "\nTo replay: HP_TEST_SEED=" << run_seed();
}

}  // namespace hyper_parallel::test
