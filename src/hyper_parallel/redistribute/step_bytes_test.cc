#include "hyper_parallel/redistribute/step_bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hyper_parallel/redistribute/planner.h"
#include "tests/support/error_of.h"

namespace hyper_parallel {
namespace {

using Values = std::vector<float>;
using ConstBytes = std::span<const std::byte>;

ConstBytes bytes(const Values& values) { return std::as_bytes(std::span(values)); }
std::span<std::byte> writable(Values& values) { return std::as_writable_bytes(std::span(values)); }

/// The only step of `rank` on a line of `ranks`.
RankStep step_of(int64_t ranks, const std::string& from, const std::string& to, const Dims& shape, int64_t rank) {
  const DeviceMesh mesh({ranks});
  const Plan plan =
      plan_redistribution(Layout(mesh, parse_placements(from)), Layout(mesh, parse_placements(to)), shape);
  return rank_plan(plan, rank).steps.at(0);
}

/// Rank 0 of two, from rows to columns of a 4 x 4 tensor: it holds 0 .. 7, keeps the left half and sends the right.
RankStep rows_to_columns() { return step_of(2, "S(0)", "S(1)", {4, 4}, 0); }
/// Rank 1 of three, a sum of a 2 x 4 tensor: its columns of the three shares.
RankStep sum_to_columns() { return step_of(3, "P", "S(1)", {2, 6}, 1); }

const Values kEight{0, 1, 2, 3, 4, 5, 6, 7};

TEST(StepBytes, Move_KeepsSendsAndPlaces) {
  const RankStep step = rows_to_columns();
  Values target(8, -1);
  copy_own(step, 4, bytes(kEight), writable(target));
  EXPECT_EQ(target, (Values{0, 1, 4, 5, -1, -1, -1, -1}));
  Values message(4);
  pack_message(step, 0, 4, bytes(kEight), writable(message));
  EXPECT_EQ(message, (Values{2, 3, 6, 7}));
  unpack_message(step, 0, 4, bytes({10, 11, 12, 13}), writable(target));
  EXPECT_EQ(target, (Values{0, 1, 4, 5, 10, 11, 12, 13}));
}

TEST(StepBytes, Reduction_CombinesTheOwnShareInItsPlace) {
  const RankStep step = sum_to_columns();
  const Values source{0, 1, 1e8F, 5, 2, 3, 0, 1, 6, 7, 4, 9};
  Values message(4);
  pack_message(step, 1, 4, bytes(source), writable(message));
  EXPECT_EQ(step.sends.at(1).peer, 2);
  EXPECT_EQ(message, (Values{2, 3, 4, 9}));
  const Values of_rank_0{1, 10, 20, 30};
  const Values of_rank_2{-1e8F, 1, 2, 3};
  Values target(4);
  combine_messages(step, DType::kF32, bytes(source), std::vector{bytes(of_rank_0), bytes(of_rank_2)}, writable(target));
  // (1 + 1e8) - 1e8 in float is 0: rank 1's term stands between the others.
  EXPECT_EQ(target, (Values{0, 16, 28, 40}));
}

TEST(StepBytes, Average_IsDividedByTheGroupsSize) {
  const RankStep step = step_of(2, "P(avg)", "S(0)", {2, 2}, 0);
  Values target(2);
  combine_messages(step, DType::kF32, bytes({1, 2, 3, 4}), std::vector{bytes({3, 5})}, writable(target));
  EXPECT_EQ(target, (Values{2, 3.5F}));
}

TEST(StepBytes, ReductionIntoAnotherOrder_IsPlacedPieceByPiece) {
  const std::vector<StridedView> order{run_view(2, 2), run_view(0, 2)};
  RankStep step{4, 4, {}, {}, {{1, 4, order}}, Combine{ReduceOp::kSum, 1, {0, 1}}};
  step.copies = {{run_view(0, 2), order[0]}, {run_view(2, 2), order[1]}};
  Values target(4);
  combine_messages(step, DType::kF32, bytes({1, 2, 3, 4}), std::vector{bytes({10, 20, 30, 40})}, writable(target));
  EXPECT_EQ(target, (Values{33, 44, 11, 22}));
}

TEST(StepBytes, RankThatOwnsNothing_CombinesNothing) {
  const RankStep step = step_of(3, "P", "S(0)", {2, 2}, 2);
  EXPECT_EQ(step.target_numel, 0);
  Values target;
  EXPECT_EQ(error_of([&] { combine_messages(step, DType::kF32, bytes({1, 2, 3, 4}), {}, writable(target)); }),
            "no error");
}

TEST(StepBytes, OneRank_CombinesItsOwnShare) {
  const RankStep step = step_of(1, "P", "R", {2}, 0);
  Values target(2);
  combine_messages(step, DType::kF32, bytes({1, 2}), {}, writable(target));
  EXPECT_EQ(target, (Values{1, 2}));
}

TEST(StepBytes, BuffersOfOtherSizes_AreRefused) {
  const RankStep move = rows_to_columns();
  Values seven(7);
  Values eight(8);
  Values four(4);
  EXPECT_EQ(error_of([&] { copy_own(move, 4, bytes(seven), writable(eight)); }),
            "InvalidArgument: source has 28 bytes but the step has 8 elements of 4 bytes there");
  EXPECT_EQ(error_of([&] { copy_own(move, 4, bytes(kEight), writable(seven)); }),
            "InvalidArgument: target has 28 bytes but the step has 8 elements of 4 bytes there");
  EXPECT_EQ(error_of([&] { copy_own(move, 0, bytes(kEight), writable(eight)); }),
            "InvalidArgument: item_bytes is 0 but must be at least 1");
  EXPECT_EQ(error_of([&] { pack_message(move, 0, 4, bytes(seven), writable(four)); }),
            "InvalidArgument: source has 28 bytes but the step has 8 elements of 4 bytes there");
  EXPECT_EQ(error_of([&] { pack_message(move, 0, 4, bytes(kEight), writable(seven)); }),
            "InvalidArgument: message has 28 bytes but the step has 4 elements of 4 bytes there");
  EXPECT_EQ(error_of([&] { unpack_message(move, 0, 4, bytes(seven), writable(eight)); }),
            "InvalidArgument: message has 28 bytes but the step has 4 elements of 4 bytes there");
  EXPECT_EQ(error_of([&] { unpack_message(move, 0, 4, bytes(four), writable(seven)); }),
            "InvalidArgument: target has 28 bytes but the step has 8 elements of 4 bytes there");
}

TEST(StepBytes, CombineOfOtherSizes_IsRefused) {
  const RankStep step = sum_to_columns();
  const Values source(12);
  const Values four(4);
  Values target(4);
  const auto said = [&](const Values& own, const std::vector<ConstBytes>& messages, Values into) {
    return error_of([&] { combine_messages(step, DType::kF32, bytes(own), messages, writable(into)); });
  };
  EXPECT_EQ(said(four, {bytes(four), bytes(four)}, target),
            "InvalidArgument: source has 16 bytes but the step has 12 elements of 4 bytes there");
  EXPECT_EQ(said(source, {bytes(four), bytes(four)}, source),
            "InvalidArgument: target has 48 bytes but the step has 4 elements of 4 bytes there");
  EXPECT_EQ(said(source, {bytes(four)}, target), "InvalidArgument: there are 1 messages but the step receives 2");
  EXPECT_EQ(said(source, {bytes(four), bytes(source)}, target),
            "InvalidArgument: messages[1] has 48 bytes but the step has 4 elements of 4 bytes there");
}

TEST(StepBytes, MessageThatTheStepDoesNotHave_IsOutOfRange) {
  const RankStep move = rows_to_columns();
  Values four(4);
  Values eight(8);
  EXPECT_EQ(error_of([&] { pack_message(move, 1, 4, bytes(kEight), writable(four)); }),
            "OutOfRange: message 1 is out of range: the step sends 1");
  EXPECT_EQ(error_of([&] { unpack_message(move, -1, 4, bytes(four), writable(eight)); }),
            "OutOfRange: message -1 is out of range: the step receives 1");
}

TEST(StepBytes, FunctionOfTheOtherKindOfStep_IsRefused) {
  const RankStep move = rows_to_columns();
  const RankStep reduction = sum_to_columns();
  const Values twelve(12);
  const Values four(4);
  Values target(4);
  EXPECT_EQ(error_of([&] { copy_own(reduction, 4, bytes(twelve), writable(target)); }),
            "InvalidArgument: copy_own: the step is a reduction; combine its messages");
  EXPECT_EQ(error_of([&] { unpack_message(reduction, 0, 4, bytes(four), writable(target)); }),
            "InvalidArgument: unpack: the step is a reduction; combine its messages");
  EXPECT_EQ(error_of([&] { combine_messages(move, DType::kF32, bytes(kEight), {}, writable(target)); }),
            "InvalidArgument: combine: the step is a move; unpack its messages");
}

TEST(StepBytes, BuffersThatShareMemory_AreRefused) {
  const std::string text = "InvalidArgument: what is read and what is written share memory but must lie apart";
  const RankStep move = rows_to_columns();
  Values memory(12);
  const std::span<float> all(memory);
  const auto read = [&](size_t begin, size_t count) { return std::as_bytes(all.subspan(begin, count)); };
  const auto write = [&](size_t begin, size_t count) { return std::as_writable_bytes(all.subspan(begin, count)); };
  EXPECT_EQ(error_of([&] { copy_own(move, 4, read(0, 8), write(4, 8)); }), text);
  EXPECT_EQ(error_of([&] { pack_message(move, 0, 4, read(0, 8), write(7, 4)); }), text);
  EXPECT_EQ(error_of([&] { pack_message(move, 0, 4, read(0, 8), write(8, 4)); }), "no error");
  EXPECT_EQ(error_of([&] { unpack_message(move, 0, 4, read(4, 4), write(0, 8)); }), text);
  const RankStep reduction = step_of(2, "P", "S(0)", {4}, 0);
  EXPECT_EQ(error_of([&] { combine_messages(reduction, DType::kF32, read(0, 4), {{read(4, 2)}}, write(3, 2)); }), text);
  EXPECT_EQ(error_of([&] { combine_messages(reduction, DType::kF32, read(0, 4), {{read(4, 2)}}, write(5, 2)); }), text);
  EXPECT_EQ(error_of([&] { combine_messages(reduction, DType::kF32, read(0, 4), {{read(4, 2)}}, write(6, 2)); }),
            "no error");
}

TEST(StepBytes, ReductionThatTheDtypeLacks_IsRefusedBeforeAnythingElse) {
  Values nothing;
  EXPECT_EQ(error_of([&] { combine_messages(sum_to_columns(), DType::kBool, bytes(nothing), {}, writable(nothing)); }),
            "Type: redistribute: the input is bool, which has no sum");
}

}  // namespace
}  // namespace hyper_parallel
