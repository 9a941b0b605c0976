// SPDX-License-Identifier: Apache-2.0
#include "plan/log_reader.hpp"

#include "plan/log_line.hpp"

namespace mla::capacity {

LogNumber& LogLine::add(LogKind kind, const ScannedNumber& found, double unit) const {
  constexpr std::size_t kWidth = 160;
  LogNumber one;
  one.kind = kind;
  one.value = found.value;
  one.half_digit = found.half_digit;
  one.unit = unit;
  one.rank = rank_of(text);
  one.line = number;
  one.text = std::string(text.substr(0, kWidth));
  reading.numbers.push_back(std::move(one));
  return reading.numbers.back();
}

bool LogLine::bytes(LogKind kind, std::string_view key) const {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  const std::optional<ScannedNumber> found = number_after(text, key);
  if (!found) return false;
  const double unit = unit_of(found->rest);
  add(kind, *found, unit > 0 ? unit : kGiB);
  return true;
}

bool LogLine::count(LogKind kind, std::string_view key) const {
  const std::optional<ScannedNumber> found = number_after(text, key);
  if (!found) return false;
  add(kind, *found, 1);
  return true;
}

void LogLine::engine(const char* name) const {
  if (reading.engine.empty()) reading.engine = name;
}

std::string_view name_of(LogKind kind) noexcept {
  switch (kind) {
    case LogKind::kBudget:
      return "memory for the cache";
    case LogKind::kDeficit:
      return "memory missing before any cache";
    case LogKind::kTokens:
      return "tokens";
    case LogKind::kConcurrency:
      return "concurrency";
    case LogKind::kNeed:
      return "memory one sequence needs";
    case LogKind::kEstimate:
      return "estimated maximum length";
    case LogKind::kBlocks:
      return "blocks";
    case LogKind::kWeights:
      return "weights";
    case LogKind::kCacheBytes:
      return "cache";
    case LogKind::kKeyBytes:
      return "K";
    case LogKind::kValueBytes:
      return "V";
    case LogKind::kTokenBytes:
      return "bytes of a token";
    case LogKind::kStateBytes:
      return "states";
  }
  return "?";
}

namespace {

/// Notes a line that says what its number is, but has none that can be read there.
void note_unreadable(const LogLine& line) {
  constexpr std::string_view kKeys[] = {"GPU KV cache size:",
                                        "Available KV cache memory:",
                                        "tokens per request:",
                                        "# GPU blocks:",
                                        "# cuda blocks:",
                                        "# CUDA blocks:",
                                        "max_total_num_tokens=",
                                        "Model loading took",
                                        "#tokens:"};
  for (const std::string_view key : kKeys) {
    const std::optional<std::string_view> rest = after(line.text, key);
    if (!rest || rest->find_first_not_of(' ') == std::string_view::npos) continue;  // cut off
    if (number_after(line.text, key) || number_after(line.text, std::string(key) + " -")) continue;
    line.reading.unreadable.push_back(line.number);
    return;
  }
}

}  // namespace

LogReading read_log(std::string_view text) {
  constexpr std::size_t kMostNumbers = 400;  // a start-up of 64 ranks prints fewer
  LogReading reading;
  int number = 0;
  while (!text.empty() && reading.numbers.size() < kMostNumbers) {
    const std::size_t end = text.find('\n');
    const std::string plain = plain_line(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const LogLine line{plain, ++number, reading};
    read_log_settings(line);
    read_failure_line(line);
    read_vllm_line(line);
    read_sglang_line(line);
    read_tensorrt_line(line);
    read_llama_line(line);
    note_unreadable(line);
  }
  reading.cut = !text.empty();
  finish_llama_log(reading);
  return reading;
}

}  // namespace mla::capacity
