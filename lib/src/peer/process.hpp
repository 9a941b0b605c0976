// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace mla::peer {

/// A program that is spoken to in lines over its stdin and stdout; what it says on stderr is kept for
/// messages. It runs in a process group of its own, and the whole group ends with this object.
class Process {
 public:
  /// Throws kIo if it cannot be started.
  explicit Process(std::vector<std::string> command);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  /// Closes its stdin and waits a second for it to leave, then kills it.
  ~Process();

  /// Throws kIo if the program is gone or does not read for `timeout` seconds.
  void write_line(std::string_view line, double timeout);
  /// One line without its end. Throws kIo with what happened instead: no answer within `timeout` seconds (the
  /// program is killed), a line longer than kMaxLine, or the program's end with its exit code or signal and
  /// its last words.
  [[nodiscard]] std::string read_line(double timeout);

  static constexpr std::size_t kMaxLine = std::size_t{64} << 20;

 private:
  void drain_errors();
  /// False when the stream has ended.
  [[nodiscard]] bool fill();
  void kill_group();
  [[noreturn]] void fail_ended();
  [[noreturn]] void fail_silent(double timeout);
  /// The last line of stderr, or empty.
  [[nodiscard]] std::string last_words() const;

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  ///< its stdin, stdout, stderr: our ends
  std::string buffer_, errors_;
  bool reaped_ = false, errors_ended_ = false;
};

}  // namespace mla::peer
