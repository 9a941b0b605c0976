// SPDX-License-Identifier: Apache-2.0
#include "model/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw Error(ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", what, text::quoted(path.string()), std::strerror(errno)));
}

struct OpenFile {
  int descriptor;
  ~OpenFile() { ::close(descriptor); }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe that nobody writes to must not hold the program.
  const OpenFile file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.descriptor < 0) fail(path, "open");
  struct stat status {};
  if (::fstat(file.descriptor, &status) != 0) fail(path, "look at");
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo,
                fmt::format("{} is not a regular file, so it cannot be mapped", text::quoted(path.string())));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // nothing to map; an empty span says it
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
  if (address == MAP_FAILED) fail(path, "map");
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace mla
