#pragma once

// The check of an error test: code and text.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "hyper_parallel/base/error.h"

namespace hyper_parallel {

/// Expects that `action()` throws an Error of that code whose message contains `text`.
template <typename Action>
void expect_error(ErrorCode code, const std::string& text, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(text));
  }
}

}  // namespace hyper_parallel
