#pragma once

// A program that runs as a child of this one.

#include <string>
#include <vector>

namespace hyper_parallel {

/// Runs `arguments.front()`, looked up in PATH, and waits for its end. Returns its exit code, or 128 + n if signal n
/// ended it, as a shell does. Its standard error is ours, its standard output goes nowhere. While it runs an interrupt
/// from the terminal ends it alone. Throws kFailedPrecondition if it cannot be started.
int run_program(const std::vector<std::string>& arguments);

}  // namespace hyper_parallel
