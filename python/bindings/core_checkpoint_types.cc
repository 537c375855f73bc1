#include "core_checkpoint_types.h"

#include <pybind11/stl.h>

#include <utility>

#include "core_conversions.h"
#include "core_value.h"
#include "hyper_parallel/base/error.h"
#include "hyper_parallel/base/hash.h"
#include "hyper_parallel/checkpoint/metadata_codec.h"

namespace hyper_parallel::bindings {
namespace {

namespace py = pybind11;

py::tuple dims_tuple(const Dims& dims) { return integers_to_python({dims.data(), dims.size()}); }

Dims difference(const Dims& a, const Dims& b) {
  Dims result = a;
  for (size_t d = 0; d < result.size(); ++d) result[d] -= b[d];
  return result;
}

std::string index_text(const MetadataIndex& index) {
  const std::string offset = index.offset ? tuple_text(*index.offset) : "None";
  return str_cat("MetadataIndex(fqn='", index.fqn, "', offset=", offset, ")");
}

MetadataIndex index_of(std::string name, const Box& box) { return {std::move(name), box.offsets.to_vector()}; }

/// Where a chunk's bytes lie.
struct StorageInfo {
  std::string relative_path;
  int64_t offset = 0;
  int64_t length = 0;
  std::optional<std::string> tensor_key;
  std::vector<uint32_t> checksums;
  friend bool operator==(const StorageInfo&, const StorageInfo&) = default;
};

/// A tensor's dtype, size and chunks.
struct TensorStorageMetadata {
  std::string dtype;
  std::vector<int64_t> size;
  std::vector<Box> chunks;
  friend bool operator==(const TensorStorageMetadata&, const TensorStorageMetadata&) = default;
};

TensorStorageMetadata tensor_storage(const StoredTensor& tensor) {
  TensorStorageMetadata made{std::string(to_string(tensor.dtype())), tensor.shape().to_vector(), {}};
  for (int64_t i = 0; i < tensor.chunk_count(); ++i) made.chunks.push_back(tensor.chunk_box(i));
  return made;
}

py::dict state_dict_metadata(const CheckpointMetadata& metadata) {
  py::dict tensors;
  for (const StoredTensor& tensor : metadata.tensors()) tensors[py::str(tensor.name())] = tensor_storage(tensor);
  return tensors;
}

py::dict storage_data(const CheckpointMetadata& metadata) {
  py::dict places;
  for (const StoredTensor& tensor : metadata.tensors()) {
    for (int64_t i = 0; i < tensor.chunk_count(); ++i) {
      const StoredChunk chunk = tensor.chunk(i);
      const auto key = chunk.key == tensor.name() ? std::nullopt : std::optional(std::string(chunk.key));
      places[py::cast(index_of(tensor.name(), chunk.box))] =
          StorageInfo{metadata.files()[static_cast<size_t>(chunk.file)].name,
                      chunk.begin,
                      chunk.bytes,
                      key,
                      {chunk.checksums.begin(), chunk.checksums.end()}};
    }
  }
  return places;
}

std::span<const std::byte> bytes_view(const py::bytes& text) {
  const std::string_view view = text;
  return std::as_bytes(std::span(view));
}

Box box_from_python(const IntSequence& offsets, const IntSequence& sizes) {
  Box box{Dims(integers_from_python(offsets, "offsets")), Dims(integers_from_python(sizes, "sizes"))};
  HP_CHECK(box.offsets.size() == box.sizes.size(), kInvalidArgument, "offsets ", tuple_text(box.offsets), " and sizes ",
           tuple_text(box.sizes), " must have as many entries");
  for (size_t d = 0; d < box.ndim(); ++d) {
    HP_CHECK(box.offsets[d] >= 0 && box.sizes[d] >= 0, kInvalidArgument, "offsets ", tuple_text(box.offsets),
             " and sizes ", tuple_text(box.sizes), " must not be negative");
  }
  return box;
}

void bind_boxes(py::module_& core) {
  py::class_<Box>(core, "ChunkStorageMetadata",
                  "A box of a tensor's cells, ``offsets[d] <= x[d] < offsets[d] + sizes[d]``.")
      .def(py::init(&box_from_python), py::arg("offsets"), py::arg("sizes"),
           "Args:\n    offsets: Its first cell.\n    sizes: Cells in each dim.\n\nRaises:\n    InvalidArgumentError: "
           "Unlike many entries, or a negative one.")
      .def_property_readonly(
          "offsets", [](const Box& self) { return dims_tuple(self.offsets); }, "Its first cell.")
      .def_property_readonly(
          "sizes", [](const Box& self) { return dims_tuple(self.sizes); }, "Cells in each dim.")
      .def(
          "__eq__", [](const Box& self, const Box& other) { return self == other; }, py::is_operator())
      .def("__hash__",
           [](const Box& self) {
             size_t seed = 0;
             hash_combine_range(seed, self.offsets.to_vector());
             hash_combine_range(seed, self.sizes.to_vector());
             return seed;
           })
      .def("__repr__", [](const Box& self) {
        return str_cat("ChunkStorageMetadata(offsets=", tuple_text(self.offsets), ", sizes=", tuple_text(self.sizes),
                       ")");
      });
  py::class_<MetadataIndex>(core, "MetadataIndex", "Names an entry, or the box of a tensor that begins at ``offset``.")
      .def(py::init([](const TextArgument& fqn, const py::object& offset) {
             MetadataIndex made{text_from_python(fqn, "fqn"), std::nullopt};
             if (!offset.is_none()) made.offset = integers_from_python(offset, "offset");
             return made;
           }),
           py::arg("fqn"), py::arg("offset") = py::none(),
           "Args:\n    fqn: The entry's logical name.\n    offset: The box's first cell, None for the whole entry.")
      .def_readonly("fqn", &MetadataIndex::fqn, "The entry's logical name.")
      .def_property_readonly(
          "offset",
          [](const MetadataIndex& self) -> py::object {
            if (!self.offset) return py::none();
            return integers_to_python(*self.offset);
          },
          "The box's first cell, None for the whole entry.")
      .def(
          "__eq__", [](const MetadataIndex& self, const MetadataIndex& other) { return self == other; },
          py::is_operator())
      .def("__hash__",
           [](const MetadataIndex& self) {
             size_t seed = 0;
             hash_combine(seed, self.fqn);
             if (self.offset) hash_combine_range(seed, *self.offset);
             return seed;
           })
      .def("__repr__", &index_text);
}

void bind_storage_data(py::module_& core) {
  py::class_<StorageInfo>(core, "StorageInfo", "Where a chunk's bytes lie.")
      .def_readonly("relative_path", &StorageInfo::relative_path, "The data file, inside the checkpoint's directory.")
      .def_readonly("offset", &StorageInfo::offset, "The first byte in the file.")
      .def_readonly("length", &StorageInfo::length, "How many bytes.")
      .def_readonly("tensor_key", &StorageInfo::tensor_key,
                    "The chunk's name in the file, None where that is the logical name.")
      .def_readonly("checksums", &StorageInfo::checksums, "CRC32C of each 1 MiB block of the chunk.")
      .def(
          "__eq__", [](const StorageInfo& self, const StorageInfo& other) { return self == other; }, py::is_operator());
  py::class_<TensorStorageMetadata>(core, "TensorStorageMetadata", "A stored tensor.")
      .def_readonly("dtype", &TensorStorageMetadata::dtype, "Its dtype as the safetensors format names it, 'BF16'.")
      .def_property_readonly(
          "size", [](const TensorStorageMetadata& self) { return integers_to_python(self.size); }, "Its logical shape.")
      .def_readonly("chunks", &TensorStorageMetadata::chunks, "Its chunks: disjoint, and filling the shape.")
      .def(
          "__eq__", [](const TensorStorageMetadata& self, const TensorStorageMetadata& other) { return self == other; },
          py::is_operator());
  py::class_<CheckpointMetadata>(core, "CheckpointMetadata", "What a checkpoint holds and where.")
      .def_static(
          "parse",
          [](const py::bytes& text, const std::string& source) { return parse_metadata(bytes_view(text), source); },
          py::arg("text"), py::arg("source") = ".metadata",
          "Args:\n    text: The content of the file ``.metadata``.\n    source: Starts the messages of errors.\n\n"
          "Raises:\n    CheckpointError: The text is not exactly of the format.")
      .def(
          "to_bytes", [](const CheckpointMetadata& self) { return py::bytes(write_metadata(self)); },
          "The content of the file ``.metadata``.")
      .def_property_readonly("save_id", &CheckpointMetadata::save_id, "16 hex digits that name the save.")
      .def_property_readonly(
          "files",
          [](const CheckpointMetadata& self) {
            py::dict files;
            for (const StoredFile& file : self.files()) files[py::str(file.name)] = file.bytes;
            return files;
          },
          "The data files and their sizes in bytes.")
      .def_property_readonly("state_dict_metadata", &state_dict_metadata, "The tensors by logical name.")
      .def_property_readonly("storage_data", &storage_data, "Where each chunk lies, by ``MetadataIndex``.")
      .def_property_readonly(
          "values", [](const CheckpointMetadata& self) { return named_values_to_python(self.values()); },
          "The values by name.")
      .def_property_readonly(
          "structure",
          [](const CheckpointMetadata& self) { return value_to_python(self.structure(), "the structure"); },
          "How the names nest: dicts, lists and tuples whose leaves are names; None for a flat dict.");
}

std::vector<WriteItemObject> items_of(const SavePlan& plan) {
  std::vector<WriteItemObject> items;
  for (const PlannedTensor& tensor : plan.tensors) {
    for (const Box& box : tensor.boxes) items.push_back({{tensor.name, tensor.dtype, tensor.shape, {box}}});
  }
  return items;
}

void bind_save_plan(py::module_& core) {
  py::class_<WriteItemObject>(core, "WriteItem", "One box to write.")
      .def_property_readonly(
          "index", [](const WriteItemObject& self) { return index_of(self.tensor.name, self.tensor.boxes[0]); },
          "The tensor's name and the box's first cell.")
      .def_property_readonly(
          "chunk", [](const WriteItemObject& self) { return self.tensor.boxes[0]; }, "The box.")
      .def_property_readonly(
          "dtype", [](const WriteItemObject& self) { return std::string(to_string(self.tensor.dtype)); },
          "The dtype as the safetensors format names it.")
      .def_property_readonly(
          "size", [](const WriteItemObject& self) { return dims_tuple(self.tensor.shape); },
          "The tensor's logical shape.")
      .def_property_readonly(
          "length", [](const WriteItemObject& self) { return self.item().bytes(); }, "Bytes of the box.")
      .def("__repr__", [](const WriteItemObject& self) {
        return str_cat("WriteItem(", index_text(index_of(self.tensor.name, self.tensor.boxes[0])),
                       ", sizes=", tuple_text(self.tensor.boxes[0].sizes), ", dtype='", self.tensor.dtype, "')");
      });
  py::class_<PlannedTensor>(core, "PlannedTensor", "A tensor and the boxes of it that a rank holds or writes.")
      .def(py::init([](const TextArgument& name, const TextArgument& dtype, const IntSequence& size,
                       const std::vector<Box>& chunks) {
             return PlannedTensor{text_from_python(name, "name"), parse_dtype(text_from_python(dtype, "dtype")),
                                  Dims(shape_from_python(size, "size")), chunks};
           }),
           py::arg("name"), py::arg("dtype"), py::arg("size"), py::arg("chunks"),
           "Args:\n    name: Its logical name.\n    dtype: As the safetensors format names it, 'F32'.\n    size: Its "
           "logical shape.\n    chunks: Boxes, in the order of the rank's storage.")
      .def_readonly("name", &PlannedTensor::name, "Its logical name.")
      .def_property_readonly(
          "dtype", [](const PlannedTensor& self) { return std::string(to_string(self.dtype)); },
          "The dtype as the safetensors format names it.")
      .def_property_readonly(
          "size", [](const PlannedTensor& self) { return dims_tuple(self.shape); }, "Its logical shape.")
      .def_readonly("chunks", &PlannedTensor::boxes, "The boxes.");
  py::class_<SavePlan>(core, "SavePlan", "What a rank offers to save, or is told to save.")
      .def(py::init([](std::vector<PlannedTensor> tensors, const py::object& values, const py::object& structure) {
             SavePlan plan{std::move(tensors), {}, value_from_python(structure, "structure")};
             if (!values.is_none()) plan.values = named_values_from_python(values, "values");
             return plan;
           }),
           py::arg("tensors"), py::arg("values") = py::none(), py::arg("structure") = py::none(),
           "Args:\n    tensors: Tensors with this rank's boxes; one without boxes says that it exists.\n    values: "
           "What is not a tensor, by name.\n    structure: How the names nest, None for a flat dict.")
      .def_readonly("tensors", &SavePlan::tensors, "Tensors with this rank's boxes.")
      .def_property_readonly("items", &items_of, "Every box as a ``WriteItem``.")
      .def_property_readonly(
          "values", [](const SavePlan& self) { return named_values_to_python(self.values); },
          "What is not a tensor, by name.")
      .def_property_readonly(
          "structure", [](const SavePlan& self) { return value_to_python(self.structure, "the structure"); },
          "How the names nest.");
  py::class_<GlobalSavePlan>(core, "GlobalSavePlan", "Every rank's share of a save.")
      .def_readwrite("assigned", &GlobalSavePlan::assigned, "A ``SavePlan`` for each rank.")
      .def_property_readonly(
          "values", [](const GlobalSavePlan& self) { return named_values_to_python(self.values); },
          "The values of the whole checkpoint.")
      .def_property_readonly(
          "structure", [](const GlobalSavePlan& self) { return value_to_python(self.structure, "the structure"); },
          "How the names nest.");
}

void bind_load_plan(py::module_& core) {
  py::class_<ReadItemObject>(core, "ReadItem", "One overlap of a stored chunk and a box that a rank wants.")
      .def_property_readonly(
          "dest_index",
          [](const ReadItemObject& self) {
            return index_of(self.target.name, self.target.boxes[static_cast<size_t>(self.item.box)]);
          },
          "The wanted box.")
      .def_property_readonly(
          "dest_offsets",
          [](const ReadItemObject& self) {
            const Box& box = self.target.boxes[static_cast<size_t>(self.item.box)];
            return dims_tuple(difference(self.item.overlap.offsets, box.offsets));
          },
          "Where the overlap begins in the wanted box.")
      .def_property_readonly(
          "storage_index", [](const ReadItemObject& self) { return index_of(self.target.name, self.chunk); },
          "The stored chunk.")
      .def_property_readonly(
          "storage_offsets",
          [](const ReadItemObject& self) {
            return dims_tuple(difference(self.item.overlap.offsets, self.chunk.offsets));
          },
          "Where the overlap begins in the chunk.")
      .def_property_readonly(
          "lengths", [](const ReadItemObject& self) { return dims_tuple(self.item.overlap.sizes); },
          "Cells of the overlap in each dim.")
      .def_property_readonly(
          "dtype", [](const ReadItemObject& self) { return std::string(to_string(self.stored_dtype)); },
          "The stored dtype as the safetensors format names it.");
  py::class_<LoadPlanObject>(core, "LoadPlan", "Which cells of which chunks go where, for one rank.")
      .def_property_readonly(
          "items",
          [](const LoadPlanObject& self) {
            std::vector<ReadItemObject> items;
            for (const ReadItem& item : self.plan.items)
              items.push_back(read_item_object(*self.metadata, self.plan, item));
            return items;
          },
          "Every overlap, in the order in which bytes lie in the files.");
}

}  // namespace

ReadItemObject read_item_object(const CheckpointMetadata& metadata, const LoadPlan& plan, const ReadItem& item) {
  const StoredTensor& tensor = metadata.tensors()[static_cast<size_t>(item.tensor)];
  return {item, plan.targets[static_cast<size_t>(item.target)], tensor.dtype(), tensor.chunk_box(item.chunk)};
}

void bind_checkpoint_types(py::module_& core) {
  bind_boxes(core);
  bind_storage_data(core);
  bind_save_plan(core);
  bind_load_plan(core);
}

}  // namespace hyper_parallel::bindings
