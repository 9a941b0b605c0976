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

  /// How an exchange with the program went. After anything but kDone it is of no further use.
  enum class Outcome {
    kDone,
    kEnded,    ///< the program is gone, or has closed its stream: how_it_ended()
    kSilent,   ///< nothing within the time allowed: it was killed
    kEndless,  ///< a line longer than kMaxLine: it was killed
  };
  [[nodiscard]] Outcome try_write(std::string_view line, double timeout);
  /// One line without its end.
  [[nodiscard]] Outcome try_read(std::string& line, double timeout);
  /// "died of signal 11 (Segmentation fault): LAST WORDS", "ended with exit code 3", "closed its stdout".
  [[nodiscard]] std::string how_it_ended();

  /// The same for callers to whom anything but a line is an error: throw kIo with what happened instead.
  void write_line(std::string_view line, double timeout);
  [[nodiscard]] std::string read_line(double timeout);

  static constexpr std::size_t kMaxLine = std::size_t{64} << 20;

 private:
  void drain_errors();
  /// False when the stream has ended.
  [[nodiscard]] bool fill();
  void kill_group();
  Outcome give_up(Outcome why);
  void require(Outcome outcome, double timeout);
  /// The last line of stderr, or empty.
  [[nodiscard]] std::string last_words() const;

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;  ///< its stdin, stdout, stderr: our ends
  std::string buffer_, errors_;
  bool reaped_ = false, errors_ended_ = false;
  int status_ = 0;  ///< once reaped
};

}  // namespace mla::peer
