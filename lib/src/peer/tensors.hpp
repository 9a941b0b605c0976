// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

#include "mla/backend.hpp"

/// The tensors of a call as files.
namespace mla::peer {

/// A folder of its own for the files of one peer, removed with the object.
class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();
  [[nodiscard]] std::filesystem::path file(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Largest pool that is written to a file.
inline constexpr std::int64_t kMaxPoolBytes = std::int64_t{1} << 32;

/// Writes the inputs packed, whatever their strides (host memory). Names, types and shapes as in
/// peers/PROTOCOL.md. Throws kUnsupported for a pool beyond kMaxPoolBytes: the file would hold its unused
/// part too.
void write_inputs(const std::filesystem::path& path, const AttentionShape& shape, const AttentionArgs& args);

/// Reads out and lse (if args.lse) into the arguments. Throws kParse naming the tensor where type or shape
/// are not those of the arguments, or a tensor is missing or too many.
void read_outputs(const std::filesystem::path& path, const AttentionArgs& args);

}  // namespace mla::peer
