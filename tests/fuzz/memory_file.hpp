// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz.hpp"

namespace mla::fuzz {

/// A file in memory, so that thousands of inputs never touch a disk.
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

}  // namespace mla::fuzz
