#pragma once

// Base64 with padding (RFC 4648 section 4).

#include <optional>
#include <string>
#include <string_view>

namespace hyper_parallel {

/// Example: base64_encode("any") == "YW55".
std::string base64_encode(std::string_view bytes);

/// The bytes, or nothing for text that `base64_encode` makes of no bytes: other letters, missing padding, bits that are
/// set behind the last byte.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace hyper_parallel
