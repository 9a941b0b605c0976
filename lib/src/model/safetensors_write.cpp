// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/safetensors.hpp"
#include "model/json_value.hpp"
#include "model/safetensors_header.hpp"

namespace mla {
namespace {

namespace fs = std::filesystem;

// Removes the half-written file unless it became the real one.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target)
      : path_(target.string() + fmt::format(".{}.tmp", ::getpid())) {}
  ~TemporaryFile() {
    std::error_code ignored;
    if (!kept_) fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const fs::path& path() const noexcept { return path_; }
  void rename_to(const fs::path& target) {
    std::error_code failure;
    fs::rename(path_, target, failure);
    if (failure) {
      throw Error(ErrorCode::kIo, fmt::format("cannot rename {} to {}: {}", text::quoted(path_.string()),
                                              text::quoted(target.string()), failure.message()));
    }
    kept_ = true;
  }

 private:
  fs::path path_;
  bool kept_ = false;
};

void check(const TensorToWrite& tensor, std::set<std::string_view>& names) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("tensor {} {}", text::quoted(tensor.name), what));
  };
  if (tensor.name == "__metadata__") refuse("has the name the format keeps for metadata");
  if (!names.insert(tensor.name).second) refuse("is given twice");
  auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      refuse(fmt::format("has a shape [{}] that no tensor has", fmt::join(tensor.shape, ", ")));
    }
  }
  if (static_cast<std::size_t>(bytes) != tensor.bytes.size()) {
    refuse(fmt::format("of {} [{}] needs {} bytes, but {} were given", name_of(tensor.dtype),
                       fmt::join(tensor.shape, ", "), bytes, tensor.bytes.size()));
  }
}

std::string header_text(std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      header += json::quote(key) + ":" + json::quote(value);
    }
    header += '}';
  }
  std::size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (header.back() != '{') header += ',';
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          json::quote(tensor.name), stored_name(tensor.dtype), fmt::join(tensor.shape, ","),
                          offset, offset + tensor.bytes.size());
    offset += tensor.bytes.size();
  }
  header += '}';
  // Spaces bring the data to a multiple of 8 bytes, so that mapped elements are aligned.
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

}  // namespace

void write_safetensors(const fs::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> names;
  std::size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    check(tensor, names);
    if (offset % size_of(tensor.dtype) != 0 && !tensor.bytes.empty()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("tensor {} would begin at byte {}, which is no multiple of the {} bytes of {}",
                      text::quoted(tensor.name), offset, size_of(tensor.dtype), name_of(tensor.dtype)),
          "write tensors of wider types first");
    }
    offset += tensor.bytes.size();
  }
  const std::string header = header_text(tensors, metadata);
  char prefix[8];
  for (std::size_t i = 0; i < sizeof prefix; ++i)
    prefix[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);

  TemporaryFile temporary(path);
  std::ofstream out(temporary.path(), std::ios::binary | std::ios::trunc);
  out.write(prefix, sizeof prefix);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const TensorToWrite& tensor : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.bytes.data()),
              static_cast<std::streamsize>(tensor.bytes.size()));
  }
  out.close();
  if (!out) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot write {}: {}", text::quoted(path.string()), std::strerror(errno)));
  }
  temporary.rename_to(path);
}

}  // namespace mla
