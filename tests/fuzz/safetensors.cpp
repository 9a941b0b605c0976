// SPDX-License-Identifier: Apache-2.0
#include "mla/safetensors.hpp"
#include "memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const mla::fuzz::MemoryFile input(data, size);
  return mla::fuzz::try_text(data, size, [&](std::string_view text) {
    const mla::SafetensorsFile file = mla::SafetensorsFile::open(input.path());
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : file.tensors()) {
      mla::fuzz::require(tensor.name == name && &file.at(name) == &tensor);
      mla::fuzz::require(tensor.bytes.size() ==
                         static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype));
      mla::fuzz::require(tensor.to_double().size() == static_cast<std::size_t>(tensor.numel()));
      bytes += tensor.bytes.size();
    }
    for (const auto& [name, tensor] : file.unread()) {
      mla::fuzz::require(tensor.bytes >= 0 && file.find(name) == nullptr);
      bytes += static_cast<std::size_t>(tensor.bytes);
    }
    // Prefix, header and tensors are the whole file.
    mla::fuzz::require(bytes + 8 <= text.size());
  });
}
