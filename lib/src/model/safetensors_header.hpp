// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/dtype.hpp"

namespace mla {

/// One entry of a safetensors header. Offsets count from the end of the header.
struct HeaderEntry {
  std::string name;
  std::string stored_dtype;
  std::optional<DType> dtype;  ///< none: a type of the format that nothing here computes with
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// The format's own limit on the header's length.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// Reads and checks the JSON of a header in front of `data_bytes` bytes of tensors: every entry well-formed,
/// and the entries together cover the bytes without overlap or gap. Throws kParse naming `origin`, tensor and
/// value.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view json_text, std::int64_t data_bytes,
                                                         std::string_view origin);

/// As written in files: "BF16", "F8_E4M3". Throws kInvalidArgument for types the format has no name for.
[[nodiscard]] std::string_view stored_name(DType dtype);

}  // namespace mla
