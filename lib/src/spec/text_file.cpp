// SPDX-License-Identifier: Apache-2.0
#include "spec/text_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

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
  std::string content{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) throw Error(ErrorCode::kIo, fmt::format("{} cannot be read", text::quoted(path)));
  return content;
}

}  // namespace mla::spec
