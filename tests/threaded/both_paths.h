#pragma once

// Parameters of the tests that must hold on both paths of a collective (point-to-point messages as on Gloo, and the
// backend's own collective) and with the group check off and on.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "hyper_parallel/torch/group_check.h"
#include "tests/support/error_of.h"
#include "tests/threaded/thread_backend.h"

namespace hyper_parallel::test {

struct Path {
  std::string backend_name;
  CheckSetting check;
};

/// "MessagesCheckOn" and so on, for the names of parameterized tests.
inline std::string name_of(const ::testing::TestParamInfo<Path>& info) {
  return (info.param.backend_name == "gloo" ? "Messages" : "Collectives") +
         std::string(info.param.check == CheckSetting::kOn ? "CheckOn" : "CheckOff");
}

inline std::vector<Path> all_paths() {
  return {{"gloo", CheckSetting::kOff},
          {"gloo", CheckSetting::kOn},
          {"threaded", CheckSetting::kOff},
          {"threaded", CheckSetting::kOn}};
}

inline std::vector<Path> checked_paths() { return {{"gloo", CheckSetting::kOn}, {"threaded", CheckSetting::kOn}}; }

inline std::vector<Path> unchecked_paths() { return {{"gloo", CheckSetting::kOff}, {"threaded", CheckSetting::kOff}}; }

/// A test whose `run` gives every rank a thread on the parameter's path.
class PathTest : public ::testing::TestWithParam<Path> {
 protected:
  PathTest() : setting_(GetParam().check) {}

  void run(int size, const std::function<void(const ThreadRank&)>& body,
           std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    run_ranks(size, body, {.backend_name = GetParam().backend_name, .timeout = timeout});
  }

  /// What `fails` threw on each rank, as `error_of` writes it.
  std::vector<std::string> errors(int size, const std::function<void(const ThreadRank&)>& fails,
                                  std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    std::vector<std::string> texts(static_cast<size_t>(size));
    run(
        size, [&](const ThreadRank& self) { texts[static_cast<size_t>(self.rank)] = error_of([&] { fails(self); }); },
        timeout);
    return texts;
  }

 private:
  ScopedCheckSetting setting_;
};

inline void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(at::equal(actual, expected)) << "actual:\n" << actual << "\nexpected:\n" << expected;
}

/// The values as a 1-D float tensor.
inline at::Tensor floats(const std::vector<float>& values) { return at::tensor(values, at::kFloat); }

}  // namespace hyper_parallel::test
