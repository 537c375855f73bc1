#pragma once

// The id of a save, and the names of the files that carry it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hyper_parallel {

/// 16 lower-case hex digits, random.
std::string new_save_id();

/// The name under which a save writes `.metadata` before it is renamed: ".metadata.tmp-0123456789abcdef".
std::string temporary_metadata_name(std::string_view save_id);

/// The id in the name of a file that only a save can have written: a data file or a temporary metadata file. Nothing
/// for every other name. Example: save_id_of("data-0123456789abcdef-00003.safetensors") == "0123456789abcdef".
std::optional<std::string> save_id_of(std::string_view file_name);

}  // namespace hyper_parallel
