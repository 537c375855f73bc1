#include "hyper_parallel/checkpoint/box_index.h"

#include <algorithm>
#include <numeric>

namespace hyper_parallel {
namespace {

// Few boxes are looked at faster than a node.
constexpr size_t kLeafBoxes = 8;

}  // namespace

BoxIndex::BoxIndex(size_t ndim, int64_t count, const std::function<Box(int64_t)>& box) : ndim_(ndim) {
  bounds_.reserve(static_cast<size_t>(count) * 2 * ndim);
  for (int64_t number = 0; number < count; ++number) {
    const Box extent = box(number);
    for (size_t dim = 0; dim < ndim; ++dim) {
      const Interval range = extent.range(dim);
      bounds_.insert(bounds_.end(), {range.begin, range.end});
    }
  }
  order_.resize(static_cast<size_t>(count));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  if (count > 0) build(0, order_.size());
}

size_t BoxIndex::build(size_t begin, size_t end) {
  const size_t number = nodes_.size();
  nodes_.push_back({begin, end, 0});
  add_hull(begin, end);
  if (end - begin <= kLeafBoxes || ndim_ == 0) return number;
  const size_t dim = split_dim(begin, end);
  const size_t middle = begin + (end - begin) / 2;
  const auto at = [&](size_t place) { return order_.begin() + static_cast<std::ptrdiff_t>(place); };
  std::nth_element(at(begin), at(middle), at(end),
                   [&](int64_t a, int64_t b) { return bounds_of(a)[2 * dim] < bounds_of(b)[2 * dim]; });
  build(begin, middle);
  const size_t right = build(middle, end);
  nodes_[number].right = right;
  return number;
}

size_t BoxIndex::split_dim(size_t begin, size_t end) const {
  size_t widest = 0;
  int64_t widest_spread = -1;
  for (size_t dim = 0; dim < ndim_; ++dim) {
    int64_t low = bounds_of(order_[begin])[2 * dim];
    int64_t high = low;
    for (size_t place = begin; place < end; ++place) {
      const int64_t offset = bounds_of(order_[place])[2 * dim];
      low = std::min(low, offset);
      high = std::max(high, offset);
    }
    if (high - low > widest_spread) {
      widest = dim;
      widest_spread = high - low;
    }
  }
  return widest;
}

void BoxIndex::add_hull(size_t begin, size_t end) {
  for (size_t dim = 0; dim < ndim_; ++dim) {
    int64_t low = bounds_of(order_[begin])[2 * dim];
    int64_t high = bounds_of(order_[begin])[2 * dim + 1];
    for (size_t place = begin; place < end; ++place) {
      low = std::min(low, bounds_of(order_[place])[2 * dim]);
      high = std::max(high, bounds_of(order_[place])[2 * dim + 1]);
    }
    hulls_.insert(hulls_.end(), {low, high});
  }
}

bool BoxIndex::overlaps(const int64_t* bounds, const Box& wanted) const {
  for (size_t dim = 0; dim < ndim_; ++dim) {
    const Interval range = wanted.range(dim);
    if (std::max(bounds[2 * dim], range.begin) >= std::min(bounds[2 * dim + 1], range.end)) return false;
  }
  return true;
}

void BoxIndex::for_each_overlap(const Box& wanted, const std::function<void(int64_t)>& visit) const {
  std::vector<size_t> open;
  if (!nodes_.empty()) open.push_back(0);
  while (!open.empty()) {
    const size_t number = open.back();
    open.pop_back();
    if (!overlaps(hulls_.data() + number * 2 * ndim_, wanted)) continue;
    const Node& node = nodes_[number];
    if (node.right != 0) {
      open.insert(open.end(), {node.right, number + 1});
      continue;
    }
    for (size_t place = node.begin; place < node.end; ++place) {
      if (overlaps(bounds_of(order_[place]), wanted)) visit(order_[place]);
    }
  }
}

}  // namespace hyper_parallel
