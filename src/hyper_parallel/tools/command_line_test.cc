#include "hyper_parallel/tools/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace hyper_parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "hyper-parallel");
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data(), in, out, err);
  return {code, out.str(), err.str()};
}

void expect_fault(int code, const std::string& line, const std::vector<const char*>& arguments) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, code);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "hyper-parallel: " + line + "\n");
}

TEST(CommandLine_Help, EachCommand_HasAnExample) {
  EXPECT_THAT(run({"--help"}).out, HasSubstr("\n  hyper-parallel inspect model.safetensors\n"));
  EXPECT_THAT(run({"plan", "--help"}).out, HasSubstr("\n  hyper-parallel plan --shape 6,4,8 --mesh 2 "));
  EXPECT_THAT(run({"inspect", "--help"}).out, HasSubstr("\n  hyper-parallel inspect model.safetensors\n"));
  EXPECT_EQ(run({"plan", "--help"}).code, 0);
}

TEST(CommandLine_Version, IsNameAndNumber) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex("hyper-parallel [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(CommandLine_Plan, ShapeAndBracketedPlacements_ReachThePlanner) {
  const Outcome outcome = run({"plan", "--shape", "6,4,8", "--mesh", "2,2", "--names", "dp,tp", "--from",
                               "[Shard(0), R]", "--to", "[R, Shard(1)]"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              StartsWith("redistribute (6, 4, 8) on mesh (2, 2) (dp, tp)\n  from [Shard(0), Replicate()]\n"));
}

TEST(CommandLine_Plan, EmptyShape_IsAScalarInBothSpellings) {
  const std::string text = run({"plan", "--shape", "", "--mesh", "2", "--from", "R", "--to", "R"}).out;
  EXPECT_THAT(text, StartsWith("redistribute () on mesh (2,)"));
  EXPECT_EQ(run({"plan", "--shape=", "--mesh=2", "--from=R", "--to=R"}).out, text);
}

TEST(CommandLine_Plan, Json_IsChosenByTheFlag) {
  EXPECT_THAT(run({"plan", "--json", "--shape", "4", "--mesh", "2", "--from", "R", "--to", "R"}).out,
              StartsWith("{\n"));
}

TEST(CommandLine_BadInput, ExitsWith1AndOneLine) {
  expect_fault(1, "--shape: global shape (-3, 4) has the negative size -3",
               {"plan", "--shape", "-3,4", "--mesh", "2", "--from", "R", "--to", "R"});
  expect_fault(1, "--rank: the mesh of 2 ranks does not hold -1",
               {"plan", "--shape", "4", "--mesh", "2", "--from", "R", "--to", "R", "--rank", "-1"});
  expect_fault(1, "cannot open '/no/such/file': No such file or directory", {"inspect", "/no/such/file"});
}

TEST(CommandLine_Usage, ExitsWith2AndOneLine) {
  expect_fault(2, "A subcommand is required (see hyper-parallel --help)", {});
  expect_fault(2, "unexpected argument 'paln' (see hyper-parallel --help)", {"paln"});
  expect_fault(2, "unexpected argument '--foo' (see hyper-parallel plan --help)", {"plan", "--foo", "3"});
  expect_fault(2, "--shape is required (see hyper-parallel plan --help)", {"plan", "--mesh", "2"});
  expect_fault(2, "FILE is required (see hyper-parallel inspect --help)", {"inspect"});
  expect_fault(2, "unexpected argument 'b' (see hyper-parallel inspect --help)", {"inspect", "a", "b"});
}

TEST(CommandLine_OutputThatCannotBeWritten, ExitsWith1) {
  const std::vector<const char*> arguments = {"hyper-parallel", "plan", "--shape", "4", "--mesh", "2",
                                              "--from",         "R",    "--to",    "R"};
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(run_command_line(static_cast<int>(arguments.size()), arguments.data(), in, out, err), 1);
  EXPECT_EQ(err.str(), "hyper-parallel: cannot write the output\n");
}

TEST(CommandLine_OneLine, ControlCharacters_AreEscaped) { EXPECT_EQ(one_line("a\nb\x1b[31m"), "a\\x0ab\\x1b[31m"); }

TEST(CommandLine_OneLine, LongMessage_KeepsBothEnds) {
  const std::string line = one_line("begin" + std::string(100'000, 'x') + "end");
  EXPECT_LT(line.size(), 700u);
  EXPECT_THAT(line, StartsWith("beginxxx"));
  EXPECT_THAT(line, HasSubstr("x ... x"));
  EXPECT_THAT(line, ::testing::EndsWith("xxxend"));
}

}  // namespace
}  // namespace hyper_parallel
