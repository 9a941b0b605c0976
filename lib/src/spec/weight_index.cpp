// SPDX-License-Identifier: Apache-2.0
#include "spec/weight_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/safetensors.hpp"
#include "model/json_value.hpp"
#include "spec/text_file.hpp"

namespace mla::spec {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void wrong(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kParse, fmt::format("{}: {}", path, what),
              "an index is {\"metadata\": {\"total_size\": BYTES}, \"weight_map\": {\"tensor\": "
              "\"shard.safetensors\"}}");
}

std::int64_t total_of(const json::Value& root, const std::string& path) {
  const json::Value* metadata = root.find("metadata");
  const json::Value* size = metadata != nullptr ? metadata->find("total_size") : nullptr;
  if (size == nullptr) wrong(path, "'metadata.total_size' is not there");
  // Some writers print the number as 1.3e11.
  std::int64_t bytes = -1;
  if (const auto* whole = size->get_if<std::int64_t>()) bytes = *whole;
  if (const auto* real = size->get_if<json::Real>();
      real != nullptr && real->value >= 0 && real->value < 0x1p62) {
    bytes = static_cast<std::int64_t>(real->value);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  if (bytes < 1 || bytes > kMost) {
    wrong(path, fmt::format("'metadata.total_size' is {}, not a number of bytes from 1 to 2^50",
                            json::describe(*size)));
  }
  return bytes;
}

/// Shard -> its tensors.
std::map<std::string, std::vector<std::string>> shards_of(const json::Value& root, const std::string& path) {
  const json::Value* map = root.find("weight_map");
  const auto* object = map != nullptr ? map->get_if<json::Object>() : nullptr;
  if (object == nullptr) {
    wrong(path, map == nullptr ? std::string("'weight_map' is not there")
                               : fmt::format("'weight_map' is {}, not an object", json::describe(*map)));
  }
  if (object->empty()) wrong(path, "'weight_map' names no tensor");
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, value] : *object) {
    const auto* shard = value.get_if<std::string>();
    if (shard == nullptr || shard->empty() || shard->find('/') != std::string::npos) {
      wrong(path, fmt::format("tensor {} lies in {}, not in a file of the same folder", text::quoted(tensor),
                              json::describe(value)));
    }
    shards[*shard].push_back(tensor);
  }
  return shards;
}

void add_file(capacity::Checkpoint& checkpoint, const SafetensorsFile& file) {
  for (const auto& [name, tensor] : file.tensors()) {
    const auto bytes = static_cast<std::int64_t>(tensor.bytes.size());
    checkpoint.tensors.push_back({name, bytes});
    checkpoint.total += bytes;
  }
  for (const auto& [name, tensor] : file.unread()) {
    checkpoint.tensors.push_back({name, tensor.bytes});
    checkpoint.total += tensor.bytes;
  }
}

}  // namespace

capacity::Checkpoint parse_weight_index(std::string_view text, const std::string& path) {
  const json::Value root = json::parse(text, path);
  const std::int64_t total = total_of(root, path);
  const auto shards = shards_of(root, path);
  capacity::Checkpoint checkpoint;
  checkpoint.source = path;
  const fs::path folder = fs::path(path).parent_path();
  std::error_code ignored;
  checkpoint.sizes_known = std::ranges::all_of(
      shards, [&](const auto& shard) { return fs::is_regular_file(folder / shard.first, ignored); });
  if (!checkpoint.sizes_known) {
    checkpoint.total = total;
    for (const auto& [shard, names] : shards) {
      for (const std::string& name : names) checkpoint.tensors.push_back({name, -1});
    }
    return checkpoint;
  }
  for (const auto& [shard, names] : shards) {
    const SafetensorsFile file = SafetensorsFile::open(folder / shard);
    for (const std::string& name : names) {
      if (file.find(name) == nullptr && !file.unread().contains(name)) {
        wrong(path, fmt::format("tensor {} is not in {}", text::quoted(name), text::quoted(shard)));
      }
    }
    add_file(checkpoint, file);
  }
  return checkpoint;
}

capacity::Checkpoint read_checkpoint(const std::string& path) {
  if (!path.ends_with(".safetensors")) return parse_weight_index(read_text_file(path), path);
  capacity::Checkpoint checkpoint;
  checkpoint.source = path;
  checkpoint.sizes_known = true;
  add_file(checkpoint, SafetensorsFile::open(path));
  return checkpoint;
}

}  // namespace mla::spec
