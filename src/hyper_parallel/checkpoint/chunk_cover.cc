#include "hyper_parallel/checkpoint/chunk_cover.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "hyper_parallel/base/text.h"
#include "hyper_parallel/checkpoint/random_word.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

// How it works
//
//   holders(x)   how many of the boxes hold cell x. The boxes tile the shape if and only if holders(x) == 1 everywhere.
//
// Give every coordinate c of every dim d a random number r[d](c), and weigh each cell by the product over the dims of
// r[d](x[d]) - r[d](x[d] + 1). The weights of a box's cells then sum to the product of r[d](begin) - r[d](end): they
// cost nothing to sum, however many cells there are. So
//
//   sum of the boxes' weights == weight of the whole shape
//
// holds whenever the boxes tile the shape. The difference of both sides, written out as a polynomial in the numbers r,
// is multilinear of degree ndim, and it is not zero unless holders is 1 everywhere (its coefficients are the n-th mixed
// differences of holders - 1, which vanish only together with it). By Schwartz and Zippel a wrong set of boxes passes
// with a probability of about ndim / 2^61, over the choice of r, which is made anew for each call and which no author
// of a file can foresee: a fault of the memory is likelier. All layouts cost the same, ragged ones in any number of
// dims included, where sweeps have to keep sets of open boxes.
//
// The same sum over a part of the shape says whether that part is right, and finds the first cell that is not, by
// halving. What is reported has been counted cell by cell, and does not depend on r.

// Integers modulo the prime 2^61 - 1, always reduced.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

uint64_t reduce(uint64_t a) {
  const uint64_t folded = (a & kPrime) + (a >> 61);
  return folded >= kPrime ? folded - kPrime : folded;
}
uint64_t add(uint64_t a, uint64_t b) { return reduce(a + b); }
uint64_t subtract(uint64_t a, uint64_t b) { return reduce(a + kPrime - b); }
uint64_t multiply(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return add(static_cast<uint64_t>(product) & kPrime, static_cast<uint64_t>(product >> 61));
}

// A secret random function of integers: SipHash-2-4 (Aumasson and Bernstein 2012) of one 8-byte word.
class RandomFunction {
 public:
  RandomFunction() {
    for (uint64_t& half : key_) half = random_word();
  }

  // One of any number of functions that follow from `source`.
  RandomFunction(const RandomFunction& source, size_t number) {
    const auto first = static_cast<int64_t>(2 * number);
    key_ = {source(first), source(first + 1)};
  }

  uint64_t operator()(int64_t argument) const {
    std::array<uint64_t, 4> v = {key_[0] ^ 0x736f6d6570736575ULL, key_[1] ^ 0x646f72616e646f6dULL,
                                 key_[0] ^ 0x6c7967656e657261ULL, key_[1] ^ 0x7465646279746573ULL};
    absorb(v, static_cast<uint64_t>(argument));
    absorb(v, uint64_t{8} << 56);  // the length
    v[2] ^= 0xFF;
    for (int round = 0; round < 4; ++round) mix(v);
    return reduce(v[0] ^ v[1] ^ v[2] ^ v[3]);
  }

 private:
  static void absorb(std::array<uint64_t, 4>& v, uint64_t word) {
    v[3] ^= word;
    mix(v);
    mix(v);
    v[0] ^= word;
  }

  static void mix(std::array<uint64_t, 4>& v) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = std::rotl(v[1], 13) ^ v[0];
    v[3] = std::rotl(v[3], 16) ^ v[2];
    v[0] = std::rotl(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = std::rotl(v[1], 17) ^ v[2];
    v[3] = std::rotl(v[3], 21) ^ v[0];
    v[2] = std::rotl(v[2], 32);
  }

  std::array<uint64_t, 2> key_{};
};

using BoxOf = std::function<Box(int64_t)>;

class Tiling {
 public:
  Tiling(const Dims& shape, int64_t count, const BoxOf& box) : shape_(shape), count_(count), box_(box) {
    const RandomFunction source;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      random_.emplace_back(source, dim);
      full_.push_back(weight(dim, {0, shape[dim]}));
    }
  }

  bool is_right() const {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count_; ++i) sum = add(sum, weight(box_(i)));
    return sum == weight(whole_box(shape_));
  }

  // The first cell, in row-major order, that not exactly one box holds, and up to two of the boxes that hold it.
  std::string first_fault() const;

 private:
  // Of the cells whose coordinate in `dim` lies in `range`.
  uint64_t weight(size_t dim, Interval range) const {
    return subtract(random_[dim](range.begin), random_[dim](range.end));
  }

  uint64_t weight(const Box& box) const {
    uint64_t product = 1;
    for (size_t dim = 0; dim < shape_.size(); ++dim) {
      const Interval range = box.range(dim);
      product = multiply(product, range.size() == shape_[dim] ? full_[dim] : weight(dim, range));
    }
    return product;
  }

  std::vector<int64_t> holders(const Box& part, const std::vector<int64_t>& among) const {
    std::vector<int64_t> found;
    for (const int64_t i : among) {
      if (intersect(box_(i), part).has_value()) found.push_back(i);
    }
    return found;
  }

  bool is_right_in(const Box& part, const std::vector<int64_t>& holders) const {
    uint64_t sum = 0;
    for (const int64_t i : holders) {
      if (const std::optional<Box> held = intersect(box_(i), part)) sum = add(sum, weight(*held));
    }
    return sum == weight(part);
  }

  const Dims& shape_;
  int64_t count_;
  const BoxOf& box_;
  std::vector<RandomFunction> random_;  // of each dim
  std::vector<uint64_t> full_;          // of each dim: the weight of all coordinates
};

std::string box_text(const Box& box) { return str_cat(shape_text(box.offsets), "+", shape_text(box.sizes)); }

std::string Tiling::first_fault() const {
  Box part = whole_box(shape_);
  std::vector<int64_t> inside(static_cast<size_t>(count_));
  std::iota(inside.begin(), inside.end(), int64_t{0});
  for (size_t dim = 0; dim < shape_.size(); ++dim) {
    while (part.sizes[dim] > 1) {
      // Keeps the half with the first fault: the lower one unless that is right.
      Box lower = part;
      lower.sizes[dim] = part.sizes[dim] / 2;
      std::vector<int64_t> in_lower = holders(lower, inside);
      if (is_right_in(lower, in_lower)) {
        part.offsets[dim] += lower.sizes[dim];
        part.sizes[dim] -= lower.sizes[dim];
        inside = holders(part, inside);
      } else {
        part = lower;
        inside = std::move(in_lower);
      }
    }
  }
  if (inside.empty()) return str_cat("no chunk holds cell ", shape_text(part.offsets));
  if (inside.size() == 1) return "its chunks do not tile it";
  return str_cat("chunks ", box_text(box_(inside[0])), " and ", box_text(box_(inside[1])), " overlap");
}

// So many boxes are compared in pairs faster than random numbers are drawn.
constexpr int64_t kFewBoxes = 16;

// True if few boxes tile the shape: they are disjoint and have as many cells. False says nothing about many.
bool are_few_that_tile(const Dims& shape, int64_t count, const BoxOf& box) {
  if (count > kFewBoxes) return false;
  std::vector<Box> boxes;
  int64_t cells = 0;
  for (int64_t i = 0; i < count; ++i) {
    boxes.push_back(box(i));
    for (int64_t before = 0; before < i; ++before) {
      if (intersect(boxes[static_cast<size_t>(before)], boxes.back()).has_value()) return false;
    }
    cells += boxes.back().numel();  // disjoint boxes have no more cells than the shape
  }
  return cells == whole_box(shape).numel();
}

}  // namespace

std::optional<std::string> tiling_fault(const Dims& shape, int64_t count, const BoxOf& box) {
  if (are_few_that_tile(shape, count, box)) return std::nullopt;
  const Tiling tiling(shape, count, box);
  if (tiling.is_right()) return std::nullopt;
  return tiling.first_fault();
}

}  // namespace hyper_parallel
