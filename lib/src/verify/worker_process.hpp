// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace mla::verify {

/// Path of the running program.
[[nodiscard]] std::string own_program();

/// A program that answers lines with lines, in a process group of its own (an interrupt from the terminal is
/// for us alone), killed with this object.
class WorkerProcess {
 public:
  /// Throws kIo if it cannot be started.
  explicit WorkerProcess(const std::vector<std::string>& command);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  /// False if the program is gone.
  [[nodiscard]] bool write_line(std::string_view line);
  enum class Read { kLine, kEnded, kSilent };
  /// One line without its end, or why there is none: the program ended, or said nothing for `timeout`
  /// seconds.
  [[nodiscard]] Read read_line(std::string& line, double timeout);
  /// How it ended, e.g. "it died of signal 11 (Segmentation fault)", with its last words on stderr.
  [[nodiscard]] std::string how_it_ended();

 private:
  [[nodiscard]] bool take_line(std::string& line);

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  // our ends of its streams
  std::string buffer_, errors_;
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace mla::verify
