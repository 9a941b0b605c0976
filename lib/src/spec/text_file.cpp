// SPDX-License-Identifier: Apache-2.0
#include "spec/text_file.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::spec {

std::string read_text_file(const std::string& path) {
  std::error_code code;
  const std::filesystem::file_status status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    throw Error(ErrorCode::kIo, fmt::format("there is no file {}", text::quoted(path)));
  }
  if (std::filesystem::is_directory(status)) {
    throw Error(ErrorCode::kIo, fmt::format("{} is a folder, not a file", text::quoted(path)));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, fmt::format("{} cannot be opened", text::quoted(path)));
  // In pieces up to the limit: the size of a pipe or of a device is not known beforehand.
  std::string content;
  std::array<char, 65536> piece{};
  while (in.read(piece.data(), piece.size()) || in.gcount() > 0) {
    content.append(piece.data(), static_cast<std::size_t>(in.gcount()));
    if (content.size() > kMaxTextBytes) {
      throw Error(ErrorCode::kIo,
                  fmt::format("{} is larger than {} MiB", text::quoted(path), kMaxTextBytes >> 20));
    }
  }
  if (in.bad()) throw Error(ErrorCode::kIo, fmt::format("{} cannot be read", text::quoted(path)));
  return content;
}

}  // namespace mla::spec
