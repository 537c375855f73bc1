#pragma once

// The one exception type of the library and the checks that throw it.
//
// Every fault carries a code. The code decides the Python exception that a caller of the Python package sees:
//
//   kInvalidArgument    -> ValueError           kOutOfRange          -> IndexError
//   kType               -> TypeError            kUnimplemented       -> NotImplementedError
//   kFailedPrecondition -> RuntimeError         kDataLoss            -> CheckpointError
//   kInternal           -> RuntimeError
//
// A message says what was wrong, the value, the rule and which argument:
// "RaggedShard local_units has 3 entries but mesh dim 'dp' has size 2".

#include <stdexcept>
#include <string>
#include <string_view>

#include "hyper_parallel/base/text.h"

namespace hyper_parallel {

enum class ErrorCode {
  kInvalidArgument,
  kType,
  kOutOfRange,
  kUnimplemented,
  kFailedPrecondition,
  kDataLoss,
  kInternal,
};

/// The code's name as it stands in logs, e.g. "InvalidArgument".
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// Throws `Error(code, parts...)`, the parts joined by `str_cat`.
template <typename... Parts>
[[noreturn]] void raise(ErrorCode code, const Parts&... parts) {
  throw Error(code, str_cat(parts...));
}

}  // namespace hyper_parallel

/// The caller's fault: throws `Error(ErrorCode::code, message parts...)` unless `condition` holds.
/// Example: HP_CHECK(k >= 0, kInvalidArgument, "dim is ", k, " but must not be negative");
#define HP_CHECK(condition, code, ...)                                         \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::hyper_parallel::raise(::hyper_parallel::ErrorCode::code, __VA_ARGS__); \
  } while (false)

/// Our own bug: throws `Error(kInternal)` with the place unless `condition` holds.
#define HP_DCHECK(condition)                                                                                          \
  do {                                                                                                                \
    if (!(condition)) [[unlikely]]                                                                                    \
      ::hyper_parallel::raise(::hyper_parallel::ErrorCode::kInternal, "internal error: " #condition " at ", __FILE__, \
                              ":", __LINE__);                                                                         \
  } while (false)
