// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "fuzz.hpp"
#include "mla/safetensors.hpp"

namespace {

// A file in memory, so that thousands of inputs never touch a disk.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    mla::fuzz::require(descriptor_ >= 0);
    for (std::size_t done = 0; done < size;) {
      const ssize_t wrote = ::write(descriptor_, data + done, size - done);
      mla::fuzz::require(wrote > 0);
      done += static_cast<std::size_t>(wrote);
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile input(data, size);
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
    // Prefix, header and tensors are the whole file.
    mla::fuzz::require(bytes + 8 <= text.size());
  });
}
