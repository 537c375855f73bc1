#include "hyper_parallel/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyper_parallel {
namespace {

using ::testing::HasSubstr;

TEST(Error, ToString_NamesEveryCode) {
  EXPECT_EQ(to_string(ErrorCode::kInvalidArgument), "InvalidArgument");
  EXPECT_EQ(to_string(ErrorCode::kType), "Type");
  EXPECT_EQ(to_string(ErrorCode::kOutOfRange), "OutOfRange");
  EXPECT_EQ(to_string(ErrorCode::kUnimplemented), "Unimplemented");
  EXPECT_EQ(to_string(ErrorCode::kFailedPrecondition), "FailedPrecondition");
  EXPECT_EQ(to_string(ErrorCode::kDataLoss), "DataLoss");
  EXPECT_EQ(to_string(ErrorCode::kInternal), "Internal");
}

TEST(Error, Raise_CarriesCodeAndJoinedText) {
  try {
    raise(ErrorCode::kOutOfRange, "dim ", 3, " of '", std::string("dp"), "'");
    FAIL() << "raise returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfRange);
    EXPECT_STREQ(error.what(), "dim 3 of 'dp'");
  }
}

TEST(Error, IsARuntimeError_SoThatForeignCodeCanCatchIt) {
  EXPECT_THROW(raise(ErrorCode::kDataLoss, "torn"), std::runtime_error);
}

TEST(HpCheck, FalseCondition_ThrowsGivenCodeAndMessage) {
  const int units = 3;
  try {
    HP_CHECK(units == 2, kInvalidArgument, "local_units has ", units, " entries but the mesh dim has size ", 2);
    FAIL() << "HP_CHECK let a false condition pass";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "local_units has 3 entries but the mesh dim has size 2");
  }
}

TEST(HpCheck, TrueCondition_EvaluatesNoPartOfTheMessage) {
  int evaluated = 0;
  HP_CHECK(true, kInternal, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST(HpCheck, ConditionIsEvaluatedOnce) {
  int evaluated = 0;
  HP_CHECK(++evaluated == 1, kInternal, "twice");
  EXPECT_EQ(evaluated, 1);
}

TEST(HpCheck, InAnIfWithoutBraces_KeepsTheElse) {
  bool other_branch = false;
  if (other_branch)
    HP_CHECK(false, kInternal, "not reached");
  else
    other_branch = true;
  EXPECT_TRUE(other_branch);
}

TEST(HpDcheck, FalseCondition_IsInternalAndNamesConditionAndPlace) {
  try {
    HP_DCHECK(1 + 1 == 3);
    FAIL() << "HP_DCHECK let a false condition pass";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr("internal error: 1 + 1 == 3 at "));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cc:"));
  }
}

}  // namespace
}  // namespace hyper_parallel
