// SPDX-License-Identifier: Apache-2.0
#include "model/read_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla {

std::string read_text_file(const std::filesystem::path& path) {
  const std::string shown = text::quoted(path.string());
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    throw Error(ErrorCode::kIo, fmt::format("there is no file {}", shown));
  }
  if (std::filesystem::is_directory(status)) {
    throw Error(ErrorCode::kIo, fmt::format("{} is a folder, not a file", shown));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, fmt::format("cannot open {}: {}", shown, std::strerror(errno)));
  // Read in pieces up to the limit: the size of a pipe or of /proc files is not known beforehand.
  std::string text;
  char piece[1 << 16];
  while (in.read(piece, sizeof piece) || in.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxConfigBytes) {
      throw Error(ErrorCode::kParse, fmt::format("{} is larger than {} MiB, which no configuration file is",
                                                 shown, kMaxConfigBytes >> 20));
    }
  }
  if (in.bad()) throw Error(ErrorCode::kIo, fmt::format("cannot read {}: {}", shown, std::strerror(errno)));
  return text;
}

}  // namespace mla
