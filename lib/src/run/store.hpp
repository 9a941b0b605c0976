// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace mla::run {

/// A file of JSON Lines that only ever grows: each line is written whole or not at all, and nothing is
/// overwritten. Killing the program loses at most the line being written.
class RecordStore {
 public:
  /// Makes the file and its folder; `resume`: the file must exist, and a last line that a crash cut off is
  /// taken away. Throws kInvalidArgument if the file exists (or, to resume, does not), kIo if it cannot be
  /// opened.
  RecordStore(std::filesystem::path file, bool resume);
  RecordStore(const RecordStore&) = delete;
  RecordStore& operator=(const RecordStore&) = delete;
  ~RecordStore();
  /// `line` ends with '\n'. Throws kIo with the system's reason (a full disk, ...); the file is then as
  /// before.
  void append(std::string_view line);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail(std::string_view what) const;
  std::filesystem::path path_;
  int fd_ = -1;
};

/// `dir`, or dir-2, dir-3, ... : the first that does not exist.
[[nodiscard]] std::filesystem::path unused_folder(const std::filesystem::path& dir);

}  // namespace mla::run
