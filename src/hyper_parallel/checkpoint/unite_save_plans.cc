#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "hyper_parallel/base/checked.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/checkpoint/chunk_cover.h"
#include "hyper_parallel/checkpoint/fnv1a.h"
#include "hyper_parallel/checkpoint/save_plan.h"
#include "hyper_parallel/checkpoint/storage_bytes.h"
#include "hyper_parallel/checkpoint/structure_merge.h"
#include "hyper_parallel/checkpoint/tensor_name.h"

namespace hyper_parallel {
namespace {

// One rank's part of a tensor.
struct Offer {
  int64_t rank = 0;
  const PlannedTensor* tensor = nullptr;
};

// What the ranks say of one name, ranks in ascending order.
struct Entry {
  std::string_view name;
  std::vector<Offer> offers;
  std::optional<int64_t> value_rank;         // the lowest rank that has it as a value
  std::optional<int64_t> latest_value_rank;  // the last one that was looked at
};

// A box of an offer.
struct OfferedBox {
  const Box* box = nullptr;
  size_t offer = 0;
  size_t number = 0;  // in the offer's boxes
};

std::string of_tensor(const PlannedTensor& tensor) {
  return str_cat("tensor ", quoted_name(tensor.name), " of shape ", shape_text(tensor.shape));
}

std::string kind_text(const PlannedTensor& tensor) {
  return str_cat(to_string(tensor.dtype), " ", shape_text(tensor.shape));
}

// Every name and who has it, sorted by name.
class EntryTable {
 public:
  explicit EntryTable(const std::vector<SavePlan>& plans) {
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      add_tensors(static_cast<int64_t>(rank), plans[rank].tensors);
      add_values(static_cast<int64_t>(rank), plans[rank].values);
    }
    std::ranges::sort(entries_, {}, &Entry::name);
  }

  const std::vector<Entry>& entries() const { return entries_; }

 private:
  Entry& entry(std::string_view name) {
    const auto [place, is_new] = numbers_.emplace(name, entries_.size());
    if (is_new) {
      HP_CHECK(is_utf8(name), kInvalidArgument, "the name ", quoted_name(name), " is not UTF-8 text");
      entries_.push_back({name, {}, std::nullopt, std::nullopt});
    }
    return entries_[place->second];
  }

  void add_tensors(int64_t rank, const std::vector<PlannedTensor>& tensors) {
    for (const PlannedTensor& tensor : tensors) {
      Entry& of_name = entry(tensor.name);
      check_first(!of_name.offers.empty() && of_name.offers.back().rank == rank, rank, of_name);
      of_name.offers.push_back({rank, &tensor});
      check_one_kind(of_name);
    }
  }

  void add_values(int64_t rank, const std::vector<NamedValue>& values) {
    for (const NamedValue& value : values) {
      Entry& of_name = entry(value.name);
      check_first(of_name.latest_value_rank == rank, rank, of_name);
      if (!of_name.value_rank) of_name.value_rank = rank;
      of_name.latest_value_rank = rank;
      check_one_kind(of_name);
    }
  }

  static void check_first(bool is_there, int64_t rank, const Entry& entry) {
    HP_CHECK(!is_there, kInvalidArgument, "rank ", rank, " has ", quoted_name(entry.name),
             " twice; the names of a rank's entries must differ");
  }

  static void check_one_kind(const Entry& entry) {
    HP_CHECK(entry.offers.empty() || !entry.value_rank, kInvalidArgument, quoted_name(entry.name),
             " is a tensor on rank ", entry.offers.front().rank, " but a value on rank ", *entry.value_rank,
             "; it must be the same on all ranks");
  }

  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> numbers_;
};

void check_agreement(const Entry& entry) {
  const Offer& first = entry.offers.front();
  for (const Offer& offer : entry.offers) {
    HP_CHECK(offer.tensor->dtype == first.tensor->dtype && offer.tensor->shape == first.tensor->shape, kInvalidArgument,
             "tensor ", quoted_name(entry.name), " is ", kind_text(*first.tensor), " on rank ", first.rank, " but ",
             kind_text(*offer.tensor), " on rank ", offer.rank, "; dtype and shape must be the same on all ranks");
  }
  const std::string owner = str_cat("tensor ", quoted_name(entry.name));
  storage_bytes(first.tensor->dtype, first.tensor->shape, owner);  // throws for a shape that has no size
}

bool is_inside(const Box& box, const Dims& shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) return false;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (box.offsets[dim] < 0 || box.sizes[dim] < 1 || box.sizes[dim] > shape[dim] - box.offsets[dim]) return false;
  }
  return true;
}

void check_box(const Offer& offer, const Box& box) {
  const PlannedTensor& tensor = *offer.tensor;
  HP_CHECK(is_inside(box, tensor.shape), kInvalidArgument, of_tensor(tensor), ": box ", to_string(box), " of rank ",
           offer.rank, " has no cells or does not lie in the tensor");
  if (bits_per_element(tensor.dtype) % 8 != 0) {
    storage_bytes(tensor.dtype, box.sizes,
                  str_cat(of_tensor(tensor), ": box ", to_string(box), " of rank ", offer.rank));
  }
}

// Row-major order of offsets; boxes at one place by size, so that equal ones are neighbours.
std::weak_ordering order_of(const Box& a, const Box& b) {
  const auto by_offsets =
      std::lexicographical_compare_three_way(a.offsets.begin(), a.offsets.end(), b.offsets.begin(), b.offsets.end());
  if (by_offsets != 0) return by_offsets;
  return std::lexicographical_compare_three_way(a.sizes.begin(), a.sizes.end(), b.sizes.begin(), b.sizes.end());
}

std::vector<OfferedBox> sorted_boxes(const Entry& entry) {
  std::vector<OfferedBox> boxes;
  for (size_t offer = 0; offer < entry.offers.size(); ++offer) {
    const std::vector<Box>& offered = entry.offers[offer].tensor->boxes;
    for (size_t number = 0; number < offered.size(); ++number) {
      check_box(entry.offers[offer], offered[number]);
      boxes.push_back({&offered[number], offer, number});
    }
  }
  std::ranges::sort(boxes, [](const OfferedBox& a, const OfferedBox& b) {
    const auto order = order_of(*a.box, *b.box);
    return order != 0 ? order < 0 : std::tie(a.offer, a.number) < std::tie(b.offer, b.number);
  });
  return boxes;
}

// A run of equal boxes in `sorted_boxes`: the holders of one stored box.
using Holders = std::span<const OfferedBox>;

std::vector<Holders> group_equal(const std::vector<OfferedBox>& boxes, const Entry& entry) {
  std::vector<Holders> groups;
  for (size_t begin = 0, end = 0; begin < boxes.size(); begin = end) {
    for (end = begin + 1; end < boxes.size() && *boxes[end].box == *boxes[begin].box; ++end) {
      HP_CHECK(boxes[end].offer != boxes[end - 1].offer, kInvalidArgument,
               of_tensor(*entry.offers[boxes[end].offer].tensor), ": rank ", entry.offers[boxes[end].offer].rank,
               " has box ", to_string(*boxes[end].box), " twice");
    }
    groups.push_back(Holders(boxes).subspan(begin, end - begin));
  }
  return groups;
}

// Which ranks have the boxes that a fault speaks of.
std::string holders_text(const Entry& entry, const std::vector<Holders>& groups, const std::string& fault) {
  std::string text;
  for (const Holders& holders : groups) {
    const std::string box = to_string(*holders.front().box);
    if (fault.find(box) == std::string::npos) continue;
    text += str_cat("; rank ", entry.offers[holders.front().offer].rank, " holds ", box);
  }
  return text;
}

void check_tiling(const Entry& entry, const std::vector<Holders>& groups) {
  const PlannedTensor& tensor = *entry.offers.front().tensor;
  if (groups.size() == 1 && groups.front().front().box->sizes == tensor.shape) return;
  const auto fault = tiling_fault(tensor.shape, static_cast<int64_t>(groups.size()),
                                  [&](int64_t number) { return *groups[static_cast<size_t>(number)].front().box; });
  HP_CHECK(!fault, kInvalidArgument, of_tensor(tensor), ": the ranks' boxes do not tile it: ", *fault,
           holders_text(entry, groups, *fault));
}

// One holder for each group, sorted by rank and by the order of its local storage.
std::vector<OfferedBox> chosen_holders(std::string_view name, const std::vector<Holders>& groups) {
  const uint64_t hash = fnv1a_64(name);
  std::vector<OfferedBox> chosen;
  chosen.reserve(groups.size());
  for (size_t number = 0; number < groups.size(); ++number) {
    chosen.push_back(groups[number][(hash + number) % groups[number].size()]);
  }
  std::ranges::sort(chosen, {}, [](const OfferedBox& box) { return std::pair(box.offer, box.number); });
  return chosen;
}

void assign_tensor(const Entry& entry, std::vector<SavePlan>& assigned) {
  check_agreement(entry);
  const std::vector<OfferedBox> boxes = sorted_boxes(entry);
  const std::vector<Holders> groups = group_equal(boxes, entry);
  check_tiling(entry, groups);
  const PlannedTensor& first = *entry.offers.front().tensor;
  const auto assign = [&](size_t offer) -> PlannedTensor& {
    auto& tensors = assigned[static_cast<size_t>(entry.offers[offer].rank)].tensors;
    return tensors.emplace_back(PlannedTensor{first.name, first.dtype, first.shape, {}});
  };
  if (groups.empty()) assign(0);
  PlannedTensor* tensor = nullptr;
  std::optional<size_t> latest;
  for (const OfferedBox& box : chosen_holders(entry.name, groups)) {
    if (latest != box.offer) tensor = &assign(box.offer);
    latest = box.offer;
    tensor->boxes.push_back(*box.box);
  }
}

Value unite_structures(const std::vector<SavePlan>& plans) {
  StructureMerge merge;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const SavePlan& plan = plans[rank];
    const bool says_nothing = plan.structure.is_none() && plan.tensors.empty() && plan.values.empty();
    if (!says_nothing) merge.add(static_cast<int64_t>(rank), plan.structure);
  }
  return merge.result();
}

}  // namespace

std::vector<NamedValue> unite_values(const std::vector<SavePlan>& plans) {
  std::unordered_map<std::string_view, size_t> seen;
  std::vector<NamedValue> values;
  for (const SavePlan& plan : plans) {
    for (const NamedValue& value : plan.values) {
      if (seen.emplace(value.name, values.size()).second) values.push_back(value);
    }
  }
  std::ranges::sort(values, {}, &NamedValue::name);
  return values;
}

GlobalSavePlan unite_save_plans(const std::vector<SavePlan>& plans) {
  GlobalSavePlan global;
  global.assigned.resize(plans.size());
  const EntryTable table(plans);
  for (const Entry& entry : table.entries()) {
    if (!entry.offers.empty()) assign_tensor(entry, global.assigned);
  }
  global.values = unite_values(plans);
  global.structure = unite_structures(plans);
  return global;
}

}  // namespace hyper_parallel
