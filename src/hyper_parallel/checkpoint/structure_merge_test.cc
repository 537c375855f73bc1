#include "hyper_parallel/checkpoint/structure_merge.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "hyper_parallel/base/error.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

Value dict(std::vector<std::pair<Value, Value>> items) { return ValueDict{std::move(items)}; }

Value merged(const std::vector<Value>& structures) {
  StructureMerge merge;
  for (size_t rank = 0; rank < structures.size(); ++rank) merge.add(static_cast<int64_t>(rank), structures[rank]);
  return merge.result();
}

std::string fault_of(const std::vector<Value>& structures) {
  return error_of([&] { merged(structures); });
}

TEST(StructureMerge, Nothing_IsNone) { EXPECT_EQ(merged({}), Value()); }

TEST(StructureMerge, EqualStructures_AreThatStructure) {
  const Value structure =
      dict({{"a", "a"}, {"list", ValueList{{"list.0", ValueTuple{{"list.1.0"}}}}}, {int64_t{7}, "7"}});
  EXPECT_EQ(merged({structure}), structure);
  EXPECT_EQ(merged({structure, structure, structure}), structure);
  EXPECT_EQ(merged({Value(), Value()}), Value());
}

TEST(StructureMerge, Dicts_AreUnitedByKeyInTheOrderOfFirstSight) {
  EXPECT_EQ(merged({dict({{"b", "b"}, {"a", "a"}}), dict({{"a", "a"}, {"c", "c"}}), dict({{"c", "c"}, {"b", "b"}})}),
            dict({{"b", "b"}, {"a", "a"}, {"c", "c"}}));
  EXPECT_EQ(merged({dict({}), dict({{"m", dict({{"x", "m.x"}})}}), dict({{"m", dict({{"y", "m.y"}})}})}),
            dict({{"m", dict({{"x", "m.x"}, {"y", "m.y"}})}}));
}

TEST(StructureMerge, KeysOfUnlikeTypes_StayApart) {
  EXPECT_EQ(merged({dict({{int64_t{1}, "1"}}), dict({{"1", "1"}}), dict({{true, "True"}}), dict({{int64_t{1}, "1"}})}),
            dict({{int64_t{1}, "1"}, {"1", "1"}, {true, "True"}}));
}

TEST(StructureMerge, ListsAndTuples_AreUnitedByPosition) {
  EXPECT_EQ(merged({ValueList{{"0"}}, ValueList{{"0", "1", "2"}}, ValueList{{"0", "1"}}}),
            Value(ValueList{{"0", "1", "2"}}));
  EXPECT_EQ(merged({ValueTuple{{dict({{"x", "0.x"}})}}, ValueTuple{{dict({{"y", "0.y"}})}}}),
            Value(ValueTuple{{dict({{"x", "0.x"}, {"y", "0.y"}})}}));
}

TEST(StructureMerge, UnlikeKinds_AreRefusedWithPlaceAndRanks) {
  const Value with_dict = dict({{"m", dict({{"x", dict({})}})}});
  const Value with_list = dict({{"m", dict({{"x", ValueList{}}})}});
  EXPECT_EQ(
      fault_of({with_dict, with_dict, with_list}),
      "InvalidArgument: the state dicts of rank 0 and rank 2 do not fit together: 'm.x' is a dict on rank 0 but a "
      "list on rank 2");
  EXPECT_EQ(fault_of({dict({{"a", "a"}}), dict({{"m", ValueTuple{}}}), dict({{"m", "m"}})}),
            "InvalidArgument: the state dicts of rank 1 and rank 2 do not fit together: 'm' is a tuple on rank 1 but "
            "the entry 'm' on rank 2");
  EXPECT_EQ(fault_of({ValueList{{"0", "1"}}, ValueList{{"0", "one"}}}),
            "InvalidArgument: the state dicts of rank 0 and rank 1 do not fit together: '1' is the entry '1' on rank 0 "
            "but the entry 'one' on rank 1");
  EXPECT_EQ(fault_of({dict({{"a", "a"}}), Value()}),
            "InvalidArgument: the state dicts of rank 0 and rank 1 do not fit together: the whole is a dict on rank 0 "
            "but a flat dict of names on rank 1");
}

TEST(StructureMerge, LeafThatIsNoName_IsRefused) {
  EXPECT_EQ(fault_of({dict({{"a", "a"}, {"b", 3.5}})}),
            "InvalidArgument: the structure of rank 0's state dict holds 3.5; its leaves must be the names of entries");
}

TEST(StructureMerge, NestingDeeperThanTheLimit_IsRefused) {
  Value deep = "leaf";
  for (int level = 0; level < kMaxValueDepth; ++level) deep = ValueList{{deep}};
  EXPECT_EQ(merged({deep}), deep);
  EXPECT_EQ(fault_of({ValueList{{deep}}}), "InvalidArgument: the state dict of rank 0 is nested deeper than 64 levels");
  EXPECT_EQ(merged({deep, deep, deep}), deep);
}

TEST(StructureMerge, ManyRanksWithKeysOfTheirOwn_AreNotQuadratic) {
  std::vector<Value> structures;
  for (int rank = 0; rank < 1000; ++rank) {
    ValueDict own;
    for (int key = 0; key < 50; ++key) {
      const std::string name = std::to_string(rank * 50 + key);
      own.items.emplace_back(name, name);
    }
    structures.emplace_back(std::move(own));
  }
  const auto start = std::chrono::steady_clock::now();
  const Value all = merged(structures);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(std::get<ValueDict>(all.variant()).items.size(), 50'000U);
}

}  // namespace
}  // namespace hyper_parallel
