#include "tests/property/property.h"

#include <charconv>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hyper_parallel::test {
namespace {

constexpr const char* kSeedVariable = "HP_TEST_SEED";

/// The number in an environment variable; nothing where it is not set.
template <typename Number>
std::optional<Number> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view digits(text);
  Number number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end()) {
    throw std::invalid_argument(std::string(variable) + " is '" + text + "' but must be a number below 2^" +
                                std::to_string(std::numeric_limits<Number>::digits));
  }
  return number;
}

uint64_t seed_of_chance() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

/// Prints the seed before the first test runs.
class SeedEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    const uint64_t seed = run_seed();
    std::cout << kSeedVariable << "=" << seed << " replays this run" << std::endl;
  }
};

const testing::Environment* const kSeedEnvironment = testing::AddGlobalTestEnvironment(new SeedEnvironment);

}  // namespace

uint64_t run_seed() {
  static const uint64_t seed = number_in<uint64_t>(kSeedVariable).value_or(seed_of_chance());
  return seed;
}

int case_factor() {
  static const int factor = number_in<int>("HP_TEST_TIMES").value_or(1);
  return factor;
}

uint64_t current_test_seed() {
  // FNV-1a over the test's name: the same for every compiler, unlike std::hash.
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  uint64_t hash = 0xcbf29ce484222325ULL ^ run_seed();
  for (const char c : std::string(test->test_suite_name()) + "." + test->name()) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace hyper_parallel::test
