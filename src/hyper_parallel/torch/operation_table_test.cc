#include "hyper_parallel/torch/operation_table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hyper_parallel {
namespace {

TEST(ElementwiseTable_Names, ResolveAgainstTheDispatcher) {
  const std::vector<std::string_view> names = operation_names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  for (const std::string_view name : names) {
    const Operation* operation = find_operation(name);
    ASSERT_NE(operation, nullptr) << name;
    EXPECT_EQ(operation->name, name);
    EXPECT_FALSE(operation->overloads.empty()) << name;
    const bool in_place = name.ends_with('_') && !name.ends_with("__");
    EXPECT_EQ(operation->writes, in_place) << name;
    const bool composite = operation->composite != nullptr;
    EXPECT_EQ(operation->is_list, name.starts_with("_foreach_") && !composite) << name;
  }
}

TEST(ElementwiseTable_Overloads, WriteTheirFirstParameterOrNone) {
  for (const std::string_view name : operation_names()) {
    for (const Overload& overload : find_operation(name)->overloads) {
      for (size_t i = 0; i < overload.parameters.size(); ++i) {
        EXPECT_EQ(overload.parameters[i].written, i == 0 && find_operation(name)->writes) << name;
      }
    }
  }
}

TEST(ElementwiseTable_Parameters, HaveTheSchemasKinds) {
  const Overload& add = find_operation("add")->overloads.front();
  ASSERT_EQ(add.parameters.size(), 3u);
  EXPECT_EQ(add.parameters[1].name, "other");
  EXPECT_EQ(add.parameters[1].kind, ParameterKind::kTensor);
  EXPECT_EQ(add.parameters[2].name, "alpha");
  EXPECT_EQ(add.parameters[2].kind, ParameterKind::kNumber);
  EXPECT_TRUE(add.parameters[2].keyword_only);
  EXPECT_TRUE(add.parameters[2].default_value.has_value());

  const Overload& zeros = find_operation("zeros_like")->overloads.front();
  EXPECT_EQ(zeros.parameters[1].kind, ParameterKind::kDtype);
  EXPECT_TRUE(zeros.parameters[1].optional);
  EXPECT_EQ(zeros.parameters[2].kind, ParameterKind::kNothing);  // layout
  EXPECT_EQ(zeros.parameters[5].kind, ParameterKind::kMemoryFormat);
  EXPECT_EQ(find_operation("gelu")->overloads.front().parameters[1].kind, ParameterKind::kText);
  EXPECT_EQ(find_operation("copy_")->overloads.front().parameters[2].kind, ParameterKind::kFlag);
  EXPECT_EQ(find_operation("_foreach_mul")->overloads[2].parameters[1].kind, ParameterKind::kNumberList);
}

TEST(ElementwiseTable_Names, OutsideIt_AreNotFound) {
  for (const char* name : {"histc", "cdist", "dropout", "add_out", ""})
    EXPECT_EQ(find_operation(name), nullptr) << name;
}

}  // namespace
}  // namespace hyper_parallel
