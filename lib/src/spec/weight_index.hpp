// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "plan/checkpoint.hpp"

namespace mla::spec {

/// `path`: a model.safetensors.index.json, or one .safetensors file. With an index, the headers of its shards give the size of
/// each tensor if all of them lie beside it; else the total of the index counts. Throws kIo or kParse naming file, key and value:
/// malformed JSON, no weight_map, a total that is no size, a shard outside the folder, tensors that are not in their shard,
/// malformed shards.
[[nodiscard]] capacity::Checkpoint read_checkpoint(const std::string& path);

/// The text of an index that lies at `path`.
[[nodiscard]] capacity::Checkpoint parse_weight_index(std::string_view text, const std::string& path);

}  // namespace mla::spec
