#include "hyper_parallel/tools/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <utility>
#include <vector>

#include "hyper_parallel/tools/subcommands.h"
#include "tests/support/stored_checkpoint.h"

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
  NoProgress quiet;
  const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data(), {in, out, quiet}, err);
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
  EXPECT_THAT(run({"verify", "--help"}).out, HasSubstr("\n  hyper-parallel verify checkpoints/step-1000\n"));
  EXPECT_THAT(run({"diff", "--help"}).out, HasSubstr("\n  hyper-parallel diff checkpoints/step-1000 "));
  EXPECT_THAT(run({"reshard", "--help"}).out, HasSubstr("\n  hyper-parallel reshard checkpoints/step-1000 "));
  EXPECT_THAT(run({"convert", "--help"}).out, HasSubstr("\n  hyper-parallel convert checkpoints/step-1000 "));
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
  expect_fault(2, "PATH is required (see hyper-parallel inspect --help)", {"inspect"});
  expect_fault(2, "unexpected argument 'b' (see hyper-parallel inspect --help)", {"inspect", "a", "b"});
}

TEST(CommandLine_Usage, OfTheCheckpointCommands_ExitsWith2) {
  expect_fault(2, "DIR is required (see hyper-parallel verify --help)", {"verify"});
  expect_fault(2, "B is required (see hyper-parallel diff --help)", {"diff", "a"});
  expect_fault(2, "--ranks is required (see hyper-parallel reshard --help)", {"reshard", "a", "b"});
  expect_fault(2, "--to is required (see hyper-parallel convert --help)", {"convert", "a", "b"});
  expect_fault(2, "--json excludes --picture (see hyper-parallel inspect --help)",
               {"inspect", "a", "--json", "--picture"});
}

TEST(CommandLine_BadInput, OfTheCheckpointCommands_ExitsWith1) {
  expect_fault(1, "--to: 'x' is not one of hyper_parallel, huggingface, torch", {"convert", "a", "b", "--to", "x"});
  expect_fault(1, "--max-file-size: 'much' is not a byte count; write one as 256MiB, 5GB or 4096",
               {"convert", "a", "b", "--to", "huggingface", "--max-file-size", "much"});
  expect_fault(1, "--memory: 'all' is not a byte count; write one as 256MiB, 5GB or 4096",
               {"reshard", "a", "b", "--ranks", "2", "--memory", "all"});
  expect_fault(1, "--units: 3 units for 2 ranks; each rank has one (--ranks)",
               {"reshard", "a", "b", "--ranks", "2", "--units", "1,2,3"});
  expect_fault(1, "--picture draws a checkpoint directory, not a file", {"inspect", "/dev/null", "--picture"});
}

TEST(CommandLine_Trouble, OfVerifyAndDiff_ExitsWith2) {
  const TemporaryFolder folder;
  const std::string none = (folder / "none").string();
  const std::string empty = (folder / "empty").string();
  std::filesystem::create_directory(empty);
  expect_fault(2, "cannot open '" + none + "': No such file or directory", {"verify", none.c_str()});
  expect_fault(2, "cannot open '" + none + "': No such file or directory", {"diff", none.c_str(), empty.c_str()});
  expect_fault(2, "there is no checkpoint in '" + empty + "': it has no '.metadata'",
               {"diff", empty.c_str(), empty.c_str()});
}

TEST(CommandLine_Verify, MetadataThatIsMissing_ExitsWith1AndIsTheOutput) {
  const TemporaryFolder folder;
  const std::string place = folder.path().string();
  const Outcome outcome = run({"verify", place.c_str()});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, StartsWith(".metadata: is missing\n"));
}

TEST(CommandLine_Diff, DamagedSide_ExitsWith2) {
  const TemporaryFolder folder;
  const std::string a = (folder / "a").string();
  const std::string b = (folder / "b").string();
  write_checkpoint(a, {{counting_tensor("w", {4}, {{0, {{0}, {4}}}})}, {}, {}});
  const CheckpointMetadata metadata = write_checkpoint(b, {{counting_tensor("w", {4}, {{0, {{0}, {4}}}})}, {}, {}});
  damage_byte(folder / "b" / metadata.files()[0].name, metadata.files()[0].bytes - 1);
  const Outcome outcome = run({"diff", a.c_str(), b.c_str()});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("block 0 of tensor 'w'"));
}

TEST(CommandLine_Checkpoint, EachCommand_ReachesItsWork) {
  const TemporaryFolder folder;
  const std::string in = (folder / "in").string();
  const std::string out = (folder / "out").string();
  const std::string model = (folder / "model").string();
  const CheckpointMetadata metadata = write_checkpoint(in, {{counting_tensor("w", {4}, {{0, {{0}, {4}}}})}, {}, {}});
  EXPECT_THAT(run({"inspect", in.c_str()}).out, HasSubstr("w     F32    (4,)   16 B       1      1\n"));
  EXPECT_THAT(run({"inspect", in.c_str(), "--json"}).out, StartsWith("{\n  \"checkpoint\""));
  EXPECT_THAT(run({"inspect", in.c_str(), "--picture"}).out, StartsWith("w  F32 (4,): 1 chunk in 1 file\n"));
  EXPECT_THAT(run({"inspect", in.c_str(), "--picture", "w"}).out, StartsWith("w  F32 (4,): 1 chunk in 1 file\n"));
  EXPECT_EQ(run({"inspect", in.c_str(), "--picture", "x"}).code, 1);
  EXPECT_EQ(run({"reshard", in.c_str(), out.c_str(), "--ranks", "2", "--units", "1,3", "--memory", "8MiB"}).code, 0);
  EXPECT_EQ(metadata_of(out).files().size(), 2U);
  EXPECT_EQ(run({"diff", in.c_str(), out.c_str()}).code, 0);
  EXPECT_EQ(run({"verify", out.c_str()}).code, 0);
  EXPECT_EQ(run({"convert", in.c_str(), model.c_str(), "--to", "huggingface"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "model" / "model-00001-of-00001.safetensors"));
  damage_byte(folder / "in" / metadata.files()[0].name, metadata.files()[0].bytes - 1);
  const Outcome verified = run({"verify", in.c_str(), "--json"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_EQ(verified.err, "");
  EXPECT_THAT(verified.out, HasSubstr("\"fault_count\": 1"));
  EXPECT_EQ(run({"diff", in.c_str(), out.c_str()}).code, 2);
}

TEST(CommandLine_Diff, Difference_ExitsWith1AndIsTheOutput) {
  const TemporaryFolder folder;
  const std::string a = (folder / "a").string();
  const std::string b = (folder / "b").string();
  write_checkpoint(a, {{counting_tensor("w", {4}, {{0, {{0}, {4}}}})}, {}, {}});
  write_checkpoint(b, {{counting_tensor("v", {4}, {{0, {{0}, {4}}}})}, {}, {}});
  const Outcome outcome = run({"diff", a.c_str(), b.c_str(), "--json"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("\"equal\": false"));
}

int code_without_output(const std::vector<const char*>& arguments, std::ostream& err) {
  std::istringstream in;
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  NoProgress quiet;
  return run_command_line(static_cast<int>(arguments.size()), arguments.data(), {in, out, quiet}, err);
}

TEST(CommandLine_OutputThatCannotBeWritten, ExitsAsOtherTroubleOfTheCommand) {
  const TemporaryFolder folder;
  const std::string place = folder.path().string();
  for (const auto& [arguments, code] : std::vector<std::pair<std::vector<const char*>, int>>{
           {{"hyper-parallel", "plan", "--shape", "4", "--mesh", "2", "--from", "R", "--to", "R"}, 1},
           {{"hyper-parallel", "verify", place.c_str()}, 2}}) {
    std::ostringstream err;
    EXPECT_EQ(code_without_output(arguments, err), code);
    EXPECT_EQ(err.str(), "hyper-parallel: cannot write the output\n");
  }
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
