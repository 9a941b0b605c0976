// SPDX-License-Identifier: Apache-2.0
#include "common/require.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mla/error.hpp"

namespace mla::kernels {
namespace {

std::string list_of(std::initializer_list<std::int64_t> extents) {
  std::string text;
  for (const std::int64_t e : extents)
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        e == kAnyExtent ? std::string("..") : std::to_string(e));
  return text;
}

std::string shape_of(const ConstTensorRef& tensor) {
  std::string text;
  for (int i = 0; i < tensor.rank; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", tensor.extent[static_cast<std::size_t>(i)]);
  return text;
}

}  // namespace

void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

void require_tensor(const ConstTensorRef& tensor, const char* name,
                    std::initializer_list<std::int64_t> extents, std::initializer_list<DType> types) {
  if (!tensor) refuse(fmt::format("{} is missing", name));
  bool fits = tensor.rank == static_cast<int>(extents.size());
  std::size_t i = 0;
  for (const std::int64_t e : extents) {
    fits = fits && (e == kAnyExtent || tensor.extent[i] == e);
    ++i;
  }
  if (!fits) refuse(fmt::format("{} is [{}], but must be [{}]", name, shape_of(tensor), list_of(extents)));
  const std::size_t inner = extents.size() - 1;
  if (tensor.stride[inner] != 1 && tensor.extent[inner] > 1)
    refuse(fmt::format("{} has a stride of {} in its last dimension, but must have 1", name,
                       tensor.stride[inner]));
  if (types.size() > 0 && std::find(types.begin(), types.end(), tensor.dtype) == types.end()) {
    std::string allowed;
    for (const DType type : types)
      allowed += fmt::format("{}{}", allowed.empty() ? "" : " or ", name_of(type));
    refuse(fmt::format("{} is {}, but must be {}", name, name_of(tensor.dtype), allowed));
  }
}

void require_size(bool present, std::int64_t extent, const char* name, std::int64_t size) {
  if (!present) refuse(fmt::format("{} is missing", name));
  if (extent < size) refuse(fmt::format("{} has {} entries, but must have at least {}", name, extent, size));
}

bool aligned(const void* data, std::initializer_list<std::int64_t> strides_bytes, std::int64_t bytes) {
  auto bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data));
  for (const std::int64_t stride : strides_bytes) bits |= static_cast<std::uint64_t>(stride);
  return bits % static_cast<std::uint64_t>(bytes) == 0;
}

}  // namespace mla::kernels
