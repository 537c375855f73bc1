#include "hyper_parallel/tools/holders_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hyper_parallel {
namespace {

using ::testing::HasSubstr;

/// A tensor of bytes whose box i lies in the file with number files[i].
StoredTensor tensor_of(const std::string& name, Dims shape, const std::vector<std::pair<int64_t, Box>>& chunks) {
  StoredTensor tensor(name, DType::kU8, std::move(shape));
  const std::vector<uint32_t> checksums = {0};
  for (const auto& [file, box] : chunks) tensor.add_chunk(box, file, 0, "", checksums);
  return tensor;
}

std::vector<StoredFile> files_of(int64_t count) {
  std::vector<StoredFile> files;
  for (int64_t i = 0; i < count; ++i) files.push_back({"f" + std::to_string(i), 100});
  return files;
}

TEST(HoldersPicture, RowsOfTwoFiles_AreABarAndAMap) {
  const StoredTensor tensor = tensor_of("w", {6, 4}, {{0, {{0, 0}, {2, 4}}}, {1, {{2, 0}, {4, 4}}}});
  EXPECT_EQ(holders_picture(tensor, files_of(2)),
            "w  U8 (6, 4): 2 chunks in 2 files\n"
            "  row-major │ AAAAAAAABBBBBBBBBBBBBBBB\n"
            "          0 │ AAAA\n"
            "          1 │ AAAA\n"
            "          2 │ BBBB\n"
            "          3 │ BBBB\n"
            "          4 │ BBBB\n"
            "          5 │ BBBB\n"
            "  A   8 cells   33%  f0\n"
            "  B  16 cells   67%  f1\n");
}

TEST(HoldersPicture, Columns_AlternateInTheBar) {
  const StoredTensor tensor = tensor_of("w", {2, 4}, {{0, {{0, 0}, {2, 1}}}, {1, {{0, 1}, {2, 3}}}});
  const std::string picture = holders_picture(tensor, files_of(2));
  EXPECT_THAT(picture, HasSubstr("  row-major │ ABBBABBB\n          0 │ ABBB\n          1 │ ABBB\n"));
}

TEST(HoldersPicture, ManyRows_AreJoinedBetweenBorders) {
  const StoredTensor tensor = tensor_of("w", {100, 2}, {{0, {{0, 0}, {30, 2}}}, {1, {{30, 0}, {70, 2}}}});
  const std::string picture = holders_picture(tensor, files_of(2));
  EXPECT_THAT(picture, HasSubstr("       0:30 │ AA\n     30:100 │ BB\n"));
}

TEST(HoldersPicture, Column_ShowsWhoHoldsHalfOfIt) {
  const std::string half = holders_picture(tensor_of("w", {128}, {{0, {{0}, {1}}}, {1, {{1}, {127}}}}), files_of(2));
  EXPECT_THAT(half, HasSubstr("  row-major │ A" + std::string(63, 'B') + "\n"));
  EXPECT_THAT(half, HasSubstr("  A     1 cell   <1%  f0\n  B  127 cells   99%  f1\n"));
  const std::string third =
      holders_picture(tensor_of("w", {192}, {{0, {{0}, {1}}}, {1, {{1}, {1}}}, {2, {{2}, {190}}}}), files_of(3));
  EXPECT_THAT(third, HasSubstr("  row-major │ +" + std::string(63, 'C') + "\n"));
}

TEST(HoldersPicture, MapWithoutASymbol_IsLeftOut) {
  std::vector<std::pair<int64_t, Box>> chunks;
  for (int64_t i = 0; i < 192; ++i) chunks.push_back({i % 3, {{0, i}, {1, 1}}});
  const std::string picture = holders_picture(tensor_of("w", {1, 192}, chunks), files_of(3));
  EXPECT_THAT(picture, HasSubstr("  row-major │ " + std::string(64, '+') + "\n  A  64 cells   33%  f0\n"));
}

TEST(HoldersPicture, RaggedStaircase_HasOneSymbolForAllBoxesOfAFile) {
  const StoredTensor tensor =
      tensor_of("w", {3, 4}, {{0, {{0, 0}, {1, 3}}}, {1, {{0, 3}, {1, 1}}}, {1, {{1, 0}, {2, 4}}}});
  const std::string picture = holders_picture(tensor, files_of(2));
  EXPECT_THAT(picture, HasSubstr("w  U8 (3, 4): 3 chunks in 2 files\n"));
  EXPECT_THAT(picture, HasSubstr("          0 │ AAAB\n          1 │ BBBB\n"));
}

TEST(HoldersPicture, SymbolsFollowTheFirstCell_NotTheFile) {
  const StoredTensor tensor = tensor_of("w", {4}, {{1, {{0}, {2}}}, {0, {{2}, {2}}}});
  const std::string picture = holders_picture(tensor, files_of(2));
  EXPECT_THAT(picture, HasSubstr("  row-major │ AABB\n  A  2 cells   50%  f1\n  B  2 cells   50%  f0\n"));
}

TEST(HoldersPicture, ScalarsAndTensorsWithoutCells_HaveALineToo) {
  EXPECT_EQ(holders_picture(tensor_of("s", {}, {{0, {{}, {}}}}), files_of(1)),
            "s  U8 (): 1 chunk in 1 file\n  row-major │ A\n  A  1 cell  100%  f0\n");
  EXPECT_EQ(holders_picture(tensor_of("e", {0, 3}, {}), {}), "e  U8 (0, 3): 0 chunks in 0 files\n  no cells\n");
}

TEST(HoldersPicture, ManyFiles_AreCut_AndSymbolsRepeat) {
  std::vector<std::pair<int64_t, Box>> chunks;
  for (int64_t i = 0; i < 20; ++i) chunks.push_back({i, {{i}, {1}}});
  EXPECT_THAT(holders_picture(tensor_of("w", {20}, chunks), files_of(20)),
              ::testing::EndsWith("\n  … and 4 more files\n"));
  for (int64_t i = 20; i < 63; ++i) chunks.push_back({i, {{i}, {1}}});
  const std::string picture = holders_picture(tensor_of("w", {63}, chunks), files_of(63));
  EXPECT_THAT(picture, HasSubstr("9A\n"));
  EXPECT_THAT(picture, ::testing::EndsWith("\n  … and 47 more files; symbols repeat after 62\n"));
}

TEST(HoldersPicture, NamesDoNotReachTheTerminalAsTheyAre) {
  const StoredTensor tensor = tensor_of("a\x1b[31m", {1}, {{0, {{0}, {1}}}});
  const std::string picture = holders_picture(tensor, {{"f\n", 1}});
  EXPECT_THAT(picture, ::testing::StartsWith("a\\x1b[31m  U8"));
  EXPECT_THAT(picture, ::testing::EndsWith("  f\\x0a\n"));
}

}  // namespace
}  // namespace hyper_parallel
