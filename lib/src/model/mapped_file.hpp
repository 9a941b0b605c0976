// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace mla {

/// A whole file mapped read-only. The file must not shrink while it is mapped: the system then ends the
/// program, as for every mapped file.
class MappedFile {
 public:
  /// Throws kIo naming the path: absent, a folder, not mappable.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace mla
