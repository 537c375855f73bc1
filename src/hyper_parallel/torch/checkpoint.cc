#include "hyper_parallel/torch/checkpoint.h"

#include <utility>
#include <vector>

#include "hyper_parallel/checkpoint/file_system_reader.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/torch/group_check.h"
#include "hyper_parallel/torch/tensor_planner.h"

namespace hyper_parallel {
namespace {

struct SplitState {
  std::vector<NamedTensor> tensors;
  std::vector<NamedValue> values;
};

SplitState split(const StateDict& state) {
  SplitState parts;
  for (const auto& [name, entry] : state) {
    if (const auto* distributed = std::get_if<DTensor>(&entry)) {
      parts.tensors.push_back({name, *distributed});
    } else if (const auto* plain = std::get_if<at::Tensor>(&entry)) {
      parts.tensors.push_back({name, *plain});
    } else {
      parts.values.push_back({name, std::get<Value>(entry)});
    }
  }
  return parts;
}

TensorSavePlanner save_planner(const StateDict& state) {
  SplitState parts = split(state);
  return TensorSavePlanner({std::move(parts.tensors), std::move(parts.values), {}});
}

Checkpointer::Replicas replicas() {
  return check_enabled() ? Checkpointer::Replicas::kCompared : Checkpointer::Replicas::kTrusted;
}

}  // namespace

void save(const StateDict& state, const std::filesystem::path& directory, Checkpointer& checkpointer) {
  TensorSavePlanner planner = save_planner(state);
  FileSystemWriter writer(directory);
  NoProgress progress;
  checkpointer.save(planner, writer, progress, replicas());
}

std::shared_ptr<AsyncSave> async_save(const StateDict& state, const std::filesystem::path& directory,
                                      Checkpointer& checkpointer) {
  TensorSavePlanner planner = save_planner(state);
  return checkpointer.async_save(planner, std::make_shared<FileSystemWriter>(directory), std::make_shared<NoProgress>(),
                                 replicas());
}

void load(StateDict& state, const std::filesystem::path& directory, Checkpointer& checkpointer,
          const LoadOptions& options) {
  SplitState parts = split(state);
  LoadRequest request{.values = {}, .options = options};
  for (const NamedValue& value : parts.values) request.values.push_back(value.name);
  TensorLoadPlanner planner(std::move(parts.tensors), options);
  FileSystemReader reader(directory);
  NoProgress progress;
  const CheckpointMetadata metadata = checkpointer.load(planner, reader, request, progress);
  for (const std::string& name : request.values) {
    const Value* stored = metadata.find_value(name);
    if (stored != nullptr) state.at(name) = *stored;
  }
}

}  // namespace hyper_parallel
