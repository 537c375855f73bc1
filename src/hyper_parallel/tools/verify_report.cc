#include <nlohmann/json.hpp>
#include <utility>

#include "hyper_parallel/checkpoint/file_descriptor.h"
#include "hyper_parallel/checkpoint/tensor_name.h"
#include "hyper_parallel/tools/text_table.h"
#include "hyper_parallel/tools/verify_command.h"

namespace hyper_parallel {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

void print_text(const std::filesystem::path& directory, const VerifyReport& report, std::ostream& out) {
  for (const CheckpointFault& fault : report.faults) {
    out << printable(fault.file) << ": ";
    if (!fault.tensor.empty()) out << "tensor " << quoted_name(fault.tensor) << ": ";
    out << fault.message << '\n';
  }
  const int64_t unlisted = report.fault_count - std::ssize(report.faults);
  if (unlisted > 0) out << "... and " << count_text(unlisted, "more fault") << '\n';
  for (const std::string& name : report.unpublished) {
    out << printable(name) << ": not a part of the checkpoint, left by a save that did not finish or is under way\n";
  }
  out << quoted_path(directory) << ": " << (report.ok() ? std::string("ok") : count_text(report.fault_count, "fault"))
      << "; read " << count_text(report.blocks, "block") << ", " << exact_size_text(report.bytes) << ", of "
      << count_text(report.chunks, "chunk") << " in " << count_text(report.files, "file") << '\n';
}

void print_json(const std::filesystem::path& directory, const VerifyReport& report, std::ostream& out) {
  Json faults = Json::array();
  for (const CheckpointFault& fault : report.faults) {
    faults.push_back({{"file", fault.file}, {"tensor", fault.tensor}, {"message", fault.message}});
  }
  const Json document = {{"checkpoint", directory.string()},
                         {"save_id", report.save_id},
                         {"ok", report.ok()},
                         {"files", report.files},
                         {"tensors", report.tensors},
                         {"chunks", report.chunks},
                         {"blocks", report.blocks},
                         {"bytes", report.bytes},
                         {"fault_count", report.fault_count},
                         {"faults", std::move(faults)},
                         {"unpublished", report.unpublished}};
  out << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace hyper_parallel
