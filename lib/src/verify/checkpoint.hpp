// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mla/safetensors.hpp"

namespace mla::verify {

/// The weights of a Hugging Face checkpoint: one safetensors file, or shards behind an index. A shard is
/// opened when a tensor of it is first read.
class Checkpoint {
 public:
  /// `path`: model.safetensors, model.safetensors.index.json, or a folder that holds one of them. Throws kIo
  /// / kParse naming file and key.
  explicit Checkpoint(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Names of all tensors, ascending.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] bool has(std::string_view name) const;
  /// Throws kInvalidArgument for an unknown name; kIo / kParse for a shard that is absent, broken, or lacks
  /// the tensor that the index says it holds.
  [[nodiscard]] const SafeTensor& at(std::string_view name) const;
  /// Files opened so far.
  [[nodiscard]] std::size_t files_read() const noexcept { return open_.size(); }

 private:
  void read_index(const std::filesystem::path& index);
  const SafetensorsFile& shard(const std::string& file) const;

  std::filesystem::path path_, folder_;
  std::map<std::string, std::string, std::less<>> file_of_;  ///< tensor to file name in folder_
  std::vector<std::string> names_;
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>> open_;
};

}  // namespace mla::verify
