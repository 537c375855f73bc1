#include "tests/reference/truth.h"

#include <algorithm>
#include <stdexcept>

namespace hyper_parallel::reference {
namespace {

using Index = std::vector<int64_t>;

/// Calls `visit(index)` for each index of a grid, in row-major order.
void walk(const Index& grid, const std::function<void(const Index&)>& visit) {
  Index index(grid.size(), 0);
  const std::function<void(size_t)> descend = [&](size_t dim) {
    if (dim == grid.size()) return visit(index);
    for (index[dim] = 0; index[dim] < grid[dim]; ++index[dim]) descend(dim + 1);
  };
  descend(0);
}

int64_t count_cells(const Index& grid) {
  int64_t count = 0;
  walk(grid, [&](const Index&) { ++count; });
  return count;
}

/// The rows that fall to `receiver` when `rows` are dealt out in full chunks to the first receivers and what is left to
/// the next: a chunk is the fewest rows that are enough for all to go.
Index deal_rows(const Index& rows, int64_t receivers, int64_t receiver) {
  size_t chunk = 0;
  while (chunk * static_cast<size_t>(receivers) < rows.size()) ++chunk;
  Index mine;
  size_t given = 0;
  int64_t current = 0;
  for (const int64_t row : rows) {
    if (given == chunk) {
      ++current;
      given = 0;
    }
    if (current == receiver) mine.push_back(row);
    ++given;
  }
  return mine;
}

/// The rows of `tensor_dim` that are left at `coordinate` after each mesh dim that shards it, outermost first.
Index rows_at(const Scheme& scheme, const Index& coordinate, size_t tensor_dim) {
  Index rows;
  for (int64_t row = 0; row < scheme.shape[tensor_dim]; ++row) rows.push_back(row);
  for (size_t mesh_dim = 0; mesh_dim < scheme.rules.size(); ++mesh_dim) {
    const Rule& rule = scheme.rules[mesh_dim];
    if (rule.kind == Rule::Kind::kShard && rule.tensor_dim == static_cast<int64_t>(tensor_dim)) {
      rows = deal_rows(rows, scheme.mesh_shape[mesh_dim], coordinate[mesh_dim]);
    }
  }
  return rows;
}

/// For each element its owner along the ragged mesh dim: units, each as many cells as every other, go to the ranks in
/// order.
Index ragged_owners(const Index& shape, const Rule& rule) {
  Index unit_owners;
  for (size_t rank = 0; rank < rule.units.size(); ++rank) {
    for (int64_t unit = 0; unit < rule.units[rank]; ++unit) unit_owners.push_back(static_cast<int64_t>(rank));
  }
  const int64_t cells = count_cells(Index(shape.begin(), shape.begin() + rule.prefix_dims));
  size_t cells_per_unit = 0;
  while (static_cast<int64_t>(cells_per_unit * unit_owners.size()) < cells) ++cells_per_unit;

  Index owners;
  size_t unit = 0;
  size_t cells_of_unit = 0;
  walk(shape, [&](const Index& index) {
    const bool begins_cell =
        std::all_of(index.begin() + rule.prefix_dims, index.end(), [](int64_t i) { return i == 0; });
    if (begins_cell && cells_of_unit == cells_per_unit) {
      ++unit;
      cells_of_unit = 0;
    }
    if (begins_cell) ++cells_of_unit;
    owners.push_back(unit_owners[unit]);
  });
  return owners;
}

/// The Partial mesh dims of a scheme, outermost first. Replicas of a share have equal coordinates on these.
struct PartialDims {
  Index sizes;
  std::vector<std::string> ops;

  explicit PartialDims(const Scheme& scheme) {
    for (size_t dim = 0; dim < scheme.rules.size(); ++dim) {
      if (scheme.rules[dim].kind != Rule::Kind::kPartial) continue;
      sizes.push_back(scheme.mesh_shape[dim]);
      ops.push_back(scheme.rules[dim].op);
    }
  }

  /// The entries of `coordinate` on the Partial dims.
  static Index project(const Scheme& scheme, const Index& coordinate) {
    Index projected;
    for (size_t dim = 0; dim < scheme.rules.size(); ++dim) {
      if (scheme.rules[dim].kind == Rule::Kind::kPartial) projected.push_back(coordinate[dim]);
    }
    return projected;
  }
};

double combine(const std::string& op, const std::vector<double>& shares) {
  if (op == "max") return *std::max_element(shares.begin(), shares.end());
  if (op == "min") return *std::min_element(shares.begin(), shares.end());
  double sum = 0;
  for (const double share : shares) sum += share;
  return op == "avg" ? sum / static_cast<double>(shares.size()) : sum;
}

/// `count` shares, each a multiple of `grain`, that `combine` takes to `value`.
std::vector<double> split_value(const std::string& op, double value, int64_t count, int64_t grain, const Draw& draw) {
  std::vector<double> shares(static_cast<size_t>(count));
  const auto drawn = [&](int64_t low, int64_t high) { return static_cast<double>(draw(low, high) * grain); };
  const size_t chosen = static_cast<size_t>(draw(0, count - 1));
  double others = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (op == "max") shares[i] = i == chosen ? value : value - drawn(0, 9);
    if (op == "min") shares[i] = i == chosen ? value : value + drawn(0, 9);
    if (op == "sum" || op == "avg") shares[i] = drawn(-99, 99);
    if (i != chosen) others += shares[i];
  }
  if (op == "sum") shares[chosen] = value - others;
  if (op == "avg") shares[chosen] = value * static_cast<double>(count) - others;
  return shares;
}

/// The shares of one element by coordinate on the Partial dims, split from the outermost dim inwards.
void split_element(const PartialDims& dims, size_t dim, double value, int64_t grain, const Draw& draw, Index& at,
                   std::map<Index, double>& shares) {
  if (dim == dims.sizes.size()) {
    shares[at] = value;
    return;
  }
  const std::vector<double> parts = split_value(dims.ops[dim], value, dims.sizes[dim], grain, draw);
  for (size_t i = 0; i < parts.size(); ++i) {
    at.push_back(static_cast<int64_t>(i));
    split_element(dims, dim + 1, parts[i], grain, draw, at, shares);
    at.pop_back();
  }
}

/// The reverse: the shares below `at`, reduced from the innermost dim outwards.
double reduce_element(const PartialDims& dims, size_t dim, Index& at, const std::map<Index, double>& shares) {
  if (dim == dims.sizes.size()) {
    const auto found = shares.find(at);
    if (found == shares.end()) throw std::runtime_error("an element has no owner");
    return found->second;
  }
  std::vector<double> parts;
  for (int64_t i = 0; i < dims.sizes[dim]; ++i) {
    at.push_back(i);
    parts.push_back(reduce_element(dims, dim + 1, at, shares));
    at.pop_back();
  }
  return combine(dims.ops[dim], parts);
}

}  // namespace

int64_t element_count(const Scheme& scheme) { return count_cells(scheme.shape); }

std::optional<std::vector<int64_t>> coordinate_of(const Scheme& scheme, int64_t rank) {
  std::optional<Index> found;
  size_t position = 0;
  walk(scheme.mesh_shape, [&](const Index& coordinate) {
    if (scheme.ranks[position++] == rank) found = coordinate;
  });
  return found;
}

std::vector<int64_t> owned_elements(const Scheme& scheme, int64_t rank) {
  const auto coordinate = coordinate_of(scheme, rank);
  if (!coordinate) return {};
  std::vector<Index> rows;
  for (size_t dim = 0; dim < scheme.shape.size(); ++dim) rows.push_back(rows_at(scheme, *coordinate, dim));
  std::vector<Index> ragged(scheme.rules.size());
  for (size_t dim = 0; dim < scheme.rules.size(); ++dim) {
    if (scheme.rules[dim].kind == Rule::Kind::kRagged) ragged[dim] = ragged_owners(scheme.shape, scheme.rules[dim]);
  }
  std::vector<int64_t> mine;
  int64_t element = 0;
  walk(scheme.shape, [&](const Index& index) {
    bool owned = true;
    for (size_t dim = 0; dim < index.size(); ++dim) owned = owned && std::ranges::count(rows[dim], index[dim]) == 1;
    for (size_t dim = 0; dim < ragged.size(); ++dim) {
      owned = owned && (ragged[dim].empty() || ragged[dim][static_cast<size_t>(element)] == (*coordinate)[dim]);
    }
    if (owned) mine.push_back(element);
    ++element;
  });
  return mine;
}

std::optional<int64_t> owner_offset(const Scheme& scheme, int64_t element, int64_t rank) {
  const std::vector<int64_t> mine = owned_elements(scheme, rank);
  const auto found = std::ranges::find(mine, element);
  if (found == mine.end()) return std::nullopt;
  return found - mine.begin();
}

Shares distribute(const Scheme& scheme, const std::vector<double>& values, const Draw& draw) {
  const PartialDims dims(scheme);
  const int64_t grain = static_cast<int64_t>(scheme.ranks.size());
  std::vector<std::map<Index, double>> element_shares(values.size());
  for (size_t element = 0; element < values.size(); ++element) {
    Index at;
    split_element(dims, 0, values[element], grain, draw, at, element_shares[element]);
  }
  Shares shares;
  for (const int64_t rank : scheme.ranks) {
    const Index at = PartialDims::project(scheme, coordinate_of(scheme, rank).value());
    std::vector<double>& share = shares[rank];
    for (const int64_t element : owned_elements(scheme, rank)) {
      share.push_back(element_shares[static_cast<size_t>(element)].at(at));
    }
  }
  return shares;
}

std::vector<double> reduce(const Scheme& scheme, const Shares& shares) {
  const PartialDims dims(scheme);
  std::vector<std::map<Index, double>> element_shares(static_cast<size_t>(element_count(scheme)));
  for (const int64_t rank : scheme.ranks) {
    const Index at = PartialDims::project(scheme, coordinate_of(scheme, rank).value());
    const std::vector<int64_t> mine = owned_elements(scheme, rank);
    const std::vector<double>& share = shares.at(rank);
    if (share.size() != mine.size()) throw std::runtime_error("a share has the wrong length");
    for (size_t i = 0; i < mine.size(); ++i) {
      const auto [held, first] = element_shares[static_cast<size_t>(mine[i])].emplace(at, share[i]);
      if (!first && held->second != share[i]) throw std::runtime_error("replicas differ");
    }
  }
  std::vector<double> values;
  for (const auto& element : element_shares) {
    Index at;
    values.push_back(reduce_element(dims, 0, at, element));
  }
  return values;
}

}  // namespace hyper_parallel::reference
