#pragma once

// Random numbers that nobody can foresee, for names and hash keys.

#include <cstdint>

namespace hyper_parallel {

/// 64 random bits of the operating system's generator. std::random_device may ask the processor instead, which takes
/// tens of microseconds on some virtual machines.
uint64_t random_word();

}  // namespace hyper_parallel
