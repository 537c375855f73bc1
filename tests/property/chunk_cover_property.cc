// tiling_fault against counting each cell's boxes, one by one.

#include <optional>
#include <string>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/chunk_cover.h"
#include "tests/property/property.h"
#include "tests/support/cells.h"

namespace hyper_parallel::test {
namespace {

struct Case {
  Dims shape;
  std::vector<Box> boxes;
};

std::ostream& operator<<(std::ostream& out, const Case& drawn_case) {
  out << tuple_text(drawn_case.shape) << ":";
  for (const Box& box : drawn_case.boxes) out << " " << to_string(box);
  return out;
}

Box draw_box(const Dims& shape) {
  Box box = whole_box(shape);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    box.offsets[dim] = draw(0, shape[dim] - 1);
    box.sizes[dim] = draw(1, shape[dim] - box.offsets[dim]);
  }
  return box;
}

/// Cuts one box after the other in two, wherever it can be: boxes that tile the shape.
std::vector<Box> draw_tiling(const Dims& shape) {
  std::vector<Box> boxes{whole_box(shape)};
  for (int64_t cuts = shape.empty() ? 0 : draw(0, 12); cuts > 0; --cuts) {
    Box& lower = boxes[draw_index(boxes.size())];
    const size_t dim = draw_index(shape.size());
    if (lower.sizes[dim] < 2) continue;
    Box upper = lower;
    lower.sizes[dim] = draw(1, lower.sizes[dim] - 1);
    upper.offsets[dim] += lower.sizes[dim];
    upper.sizes[dim] -= lower.sizes[dim];
    boxes.push_back(upper);
  }
  return boxes;
}

/// A tiling, or one of which some boxes were replaced, doubled or lost.
Case draw_case() {
  Case made;
  made.shape = Dims(static_cast<size_t>(draw(0, 4)), 1);
  for (int64_t& dim : made.shape) dim = draw(1, 5);
  made.boxes = draw_tiling(made.shape);
  for (int64_t faults = draw(0, 2); faults > 0; --faults) {
    const size_t at = draw_index(made.boxes.size());
    switch (draw(0, 2)) {
      case 0:
        made.boxes[at] = draw_box(made.shape);
        break;
      case 1:
        made.boxes.push_back(made.boxes[at]);
        break;
      default:
        if (made.boxes.size() > 1) made.boxes.erase(made.boxes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return made;
}

Dims coordinates(const Dims& shape, int64_t cell) {
  Dims at(shape.size(), 0);
  for (size_t dim = shape.size(); dim-- > 0; cell /= shape[dim]) at[dim] = cell % shape[dim];
  return at;
}

std::optional<std::string> counted_fault(const Case& made) {
  std::vector<std::vector<size_t>> holders(all_cells(made.shape).size());
  for (size_t i = 0; i < made.boxes.size(); ++i) {
    for (const int64_t cell : cells_of(made.boxes[i], made.shape)) holders[static_cast<size_t>(cell)].push_back(i);
  }
  for (size_t cell = 0; cell < holders.size(); ++cell) {
    if (holders[cell].empty()) {
      return str_cat("no chunk holds cell ", tuple_text(coordinates(made.shape, static_cast<int64_t>(cell))));
    }
    if (holders[cell].size() > 1) {
      return str_cat("chunks ", to_string(made.boxes[holders[cell][0]]), " and ",
                     to_string(made.boxes[holders[cell][1]]), " overlap");
    }
  }
  return std::nullopt;
}

TEST(ChunkCover, FaultIsTheFirstOneCounted) {
  check_property(3000, [] {
    const Case made = *drawn([] { return draw_case(); });
    const auto box = [&made](int64_t i) { return made.boxes[static_cast<size_t>(i)]; };
    const auto fault = tiling_fault(made.shape, static_cast<int64_t>(made.boxes.size()), box);
    RC_ASSERT(fault.value_or("none") == counted_fault(made).value_or("none"));
  });
}

}  // namespace
}  // namespace hyper_parallel::test
