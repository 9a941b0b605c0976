// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "plan/log_reader.hpp"
#include "plan/log_scan.hpp"

/// One line being read, and the readers of each engine's lines.
namespace mla::capacity {

struct LogLine {
  std::string_view text;
  int number = 0;
  LogReading& reading;

  LogNumber& add(LogKind kind, const ScannedNumber& found, double unit) const;
  /// A number of bytes behind `key`, in the unit that follows it (GiB if none does); false without one.
  bool bytes(LogKind kind, std::string_view key) const;
  /// A whole number behind `key`.
  bool count(LogKind kind, std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const { return text.find(key) != std::string_view::npos; }
  /// The engine the line gives away, unless another line did before.
  void engine(const char* name) const;
};

/// Keeps the first plausible value of a setting.
void keep(int& slot, std::optional<std::int64_t> value);
void keep(std::int64_t& slot, std::optional<std::int64_t> value);
/// A number that was found, as a small setting.
[[nodiscard]] int small(const ScannedNumber& number);

/// Version, layout, lengths, model and cache dtype, wherever engines print them.
void read_log_settings(const LogLine& line);
/// "out of memory", as PyTorch, llama.cpp and SGLang say it.
void read_failure_line(const LogLine& line);
void read_vllm_line(const LogLine& line);
void read_sglang_line(const LogLine& line);
void read_tensorrt_line(const LogLine& line);
/// llama.cpp, ik_llama.cpp and what wraps them.
void read_llama_line(const LogLine& line);
/// A cache that only its buffers on each device tell of becomes one number.
void finish_llama_log(LogReading& reading);

}  // namespace mla::capacity
