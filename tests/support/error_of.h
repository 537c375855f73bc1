#pragma once

// For tests of error paths: code and text of the error in one string, so that one comparison checks both.

#include <string>

#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/text.h"

namespace hyper_parallel {

/// "InvalidArgument: <message>" of the Error that `fails` throws, "no error" if it returns. Other exceptions pass.
template <typename Function>
std::string error_of(const Function& fails) {
  try {
    fails();
  } catch (const Error& error) {
    return str_cat(to_string(error.code()), ": ", error.what());
  }
  return "no error";
}

}  // namespace hyper_parallel
