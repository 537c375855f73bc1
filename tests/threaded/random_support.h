#pragma once

// For tests of random DTensors: a seed, and the layouts that they are made in.

#include <string>
#include <vector>

#include "tests/threaded/parts.h"

namespace hyper_parallel::test {

inline constexpr uint64_t kSeed = 20240229;

struct Place {
  Shape mesh;
  std::string placements;
};

/// Every kind of normal layout on 1, 2, 4 and 6 ranks.
inline const std::vector<Place> kPlaces = {
    {{1}, "S(0)"},          {{2}, "R"},          {{2}, "S(0)"},       {{2}, "S(1)"},          {{2}, "S(-1)"},
    {{4}, "S(0)"},          {{4}, "S(2)"},       {{2, 2}, "R, R"},    {{2, 2}, "S(0), R"},    {{2, 2}, "S(0), S(0)"},
    {{2, 2}, "S(1), S(0)"}, {{2, 2}, "R, S(2)"}, {{3, 2}, "S(2), R"}, {{3, 2}, "S(1), S(1)"},
};
inline const Shape kShape{5, 3, 7};

}  // namespace hyper_parallel::test
