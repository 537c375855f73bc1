#include "hyper_parallel/checkpoint/save_id.h"

#include <gtest/gtest.h>

#include <string>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"

namespace hyper_parallel {
namespace {

const std::string kId = "0123456789abcdef";

TEST(SaveId, NewIds_AreWellFormedAndDiffer) {
  EXPECT_TRUE(is_save_id(new_save_id()));
  EXPECT_NE(new_save_id(), new_save_id());
}

TEST(SaveId, NamesOfASavesFiles_GiveItsId) {
  EXPECT_EQ(save_id_of(data_file_name(kId, 3)), kId);
  EXPECT_EQ(save_id_of(data_file_name(kId, 1234567)), kId);
  EXPECT_EQ(save_id_of(temporary_metadata_name(kId)), kId);
}

TEST(SaveId, NamesThatOthersMayHaveChosen_GiveNone) {
  for (const char* name : {"", ".metadata", ".save.lock", "notes.txt", "model.safetensors", "data-short.safetensors",
                           "data-0123456789abcdef.safetensors", "data-0123456789abcdef-3.safetensors",
                           "data-0123456789abcdef-0000x.safetensors", "data-0123456789abcdef-00003.safetensors.bak",
                           "data-0123456789abcdeg-00003.safetensors", "my-data-0123456789abcdef-00003.safetensors",
                           ".metadata.tmp-0123456789abcdef0", ".metadata.tmp-0123", ".metadata.tmp-"}) {
    EXPECT_EQ(save_id_of(name), std::nullopt) << name;
  }
}

TEST(DataFileName, Rank_HasFiveDigitsAtLeast) {
  EXPECT_EQ(data_file_name(kId, 3), "data-0123456789abcdef-00003.safetensors");
  EXPECT_EQ(data_file_name(kId, 123456), "data-0123456789abcdef-123456.safetensors");
}

}  // namespace
}  // namespace hyper_parallel
