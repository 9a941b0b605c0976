// SPDX-License-Identifier: Apache-2.0
#include "run/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "mla/error.hpp"

namespace mla::run {
namespace {

std::int64_t size_of_file(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_size : 0;
}

/// Bytes up to and including the last line end.
std::int64_t whole_lines(int fd, std::int64_t size) {
  while (size > 0) {
    char c = 0;
    if (pread(fd, &c, 1, size - 1) != 1 || c == '\n') break;
    --size;
  }
  return size;
}

}  // namespace

RecordStore::RecordStore(std::filesystem::path file, bool resume) : path_(std::move(file)) {
  if (!resume) {
    std::error_code status;
    if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), status);
    if (status) {
      throw Error(ErrorCode::kIo, fmt::format("cannot make the folder '{}': {}", path_.parent_path().string(),
                                              status.message()));
    }
  }
  fd_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | (resume ? 0 : O_CREAT | O_EXCL), 0644);
  if (fd_ < 0 && errno == EEXIST) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' exists, and a run never overwrites", path_.string()),
                "--resume continues it; or choose another --out");
  }
  if (fd_ < 0 && resume && errno == ENOENT) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no '{}' to resume", path_.string()));
  }
  if (fd_ < 0) fail("open");
  if (resume && ftruncate(fd_, whole_lines(fd_, size_of_file(fd_))) != 0) fail("shorten");
}

RecordStore::~RecordStore() {
  if (fd_ >= 0) close(fd_);
}

void RecordStore::fail(std::string_view what) const {
  throw Error(
      ErrorCode::kIo, fmt::format("cannot {} '{}': {}", what, path_.string(), std::strerror(errno)),
      what == "write" ? "what was measured before it is kept; with room for more, --resume goes on" : "");
}

void RecordStore::append(std::string_view line) {
  const std::int64_t before = size_of_file(fd_);
  while (!line.empty()) {
    const ssize_t written = write(fd_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      // Half a line would be worse than none. If even that fails, readers leave out a last line without its
      // end.
      [[maybe_unused]] const int shortened = ftruncate(fd_, before);
      errno = reason;
      fail("write");
    }
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::filesystem::path unused_folder(const std::filesystem::path& dir) {
  std::filesystem::path candidate = dir;
  for (int i = 2; std::filesystem::exists(candidate); ++i) candidate = fmt::format("{}-{}", dir.string(), i);
  return candidate;
}

}  // namespace mla::run
