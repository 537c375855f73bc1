#include "core_storage.h"

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <utility>

#include "core_checkpoint_types.h"
#include "core_conversions.h"
#include "core_override.h"
#include "hyper_parallel/checkpoint/crc32c.h"
#include "hyper_parallel/checkpoint/file_system_reader.h"
#include "hyper_parallel/checkpoint/file_system_writer.h"
#include "hyper_parallel/checkpoint/item_reader.h"
#include "hyper_parallel/checkpoint/progress_bar.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

/// A storage's methods see planners and progress by reference, for the time of the call.
template <typename T>
py::object borrowed(T& object) {
  return py::cast(&object, py::return_value_policy::reference);
}

/// Whether the Python class of `self` defines the method.
template <typename Base>
bool overrides(const Base* self, const char* name) {
  const py::gil_scoped_acquire gil;
  return static_cast<bool>(py::get_override(self, name));
}

[[noreturn]] void raise_missing(const char* role, const char* method) {
  raise(ErrorCode::kUnimplemented, "a ", role, " must define the method ", method);
}

/// `Base` with the methods that a Python class defines: each is asked first, and `Base` answers for the others.
template <typename Base>
class PythonStorageWriter final : public Base {
 public:
  using Base::Base;

  std::string begin() override {
    if (overrides(role(), "begin")) {
      return with_python([&] { return py::get_override(role(), "begin")().template cast<std::string>(); });
    }
    if constexpr (kIsRole)
      raise_missing("StorageWriter", "begin");
    else
      return Base::begin();
  }

  CheckpointParts write(const std::string& save_id, int64_t rank, const SavePlan& plan, SavePlanner& planner,
                        Progress& progress) override {
    if (overrides(role(), "write")) {
      return with_python([&] {
        const auto method = py::get_override(role(), "write");
        return method(save_id, rank, plan, borrowed(planner), borrowed(progress)).template cast<CheckpointParts>();
      });
    }
    if constexpr (kIsRole)
      raise_missing("StorageWriter", "write");
    else
      return Base::write(save_id, rank, plan, planner, progress);
  }

  void publish(const CheckpointMetadata& metadata) override {
    if (overrides(role(), "publish")) return with_python([&] { py::get_override(role(), "publish")(metadata); });
    if constexpr (kIsRole)
      raise_missing("StorageWriter", "publish");
    else
      Base::publish(metadata);
  }

  void abandon() noexcept override {
    if (!overrides(role(), "abandon")) {
      if constexpr (!kIsRole) Base::abandon();
      return;
    }
    const py::gil_scoped_acquire gil;
    try {
      py::get_override(role(), "abandon")();
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("StorageWriter.abandon");
    }
  }

 private:
  static constexpr bool kIsRole = std::is_abstract_v<Base>;
  const Base* role() const { return this; }
};

template <typename Base>
class PythonStorageReader final : public Base {
 public:
  using Base::Base;

  std::string read_metadata() override {
    if (overrides(role(), "read_metadata")) {
      return with_python([&] {
        return py::get_override(role(), "read_metadata")().template cast<py::bytes>().template cast<std::string>();
      });
    }
    if constexpr (kIsRole)
      raise_missing("StorageReader", "read_metadata");
    else
      return Base::read_metadata();
  }

  bool open(const CheckpointMetadata& metadata, const LoadPlan& plan) override {
    if (overrides(role(), "open")) {
      return with_python([&] {
        const LoadPlanObject object{plan, &metadata};
        return py::get_override(role(), "open")(borrowed(metadata), object).template cast<bool>();
      });
    }
    if constexpr (kIsRole)
      return true;
    else
      return Base::open(metadata, plan);
  }

  void read(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner,
            Progress& progress) override {
    if (overrides(role(), "read")) {
      return with_python([&] {
        const LoadPlanObject object{plan, &metadata};
        py::get_override(role(), "read")(borrowed(metadata), object, borrowed(planner), borrowed(progress));
      });
    }
    if constexpr (kIsRole)
      raise_missing("StorageReader", "read");
    else
      Base::read(metadata, plan, planner, progress);
  }

 private:
  static constexpr bool kIsRole = std::is_abstract_v<Base>;
  const Base* role() const { return this; }
};

/// A StorageReader of which Python says how a file's bytes are read; planning, verifying and delivering are C++'s.
class RangeReader : public StorageReader {
 public:
  std::string read_metadata() override {
    return with_python([&] { return method("read_metadata")().cast<py::bytes>().cast<std::string>(); });
  }

  bool open(const CheckpointMetadata& metadata, const LoadPlan& plan) override {
    for (const int64_t number : files_of(metadata, plan)) {
      const StoredFile& file = metadata.files()[static_cast<size_t>(number)];
      const auto size = with_python([&] { return method("file_size")(file.name).cast<std::optional<int64_t>>(); });
      if (!size.has_value()) return false;
      HP_CHECK(*size == file.bytes, kDataLoss, "checkpoint file '", file.name, "' has ", *size,
               " bytes but the metadata says ", file.bytes);
    }
    return true;
  }

  void read(const CheckpointMetadata& metadata, const LoadPlan& plan, LoadPlanner& planner,
            Progress& progress) override {
    read_items(
        metadata, plan, planner, progress,
        [&](int64_t number) {
          const std::string& name = metadata.files()[static_cast<size_t>(number)].name;
          const auto read = [this, &name](int64_t begin, std::span<std::byte> into) { read_range(name, begin, into); };
          return OpenedFile{read, str_cat("'", name, "'")};
        },
        1);
  }

 private:
  py::function method(const char* name) const { return required_override<RangeReader>(this, name); }

  void read_range(const std::string& name, int64_t begin, std::span<std::byte> into) {
    with_python([&] {
      const py::object data = method("read_range")(name, begin, into.size());
      const HeldBytes held = held_bytes(data, static_cast<int64_t>(into.size()), "what read_range returns");
      std::ranges::copy(held.bytes, into.begin());
    });
  }
};

class PythonProgress final : public Progress {
 public:
  void start(int64_t total_bytes) override {
    with_python([&] { required_override(role(), "start")(total_bytes); });
  }
  void advance(int64_t bytes) override {
    with_python([&] { required_override(role(), "advance")(bytes); });
  }
  void finish() override {
    with_python([&] { required_override(role(), "finish")(); });
  }

 private:
  const Progress* role() const { return this; }
};

void add_chunk(CheckpointParts& parts, const WriteItemObject& item, const std::string& file, int64_t offset,
               const std::vector<uint32_t>& checksums, const std::optional<std::string>& tensor_key) {
  const auto found = std::ranges::find(parts.files, file, &StoredFile::name);
  HP_CHECK(found != parts.files.end(), kInvalidArgument, "file '", file, "' was not added with add_file");
  auto tensor = std::ranges::find(parts.tensors, item.tensor.name, &StoredTensor::name);
  if (tensor == parts.tensors.end()) {
    parts.tensors.emplace_back(item.tensor.name, item.tensor.dtype, item.tensor.shape);
    tensor = parts.tensors.end() - 1;
  }
  tensor->add_chunk(item.tensor.boxes[0], found - parts.files.begin(), offset, tensor_key.value_or(""), checksums);
}

void bind_parts(py::module_& core) {
  py::class_<CheckpointParts>(core, "CheckpointParts", "What one rank has written: files, and where each box lies.")
      .def(py::init<>())
      .def_property_readonly(
          "files",
          [](const CheckpointParts& self) {
            py::dict files;
            for (const StoredFile& file : self.files) files[py::str(file.name)] = file.bytes;
            return files;
          },
          "The files and their sizes in bytes.")
      .def(
          "add_file",
          [](CheckpointParts& self, const std::string& name, int64_t bytes) { self.files.push_back({name, bytes}); },
          py::arg("name"), py::arg("bytes"),
          "Args:\n    name: A name of one path component.\n    bytes: The size of the whole file.")
      .def("add_chunk", &add_chunk, py::arg("item"), py::arg("file"), py::arg("offset"), py::arg("checksums"),
           py::arg("tensor_key") = py::none(),
           R"(Says where a box lies.

Args:
    item: The box.
    file: A file that was added.
    offset: Its first byte in the file.
    checksums: ``block_checksums`` of its bytes.
    tensor_key: Its name in the file, None for the logical name.

Raises:
    InvalidArgumentError: An unknown file, or checksums that are not as many as the box has blocks.)");
  core.def(
      "block_checksums", [](const py::object& data) { return block_checksums(contiguous_bytes(data, "data").bytes); },
      py::arg("data"),
      "CRC32C of each 1 MiB block of contiguous memory.\n\nExample:\n    >>> block_checksums(b\"123456789\")\n    "
      "[3808858755]");
}

void bind_progress(py::module_& core) {
  py::class_<Progress, PythonProgress, std::shared_ptr<Progress>>(
      core, "Progress", "Told how many bytes are done: derive from it and define the methods.")
      .def(py::init<>())
      .def("start", &Progress::start, py::arg("total_bytes"), "Before the first byte: how many there will be.")
      .def("advance", &Progress::advance, py::arg("bytes"), "So many more are done.")
      .def("finish", &Progress::finish, "All is done.");
  core.def(
      "terminal_progress", [](int descriptor) { return std::shared_ptr<Progress>(terminal_progress(descriptor)); },
      py::arg("descriptor") = 2,
      "A bar (bytes done, rate, time left) on an open file if that is a terminal, else one that says nothing.");
}

}  // namespace

void bind_storages(py::module_& core) {
  bind_parts(core);
  bind_progress(core);
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<StorageWriter, PythonStorageWriter<StorageWriter>>(
      core, "StorageWriter", "Where a save's bytes go: derive from it and define the methods.")
      .def(py::init<>())
      .def("begin", &StorageWriter::begin, Release(),
           "On the coordinator, before any rank writes: takes the place for itself, returns the save's id, 16 hex "
           "digits.")
      .def("write", &StorageWriter::write, py::arg("save_id"), py::arg("rank"), py::arg("plan"), py::arg("planner"),
           py::arg("progress"), Release(),
           R"(On every rank: writes the plan's boxes durably.

Args:
    save_id: The save's id.
    rank: This rank.
    plan: The boxes, a ``SavePlan``.
    planner: Its ``get_data(item)`` has the bytes.
    progress: To be told.

Returns:
    ``CheckpointParts``.)")
      .def(
          "publish", &StorageWriter::publish, py::arg("metadata"), Release(),
          "On the coordinator, after all ranks have written: makes the checkpoint the one that readers see. If it "
          "fails it must itself remove what the save wrote, unless readers may see it: ``abandon`` is not called then.")
      .def("abandon", &StorageWriter::abandon, Release(),
           "On the coordinator, after a fault before ``publish``: removes what this save wrote.");
  py::class_<FileSystemWriter, StorageWriter, PythonStorageWriter<FileSystemWriter>>(core, "FileSystemWriter",
                                                                                     "A checkpoint in a directory.")
      .def(py::init<std::filesystem::path>(), py::arg("directory"),
           "Args:\n    directory: Its path; created where it is missing, its parent is not.");
  py::class_<StorageReader, PythonStorageReader<StorageReader>>(
      core, "StorageReader", "Where a load's bytes come from: derive from it and define the methods.")
      .def(py::init<>())
      .def(
          "read_metadata", [](StorageReader& self) { return py::bytes(self.read_metadata()); },
          "On the coordinator: the content of ``.metadata``.")
      .def(
          "open",
          [](StorageReader& self, const CheckpointMetadata& metadata, const LoadPlanObject& plan) {
            return self.open(metadata, plan.plan);
          },
          py::arg("metadata"), py::arg("plan"),
          "Gets hold of the files that the plan reads; False if one is gone because a newer save replaced it.")
      .def(
          "read",
          [](StorageReader& self, const CheckpointMetadata& metadata, const LoadPlanObject& plan, LoadPlanner& planner,
             Progress& progress) {
            const py::gil_scoped_release no_gil;
            self.read(metadata, plan.plan, planner, progress);
          },
          py::arg("metadata"), py::arg("plan"), py::arg("planner"), py::arg("progress"),
          "Reads, verifies and delivers every item.");
  py::class_<FileSystemReader, StorageReader, PythonStorageReader<FileSystemReader>>(
      core, "FileSystemReader", "Reads a checkpoint from a directory.")
      .def(py::init<std::filesystem::path, int>(), py::arg("directory"), py::kw_only(),
           py::arg("threads") = kReadThreads,
           "Args:\n"
           "    directory: Its path.\n"
           "    threads: How many of this rank's threads read, 1 to 256.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: Another number of threads.");
  py::class_<RangeReader, StorageReader>(
      core, "RangeReader",
      "A ``StorageReader`` that needs to know only how bytes are read: derive from it and define ``read_metadata()``, "
      "``file_size(name)`` (None for a file that is gone) and ``read_range(name, begin, size)``, which returns exactly "
      "``size`` bytes. Blocks are verified, and each is asked for once.")
      .def(py::init<>());
}

}  // namespace hyper_parallel::bindings
