#pragma once

// The command `hyper-parallel`, without a process around it.
//
// Exit codes: 0 ok; 1 the input is bad or cannot be read; 2 usage. Of `verify` and `diff`, as of diff(1), cmp(1) and
// grep(1), 1 is an answer: there is a fault, they differ; what keeps them from one is 2, as usage is. What keeps a
// command from its work is one line on `err`, "hyper-parallel: <message>", and then nothing stands on `out`; what
// `verify` and `diff` find is their output.

#include <ostream>
#include <string>
#include <string_view>

namespace hyper_parallel {

struct CommandStreams;  // subcommands.h: input, output, and who is told how far it is

/// Runs the command with the arguments of `main`. Never throws.
int run_command_line(int argc, const char* const* argv, const CommandStreams& streams, std::ostream& err);

/// The message as one line that is safe on a terminal: control characters are escaped (\x0a), and of a long one only
/// the beginning and the end are kept.
std::string one_line(std::string_view message);

}  // namespace hyper_parallel
