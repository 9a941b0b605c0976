// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/dtype.hpp"
#include "mla/export.h"

namespace mla {

/// One tensor of a file: a view into the mapped bytes.
struct SafeTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::string stored_dtype;  ///< as written: "BF16", "F8_E4M3", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  [[nodiscard]] std::int64_t numel() const noexcept {
    std::int64_t n = 1;
    for (const std::int64_t e : shape) n *= e;
    return n;
  }
  /// All elements as double.
  [[nodiscard]] MLA_EXPORT std::vector<double> to_double() const;
};

/// A tensor of a type that the format knows and nothing here computes with: "BOOL", "I8", "F4", "F8_E5M2", ...
struct UnreadTensor {
  std::string stored_dtype;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

/// A read-only, memory-mapped safetensors file. The whole header is validated before anything is returned:
/// length prefix within the file, JSON object, a dtype of the format, shape x size = offsets, no overlap, no gap,
/// nothing past the end; every malformed file is an Error naming file, tensor and value.
class MLA_EXPORT SafetensorsFile {
 public:
  [[nodiscard]] static SafetensorsFile open(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();
  [[nodiscard]] const std::map<std::string, SafeTensor, std::less<>>& tensors() const noexcept;
  /// Those that tensors() leaves out; at() and find() do not give them.
  [[nodiscard]] const std::map<std::string, UnreadTensor, std::less<>>& unread() const noexcept;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept;
  /// Throws kInvalidArgument, with a did-you-mean hint if there is none of that name.
  [[nodiscard]] const SafeTensor& at(std::string_view name) const;
  /// Null if absent.
  [[nodiscard]] const SafeTensor* find(std::string_view name) const;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Writes tensors (name order kept) atomically: to a temporary file in the same folder, then renamed.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};
MLA_EXPORT void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                  const std::map<std::string, std::string>& metadata = {});

}  // namespace mla
