#include <gmock/gmock.h>

#include <functional>
#include <set>

#include "hyper_parallel/checkpoint/safetensors_file.h"
#include "hyper_parallel/tools/convert_command.h"
#include "tests/support/expect_error.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/stored_checkpoint.h"

namespace hyper_parallel {
namespace {

using ::testing::ElementsAre;

/// Two tensors, and a value as torch's checkpoints have them.
TestCheckpoint model_with_value() {
  TestCheckpoint model{{counting_tensor("a", {6, 2}, {{0, {{0, 0}, {6, 1}}}, {1, {{0, 1}, {6, 1}}}}),
                        {"b", DType::kI64, {3}, counting_bytes<int64_t>(3), {{1, {{0}, {3}}}}}},
                       {},
                       {}};
  model.values = {{"lr", Value(0.5)}};
  return model;
}

void convert(const std::filesystem::path& in, const std::filesystem::path& out, const ConvertOptions& options) {
  NoProgress quiet;
  convert_checkpoint(in, out, options, quiet);
}

std::string tensor_in(const std::filesystem::path& file, const std::string& name) {
  return text_of(SafetensorsFile(file).bytes(name));
}

/// A folder with a checkpoint of each format, and a program in place of Python.
struct WithPython {
  WithPython() {
    write_checkpoint(folder / "ours", model_with_value());
    NoProgress quiet;
    checkpoint_to_huggingface(folder / "ours", folder / "hf", kDefaultMaxFileSize, ValuePolicy::kDrop, quiet);
    std::filesystem::create_directory(folder / "torch");
    write_file(folder / "torch" / ".metadata", "\x80\x02}.");
  }

  /// What the program does with IN and OUT; its exit code.
  using Program = std::function<int(const std::filesystem::path& in, const std::filesystem::path& out)>;

  ConvertOptions options_to(CheckpointFormat to, Program program = [](const auto&, const auto&) { return 0; }) {
    ConvertOptions options;
    options.to = to;
    options.python = "/opt/python";
    options.run = [this, program = std::move(program)](const std::vector<std::string>& arguments) {
      ran.push_back(arguments);
      during = folder.names();
      return program(arguments.at(4), arguments.at(5));
    };
    return options;
  }

  /// The program ran once, from `in` to `out`.
  void expect_run(const std::string& in, const std::string& out, const std::string& to) const {
    EXPECT_THAT(ran, ElementsAre(ElementsAre("/opt/python", "-P", "-m", "hyper_parallel.checkpoint.convert", in, out,
                                             "--to", to)));
  }
  /// The directory that was beside the others while the program ran.
  std::string temporary() const {
    for (const std::string& name : during) {
      if (name.starts_with(".hyper-parallel-convert-")) return (folder / name).string();
    }
    return "";
  }
  void expect_nothing_but(std::set<std::string> others = {}) const {
    others.insert({"hf", "ours", "torch"});
    EXPECT_EQ(folder.names(), others);
  }

  TemporaryFolder folder;
  std::vector<std::vector<std::string>> ran;
  std::set<std::string> during;
};

int write_model(const std::filesystem::path& /*in*/, const std::filesystem::path& out) {
  write_checkpoint(out, model_with_value());
  write_file(out / ".save.lock", "");
  return 0;
}

TEST(ConvertTorch, FromAndToOurs_IsOneStepOfPython) {
  WithPython with;
  convert(with.folder / "ours", "-out", with.options_to(CheckpointFormat::kTorch));
  with.expect_run((with.folder / "ours").string(), "./-out", "torch");
  with.ran.clear();
  convert(with.folder / "torch", with.folder / "out", with.options_to(CheckpointFormat::kHyperParallel));
  with.expect_run((with.folder / "torch").string(), (with.folder / "out").string(), "hyper_parallel");
  EXPECT_EQ(with.temporary(), "");
  with.expect_nothing_but();
}

TEST(ConvertTorch, ToHuggingface_GoesByWayOfOurs) {
  WithPython with;
  ConvertOptions options = with.options_to(CheckpointFormat::kHuggingface, write_model);
  options.values = ValuePolicy::kDrop;
  options.max_file_size = 47;
  convert(with.folder / "torch", with.folder / "out", options);
  ASSERT_NE(with.temporary(), "");
  with.expect_run((with.folder / "torch").string(), with.temporary(), "hyper_parallel");
  EXPECT_EQ(tensor_in(with.folder / "out" / "model-00001-of-00002.safetensors", "a"),
            model_with_value().tensors[0].bytes);
  EXPECT_EQ(tensor_in(with.folder / "out" / "model-00002-of-00002.safetensors", "b"),
            model_with_value().tensors[1].bytes);
  with.expect_nothing_but({"out"});
}

TEST(ConvertTorch, FromHuggingface_GoesByWayOfOurs) {
  WithPython with;
  std::string a;
  const auto program = [&a](const std::filesystem::path& in, const std::filesystem::path&) {
    a = stored_bytes(in, "a");
    return 0;
  };
  convert(with.folder / "hf", with.folder / "out", with.options_to(CheckpointFormat::kTorch, program));
  EXPECT_EQ(a, model_with_value().tensors[0].bytes);
  with.expect_run(with.temporary(), (with.folder / "out").string(), "torch");
  with.expect_nothing_but();
}

TEST(ConvertTorch, TemporaryCheckpoint_LiesBesideOut) {
  WithPython with;
  std::filesystem::create_directory(with.folder / "sub");
  std::filesystem::create_directory(with.folder / "sub" / "out");
  std::filesystem::create_directory_symlink(with.folder / "sub" / "out", with.folder / "link");
  const std::filesystem::path parent = std::filesystem::canonical(with.folder.path());
  const auto beside = [&](const std::filesystem::path& out) {
    std::filesystem::path place;
    const auto program = [&place](const std::filesystem::path& in, const std::filesystem::path&) {
      place = in.parent_path();
      return 0;
    };
    convert(with.folder / "hf", out, with.options_to(CheckpointFormat::kTorch, program));
    return place;
  };
  EXPECT_EQ(beside(with.folder / "new"), parent);
  EXPECT_EQ(beside(with.folder / "new" / ""), parent);
  EXPECT_EQ(beside(with.folder / "sub" / "out"), parent / "sub");
  EXPECT_EQ(beside(with.folder / "sub" / "out" / "."), parent / "sub");
  EXPECT_EQ(beside(with.folder / "link"), parent / "sub");
  EXPECT_EQ(beside("relative-out"), std::filesystem::current_path());
  with.expect_nothing_but({"link", "sub"});
}

TEST(ConvertTorch, PythonThatFails_LeavesNothing) {
  WithPython with;
  const auto fails = [](const std::filesystem::path& /*in*/, const std::filesystem::path& out) {
    if (std::filesystem::exists(out)) write_file(out / "data-00000000000000aa-00000.safetensors", "half of it");
    return 3;
  };
  const auto text = "'/opt/python', which converts torch checkpoints, ended with exit code 3; its message stands above";
  const auto expect_failure = [&](const std::string& in, CheckpointFormat to) {
    expect_error(ErrorCode::kFailedPrecondition, text,
                 [&] { convert(with.folder / in, with.folder / "out", with.options_to(to, fails)); });
    with.expect_nothing_but();
  };
  expect_failure("torch", CheckpointFormat::kHuggingface);
  expect_failure("hf", CheckpointFormat::kTorch);
  expect_failure("torch", CheckpointFormat::kHyperParallel);
  expect_failure("ours", CheckpointFormat::kTorch);
  EXPECT_EQ(with.ran.size(), 4U);
}

TEST(ConvertTorch, ValuesFromTorch_AreRefusedUnlessDropped) {
  WithPython with;
  const ConvertOptions options = with.options_to(CheckpointFormat::kHuggingface, write_model);
  expect_error(ErrorCode::kInvalidArgument, "IN holds 1 value beside tensors, 'lr' for one",
               [&] { convert(with.folder / "torch", with.folder / "out", options); });
  with.expect_nothing_but();
}

TEST(ConvertTorch, OutThatIsInUse_IsRefusedBeforePythonRuns) {
  WithPython with;
  const auto in_use = [&](const std::string& in, CheckpointFormat to) {
    expect_error(ErrorCode::kInvalidArgument, "ours', is not empty: it holds '.metadata', for example",
                 [&] { convert(with.folder / in, with.folder / "ours", with.options_to(to)); });
  };
  in_use("torch", CheckpointFormat::kHuggingface);
  in_use("hf", CheckpointFormat::kTorch);
  write_file(with.folder / "file", "");
  expect_error(ErrorCode::kInvalidArgument, "file': Not a directory",
               [&] { convert(with.folder / "hf", with.folder / "file", with.options_to(CheckpointFormat::kTorch)); });
  expect_error(ErrorCode::kInvalidArgument, "no', beside OUT: No such file or directory", [&] {
    convert(with.folder / "hf", with.folder / "no" / "out", with.options_to(CheckpointFormat::kTorch));
  });
  EXPECT_TRUE(with.ran.empty());
  with.expect_nothing_but({"file"});
}

TEST(ConvertTorch, WhatIsNotOfTheTemporaryCheckpoint_IsNotRemoved) {
  WithPython with;
  write_file(with.folder / "precious", "of somebody");
  std::filesystem::path kept;
  const auto program = [&](const std::filesystem::path& /*in*/, const std::filesystem::path& out) {
    std::filesystem::create_symlink(with.folder / "precious", out / "link");
    std::filesystem::create_directory_symlink(with.folder / "ours", out / "folder");
    std::filesystem::create_directory(out / "sub");
    kept = out / "sub";
    return 1;
  };
  expect_error(ErrorCode::kFailedPrecondition, "ended with exit code 1", [&] {
    convert(with.folder / "torch", with.folder / "out", with.options_to(CheckpointFormat::kHuggingface, program));
  });
  EXPECT_EQ(read_file(with.folder / "precious"), "of somebody");
  EXPECT_EQ(metadata_of(with.folder / "ours").tensors().size(), 2U);
  EXPECT_TRUE(std::filesystem::exists(kept));  // no checkpoint has a folder in it, so it is not ours
}

TEST(ConvertTorch, WithoutPython_SaysWhatToInstall) {
  WithPython with;
  ConvertOptions options;
  options.python = "/no/such/python";
  for (const CheckpointFormat to : {CheckpointFormat::kHyperParallel, CheckpointFormat::kHuggingface}) {
    options.to = to;
    expect_error(
        ErrorCode::kFailedPrecondition,
        "cannot run '/no/such/python': No such file or directory; torch checkpoints are converted by Python with torch "
        "and the package hyper_parallel: install both, or name such a Python in HYPER_PARALLEL_PYTHON",
        [&] { convert(with.folder / "torch", with.folder / "out", options); });
    with.expect_nothing_but();
  }
}

}  // namespace
}  // namespace hyper_parallel
