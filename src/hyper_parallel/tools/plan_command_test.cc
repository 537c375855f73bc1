#include "hyper_parallel/tools/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace hyper_parallel {
namespace {

PlanOptions options_of(const std::string& shape, const std::string& mesh, const std::string& from,
                       const std::string& to) {
  PlanOptions options;
  options.shape = shape;
  options.mesh = mesh;
  options.from = from;
  options.to = to;
  return options;
}

std::string text_of(const PlanOptions& options, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out;
  explain_plan(options, PlanFormat::kText, in, out);
  return std::move(out).str();
}

nlohmann::json json_of(const PlanOptions& options) {
  std::istringstream in;
  std::ostringstream out;
  explain_plan(options, PlanFormat::kJson, in, out);
  return nlohmann::json::parse(out.str());
}

void expect_refused(ErrorCode code, const std::string& text, const PlanOptions& options) {
  std::istringstream in;
  std::ostringstream out;
  expect_error(code, text, [&] { explain_plan(options, PlanFormat::kText, in, out); });
  EXPECT_EQ(out.str(), "");
}

TEST(PlanCommand_Text, RaggedToShard_ShowsPlanTotalsAndTheRanksMessages) {
  PlanOptions options = options_of("6,4,8", "2", "Ragged((0,), (1, 2))", "S(0)");
  options.names = "dp";
  options.rank = "1";
  EXPECT_EQ(text_of(options),
            "redistribute (6, 4, 8) on mesh (2,) (dp,)\n"
            "  from [RaggedShard((0,), (1, 2))]\n"
            "  to   [Shard(0)]\n"
            "  1. all_to_all: [RaggedShard((0,), (1, 2))] -> [Shard(0)]\n"
            "\n"
            "tensor                            192 elements of float32, 768 bytes\n"
            "received, all ranks               128 bytes\n"
            "received, busiest rank            128 bytes\n"
            "lower bound, all ranks            128 bytes\n"
            "received / lower bound            1 (the least possible)\n"
            "sent, busiest rank                128 bytes\n"
            "messages                          1\n"
            "rounds                            1\n"
            "peak extra memory, busiest rank   0 bytes\n"
            "\n"
            "rank 1 at coordinate (1,), local shape (128,) -> (3, 4, 8)\n"
            "  1. all_to_all\n"
            "     send to 0: 32 elements [0:32]\n"
            "     keep 96 elements [32:128] -> [0:96]\n"
            "  sent                            128 bytes\n"
            "  received                        0 bytes\n"
            "  lower bound                     0 bytes\n"
            "  messages                        1\n"
            "  peak extra memory               0 bytes\n");
}

TEST(PlanCommand_Text, ReduceAndGather_ShowsLargeSizesBothWays) {
  PlanOptions options = options_of("1024", "4", "P", "R");
  options.dtype = "float64";
  options.rank = "0";
  EXPECT_EQ(text_of(options),
            "redistribute (1024,) on mesh (4,) (dim_0,)\n"
            "  from [Partial(sum)]\n"
            "  to   [Replicate()]\n"
            "  1. reduce_scatter(sum) over 'dim_0': [Partial(sum)] -> [FlatSplit()]\n"
            "  2. all_gather: [FlatSplit()] -> [Replicate()]\n"
            "\n"
            "tensor                            1024 elements of float64, 8.0 KiB (8192 bytes)\n"
            "received, all ranks               48.0 KiB (49152 bytes)\n"
            "received, busiest rank            12.0 KiB (12288 bytes)\n"
            "lower bound, all ranks            48.0 KiB (49152 bytes)\n"
            "received / lower bound            1 (the least possible)\n"
            "sent, busiest rank                12.0 KiB (12288 bytes)\n"
            "messages                          24\n"
            "rounds                            2\n"
            "peak extra memory, busiest rank   8.0 KiB (8192 bytes)\n"
            "\n"
            "rank 0 at coordinate (0,), local shape (1024,) -> (1024,)\n"
            "  1. reduce_scatter(sum) over 'dim_0'\n"
            "     send to 1: 256 elements [256:512]\n"
            "     send to 2: 256 elements [512:768]\n"
            "     send to 3: 256 elements [768:1024]\n"
            "     receive from 1: 256 elements [0:256]\n"
            "     receive from 2: 256 elements [0:256]\n"
            "     receive from 3: 256 elements [0:256]\n"
            "     keep 256 elements [0:256] -> [0:256]\n"
            "     combine by sum in the order of ranks (0, 1, 2, 3)\n"
            "  2. all_gather\n"
            "     send to 1: 256 elements [0:256]\n"
            "     send to 2: 256 elements [0:256]\n"
            "     send to 3: 256 elements [0:256]\n"
            "     receive from 1: 256 elements [256:512]\n"
            "     receive from 2: 256 elements [512:768]\n"
            "     receive from 3: 256 elements [768:1024]\n"
            "     keep 256 elements [0:256] -> [0:256]\n"
            "  sent                            12.0 KiB (12288 bytes)\n"
            "  received                        12.0 KiB (12288 bytes)\n"
            "  lower bound                     none for one rank: shares of a sum are pooled anywhere\n"
            "  messages                        6\n"
            "  peak extra memory               8.0 KiB (8192 bytes)\n");
}

TEST(PlanCommand_Text, ReduceBetweenTwo_IsOneRound) {
  PlanOptions options = options_of("1024", "2", "P", "R");
  options.dtype = "float64";
  options.rank = "0";
  EXPECT_EQ(text_of(options),
            "redistribute (1024,) on mesh (2,) (dim_0,)\n"
            "  from [Partial(sum)]\n"
            "  to   [Replicate()]\n"
            "  1. all_reduce(sum) over 'dim_0': [Partial(sum)] -> [Replicate()]\n"
            "\n"
            "tensor                            1024 elements of float64, 8.0 KiB (8192 bytes)\n"
            "received, all ranks               16.0 KiB (16384 bytes)\n"
            "received, busiest rank            8.0 KiB (8192 bytes)\n"
            "lower bound, all ranks            16.0 KiB (16384 bytes)\n"
            "received / lower bound            1 (the least possible)\n"
            "sent, busiest rank                8.0 KiB (8192 bytes)\n"
            "messages                          2\n"
            "rounds                            1\n"
            "peak extra memory, busiest rank   8.0 KiB (8192 bytes)\n"
            "\n"
            "rank 0 at coordinate (0,), local shape (1024,) -> (1024,)\n"
            "  1. all_reduce(sum) over 'dim_0'\n"
            "     send to 1: 1024 elements [0:1024]\n"
            "     receive from 1: 1024 elements [0:1024]\n"
            "     keep 1024 elements [0:1024] -> [0:1024]\n"
            "     combine by sum in the order of ranks (0, 1)\n"
            "  sent                            8.0 KiB (8192 bytes)\n"
            "  received                        8.0 KiB (8192 bytes)\n"
            "  lower bound                     none for one rank: shares of a sum are pooled anywhere\n"
            "  messages                        1\n"
            "  peak extra memory               8.0 KiB (8192 bytes)\n");
}

TEST(PlanCommand_Text, ScalarOnEqualLayouts_HasNothingToDo) {
  PlanOptions options = options_of("", "2", "R", "R");
  options.rank = "0";
  const std::string text = text_of(options);
  EXPECT_THAT(text, ::testing::StartsWith("redistribute () on mesh (2,) (dim_0,)\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("  nothing to do\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("tensor                            1 elements of float32, 4 bytes\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 0 at coordinate (0,), local shape () -> ()\n  sent "));
}

TEST(PlanCommand_Text, RankWithoutAnyElement_SaysSo) {
  PlanOptions options = options_of("3", "3", "Ragged((0,), (3, 0, 0))", "Ragged((0,), (0, 0, 3))");
  options.rank = "1";
  EXPECT_THAT(text_of(options), ::testing::HasSubstr("  1. all_to_all\n     nothing to send, receive or keep\n"));
}

TEST(PlanCommand_Text, OtherTargetMesh_IsShown) {
  PlanOptions options = options_of("8,4", "4", "S(0)", "S(1), S(0)");
  options.to_mesh = "2,2";
  options.to_names = "a, b";
  EXPECT_THAT(text_of(options), ::testing::HasSubstr("  to   [Shard(1), Shard(0)] on mesh (2, 2) (a, b)\n"));
}

TEST(PlanCommand_Text, PermutedRanks_AreThePeers) {
  PlanOptions options = options_of("4", "2,2", "R, S(0)", "R, R");
  options.ranks = "6-7,0-1";
  options.rank = "7";
  EXPECT_THAT(text_of(options), ::testing::HasSubstr("rank 7 at coordinate (0, 1)"));
  EXPECT_THAT(text_of(options), ::testing::HasSubstr("receive from 6: 2 elements [0:2]\n"));
}

TEST(PlanCommand_Text, TooManyMessages_AreNotEnumeratedAndSaySo) {
  const std::string text = text_of(options_of("100000", "100000", "S(0)", "R"));
  EXPECT_THAT(text, ::testing::HasSubstr("received, all ranks               37.3 GiB (39999600000 bytes)\n"));
  EXPECT_THAT(text,
              ::testing::HasSubstr("sent, busiest rank                not enumerated: about 9999900000 messages\n"));
  EXPECT_THAT(text,
              ::testing::HasSubstr("messages                          not enumerated: about 9999900000 messages\n"));
  EXPECT_THAT(text,
              ::testing::HasSubstr("peak extra memory, busiest rank   not enumerated: about 9999900000 messages\n"));
}

TEST(PlanCommand_Text, IntervalLayoutsOn100000Ranks_AreEnumerated) {
  const std::string text = text_of(options_of("400000,16", "100000", "Ragged((0,), (1*50000, 3*50000))", "S(0)"));
  EXPECT_THAT(text, ::testing::HasSubstr("messages                          149997\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("received / lower bound            1 (the least possible)\n"));
}

TEST(PlanCommand_Placements, StandardInputAndFile_HoldLongLists) {
  const TemporaryFolder folder;
  write_file(folder / "to.txt", "[ S(0) ]\n");
  const std::string direct = text_of(options_of("6,4", "2", "Ragged((0,), (1, 2))", "S(0)"));
  EXPECT_EQ(text_of(options_of("6,4", "2", "-", "@" + (folder / "to.txt").string()), "Ragged((0,), (1*1, 2*1))\n"),
            direct);
}

TEST(PlanCommand_Json, Report_HoldsPlanTotalsAndRank) {
  PlanOptions options = options_of("6,4,8", "2", "Ragged((0,), (1, 2))", "S(0)");
  options.rank = "1";
  const nlohmann::json json = json_of(options);
  EXPECT_EQ(json["shape"], (std::vector<int64_t>{6, 4, 8}));
  EXPECT_EQ(json["dtype"], "float32");
  EXPECT_EQ(json["bytes"], 768);
  EXPECT_EQ(json["source"]["placements"], std::vector<std::string>{"RaggedShard((0,), (1, 2))"});
  EXPECT_EQ(json["target"]["mesh_names"], std::vector<std::string>{"dim_0"});
  ASSERT_EQ(json["steps"].size(), 1u);
  EXPECT_EQ(json["steps"][0]["action"], "all_to_all");
  EXPECT_EQ(json["steps"][0]["local"], false);
  EXPECT_EQ(json["totals"], nlohmann::json::parse(R"({"received_bytes": 128, "max_received_bytes": 128,
      "lower_bound_bytes": 128, "rounds": 1, "max_messages": 1, "messages": 1, "max_sent_bytes": 128,
      "max_peak_extra_bytes": 0})"));
  EXPECT_EQ(json["rank"], nlohmann::json::parse(R"({"rank": 1, "coordinate": [1], "source_shape": [128],
      "target_shape": [3, 4, 8], "sent_bytes": 128, "received_bytes": 0, "lower_bound_bytes": 0, "messages": 1,
      "peak_extra_bytes": 0, "steps": [{"receives": [], "combine": null,
      "sends": [{"peer": 0, "elements": 32, "pieces": [{"offset": 0, "sizes": [32], "strides": [1]}]}],
      "keeps": [{"elements": 96, "from": {"offset": 32, "sizes": [96], "strides": [1]},
                 "to": {"offset": 0, "sizes": [96], "strides": [1]}}]}]})"));
}

TEST(PlanCommand_Json, Reduction_HasACombineAndNoLowerBoundForTheRank) {
  PlanOptions options = options_of("4", "2", "P(avg)", "S(0)");
  options.rank = "0";
  const nlohmann::json json = json_of(options);
  EXPECT_EQ(json["rank"]["steps"][0]["combine"],
            nlohmann::json::parse(R"({"op": "avg", "sources": [0, 1], "divisor": 2})"));
  EXPECT_TRUE(json["rank"]["lower_bound_bytes"].is_null());
}

TEST(PlanCommand_Json, WithoutRank_HasNone) {
  EXPECT_FALSE(json_of(options_of("4", "2", "S(0)", "R")).contains("rank"));
}

TEST(PlanCommand_Json, TooManyMessages_AreNull) {
  const nlohmann::json totals = json_of(options_of("100000", "100000", "S(0)", "R"))["totals"];
  EXPECT_EQ(totals["max_messages"], int64_t{9999900000});
  EXPECT_TRUE(totals["messages"].is_null());
  EXPECT_TRUE(totals["max_sent_bytes"].is_null());
  EXPECT_TRUE(totals["max_peak_extra_bytes"].is_null());
  EXPECT_EQ(totals["received_bytes"], int64_t{39999600000});
}

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

TEST(PlanCommand_BadShape, EachFault_NamesTheOption) {
  const auto refused = [](ErrorCode code, const std::string& text, const std::string& shape) {
    expect_refused(code, text, options_of(shape, "2", "R", "S(0)"));
  };
  refused(kInvalid, "--shape: cannot read '6x4': expected ',' at position 1", "6x4");
  refused(kInvalid, "--shape: cannot read '6,,4': expected an int64 at position 2", "6,,4");
  refused(kInvalid, "--shape: global shape (-3, 4) has the negative size -3", "-3,4");
  refused(kInvalid, "--shape: cannot read '9223372036854775808': expected an int64 at position 0",
          "9223372036854775808");
  refused(kInvalid,
          "--shape: global shape (4611686018427387904, 4) has a number of elements that does not fit in int64",
          "4611686018427387904,4");
  refused(kInvalid, "4611686018427387904 elements of float32 are more bytes than int64 counts", "4611686018427387904");
  refused(ErrorCode::kOutOfRange, "--to: Shard(0) is out of range for a tensor of 0 dims", "");
}

TEST(PlanCommand_BadMesh, EachFault_NamesTheOption) {
  PlanOptions options = options_of("6,4", "", "R", "R");
  expect_refused(kInvalid, "--mesh: DeviceMesh shape is () but a mesh has at least one dim", options);
  options.mesh = "0";
  expect_refused(kInvalid, "--mesh: DeviceMesh shape is (0,) but every dim must be at least 1", options);
  options.mesh = "2";
  for (const auto& [ranks, text] :
       {std::pair("0,0", "--ranks: DeviceMesh rank 0 stands twice in the rank list"),
        std::pair("0", "--ranks: DeviceMesh has 1 ranks but its shape has room for 2"),
        std::pair("0,-1", "--ranks: rank -1 must not be negative"),
        std::pair("3-1", "--ranks: the range 3-1 must not run backwards"),
        std::pair("0-99999999999", "--ranks: the range 0-99999999999 is too long: a mesh has at most 16777216 ranks"),
        std::pair("0;1", "--ranks: cannot read '0;1': expected ',' at position 1")}) {
    options.ranks = ranks;
    expect_refused(kInvalid, text, options);
  }
  options.ranks.reset();
  options.names = "dp,tp";
  expect_refused(kInvalid, "--names: DeviceMesh has 2 names (dp, tp) but 1 dims", options);
  options.names = "";
  expect_refused(kInvalid, "--names: DeviceMesh name '' must be made of letters, digits and underscores", options);
}

TEST(PlanCommand_BadTargetMesh, EachFault_NamesTheOption) {
  PlanOptions options = options_of("6,4", "2", "S(0)", "R");
  options.to_mesh = "3";
  expect_refused(kInvalid, "--to-mesh: DeviceMesh has 2 ranks but its shape has room for 3", options);
  options.to_mesh = "2,1";
  expect_refused(kInvalid, "--to: placements [Replicate()] are 1 but the mesh has 2 dims (dim_0, dim_1)", options);
  options.to = "R, R";
  options.to_names = "a";
  expect_refused(kInvalid, "--to-names: DeviceMesh has 1 names (a,) but 2 dims", options);
  options.to_names.reset();
  options.from = "Ragged((0,), (1, 2))";
  expect_refused(kInvalid, "on another mesh: a RaggedShard stays on its mesh", options);
}

TEST(PlanCommand_BadPlacements, EachFault_NamesTheOption) {
  const auto refused = [](ErrorCode code, const std::string& text, const std::string& from, const std::string& to) {
    expect_refused(code, text, options_of("6,4", "2", from, to));
  };
  refused(kInvalid, "--from: placements [] are 0 but the mesh has 1 dims", "", "R");
  refused(kInvalid, "--from: 'Foo' is not a placement", "Foo(1)", "R");
  refused(kInvalid, "--to: Partial op is 'mean' but must be one of sum, avg, max, min", "R", "P(mean)");
  refused(kInvalid, "--to: RaggedShard local_units has 3 entries but mesh dim 'dim_0' has size 2", "R",
          "Ragged((0,), (1, 3, 1))");
  refused(kInvalid, "--from: RaggedShard local_units sum to 4 but dims (0,) of shape (6, 4) have 6 cells",
          "Ragged((0,), (1, 3))", "R");
  refused(ErrorCode::kOutOfRange, "--from: Shard(2) is out of range for a tensor of 2 dims", "S(2)", "R");
  refused(kInvalid, "cannot redistribute [Replicate()] to [Partial(sum)]", "R", "P");
  refused(kInvalid, "--from: cannot open '/no/such/file': No such file or directory", "@/no/such/file", "R");
  refused(kInvalid, "--from: cannot read '/'", "@/", "R");
  refused(kInvalid, "--from and --to cannot both be read from standard input", "-", "-");
}

TEST(PlanCommand_BadDtypeAndRank, EachFault_NamesTheOption) {
  PlanOptions options = options_of("6,4", "2", "S(0)", "R");
  options.dtype = "float31";
  expect_refused(kInvalid, "--dtype: 'float31' is not a dtype; dtypes are float32, float64,", options);
  options.dtype = "float32";
  for (const auto& [rank, text] : {std::pair("2", "--rank: the mesh of 2 ranks does not hold 2"),
                                   std::pair("-1", "--rank: the mesh of 2 ranks does not hold -1"),
                                   std::pair("", "--rank: cannot read '': expected an int64 at position 0"),
                                   std::pair("1x", "--rank: cannot read '1x': expected the end at position 1")}) {
    options.rank = rank;
    expect_refused(kInvalid, text, options);
  }
}

}  // namespace
}  // namespace hyper_parallel
