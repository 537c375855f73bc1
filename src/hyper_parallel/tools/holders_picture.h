#pragma once

// Who holds what of a tensor, drawn with characters:
//
//   w  F32 (6, 4): 2 chunks in 2 files
//     row-major │ AAAAAAAABBBBBBBBBBBBBBBB
//           0:2 │ AAAA
//           2:6 │ BBBB
//     A   8 cells  33%  data-0123456789abcdef-00000.safetensors
//     B  16 cells  67%  data-0123456789abcdef-00001.safetensors
//
// The bar is the tensor in row-major order, at most 64 columns wide, each as many cells as the next (±1). Below it, for
// tensors of two dims, a map of rows by columns. A column shows the file that holds at least half of its cells, '+' if
// none does; a map of nothing else is left out.

#include <string>
#include <vector>

#include "hyper_parallel/checkpoint/checkpoint_metadata.h"

namespace hyper_parallel {

/// The picture, lines with their ends. Names are escaped as `printable` does.
std::string holders_picture(const StoredTensor& tensor, const std::vector<StoredFile>& files);

}  // namespace hyper_parallel
