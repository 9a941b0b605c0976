// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/safetensors.hpp"
#include "model/mapped_file.hpp"
#include "model/safetensors_header.hpp"

namespace mla {
namespace {

constexpr std::size_t kPrefixBytes = 8;

// The length of the header, a little-endian number in front of it.
std::uint64_t header_bytes(std::span<const std::byte> file, const std::string& origin) {
  if (file.size() < kPrefixBytes) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: {} bytes are too few for a safetensors file, which begins with 8 "
                            "bytes of length",
                            origin, file.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kPrefixBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(file[i]);
  if (length > file.size() - kPrefixBytes) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: the header is said to be {} bytes long, but only {} follow", origin, length,
                            file.size() - kPrefixBytes));
  }
  if (length > kMaxHeaderBytes) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: the header is said to be {} bytes long, more than the {} the format "
                            "allows",
                            origin, length, kMaxHeaderBytes));
  }
  return length;
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path), origin(path.string()) {
    const std::uint64_t length = header_bytes(file.bytes(), origin);
    const auto header_span = file.bytes().subspan(kPrefixBytes, length);
    const auto data = file.bytes().subspan(kPrefixBytes + length);
    const std::string_view json_text(reinterpret_cast<const char*>(header_span.data()), header_span.size());
    SafetensorsHeader header =
        parse_safetensors_header(json_text, static_cast<std::int64_t>(data.size()), origin);
    metadata = std::move(header.metadata);
    for (HeaderEntry& entry : header.entries) {
      if (!entry.dtype) {
        unread.emplace(std::move(entry.name), UnreadTensor{.stored_dtype = std::move(entry.stored_dtype),
                                                           .shape = std::move(entry.shape),
                                                           .bytes = entry.end - entry.begin});
        continue;
      }
      SafeTensor tensor;
      tensor.name = entry.name;
      tensor.dtype = *entry.dtype;
      tensor.stored_dtype = std::move(entry.stored_dtype);
      tensor.shape = std::move(entry.shape);
      tensor.bytes = data.subspan(static_cast<std::size_t>(entry.begin),
                                  static_cast<std::size_t>(entry.end - entry.begin));
      tensors.emplace(std::move(entry.name), std::move(tensor));
    }
  }

  MappedFile file;
  std::string origin;
  std::map<std::string, SafeTensor, std::less<>> tensors;
  std::map<std::string, UnreadTensor, std::less<>> unread;
  std::map<std::string, std::string> metadata;
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  return SafetensorsFile(std::make_unique<Impl>(path));
}

const std::map<std::string, SafeTensor, std::less<>>& SafetensorsFile::tensors() const noexcept {
  return impl_->tensors;
}
const std::map<std::string, UnreadTensor, std::less<>>& SafetensorsFile::unread() const noexcept {
  return impl_->unread;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const noexcept {
  return impl_->metadata;
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  return found == impl_->tensors.end() ? nullptr : &found->second;
}

const SafeTensor& SafetensorsFile::at(std::string_view name) const {
  if (const SafeTensor* tensor = find(name)) return *tensor;
  if (const auto other = impl_->unread.find(name); other != impl_->unread.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: tensor {} is stored as {}, which is not read here", impl_->origin,
                            text::quoted(name), other->second.stored_dtype));
  }
  std::vector<std::string> names;
  for (const auto& [known, tensor] : impl_->tensors) names.push_back(known);
  const std::string near = text::nearest(name, names);
  throw Error(
      ErrorCode::kInvalidArgument, fmt::format("{} has no tensor {}", impl_->origin, text::quoted(name)),
      near.empty() ? fmt::format("it holds {}", names.size()) : fmt::format("did you mean '{}'?", near));
}

std::vector<double> SafeTensor::to_double() const {
  const std::int64_t count = numel();
  std::vector<double> values(static_cast<std::size_t>(count));
  // Elements need not be aligned for their type in the file: the header's length moves them.
  std::byte element[8] = {};
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(element, bytes.data() + i * size, size);
    values[i] = load_element(element, dtype, 0);
  }
  return values;
}

}  // namespace mla
