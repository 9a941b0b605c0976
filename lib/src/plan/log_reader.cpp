// SPDX-License-Identifier: Apache-2.0
#include "plan/log_reader.hpp"

#include <algorithm>

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

/// What says that a number follows, in lines that hold `sign`.
struct NumberKey {
  std::string_view sign, key;
  bool bytes = false;  ///< and a unit behind it
};
constexpr NumberKey kNumberKeys[] = {
    {"", "GPU KV cache size:"},
    {"", "Available KV cache memory:", true},
    {"", "the rest of the memory reserved for KV Cache is", true},
    {"", "tokens per request:"},
    {"", "GPU blocks:"},
    {"", "# cuda blocks:"},
    {"", "# CUDA blocks:"},
    {"", "Model loading took", true},
    {"", "Loading model weights took", true},
    {"", "max_total_num_tokens="},
    {"KV Cache is allocated", "#tokens:"},
    {"KV Cache is allocated", "KV size:", true},
    {"KV Cache is allocated", " K size:", true},
    {"KV Cache is allocated", " V size:", true},
    {"Mamba Cache is allocated", "max_mamba_cache_size:"},
    {"Mamba Cache is allocated", "conv_state size:", true},
    {"Mamba Cache is allocated", "ssm_state size:", true},
    {"Load weight end", "mem usage=", true},
    {"", "for max tokens in paged KV cache ("},
    {"max tokens in paged kv cache:", "available:", true},
    {"", "blocks in KV cache primary pool:"},
    {"", "primary blocks="},
    {"llama_kv_cache", "KV buffer size =", true},
    {"llama_kv_cache", ": size =", true},
    {"", "KV self size =", true},
    {"", "KV self size  =", true},
};

/// What stands behind "K (f16):" and its like, in llama.cpp's lines: nothing, where the line has it not.
std::optional<std::string_view> behind_format(std::string_view text, std::string_view key) {
  const std::optional<std::string_view> rest = after(text, key);
  const std::size_t close = rest ? rest->find("):") : std::string_view::npos;
  if (close == std::string_view::npos) return std::nullopt;
  return rest->substr(close + 2);
}

/// Something stands there that is no number (of bytes); a line that ends there was cut off.
bool is_no_number(std::string_view rest, bool bytes) {
  const std::size_t begin = rest.find_first_not_of(" =");
  if (begin == std::string_view::npos) return false;
  rest = rest.substr(begin);
  if (rest.starts_with('-')) rest.remove_prefix(1);
  const std::optional<ScannedNumber> number = leading_number(rest);
  if (!number) return true;
  const bool cut = number->rest.find_first_not_of(" .GM") == std::string_view::npos;
  return bytes && !cut && unit_of(number->rest) == 0;
}

/// Notes a line that says what its number is, but has none that can be read there.
void note_unreadable(const LogLine& line) {
  bool unreadable = false;
  for (const NumberKey& one : kNumberKeys) {
    if (!one.sign.empty() && !line.has(one.sign)) continue;
    const std::optional<std::string_view> rest = after(line.text, one.key);
    unreadable = unreadable || (rest && is_no_number(*rest, one.bytes));
  }
  if (line.has("llama_kv_cache") || line.has("KV self size")) {
    for (const std::string_view key : {" K (", " V (", " c^KV (", " kv^T ("}) {
      const std::optional<std::string_view> rest = behind_format(line.text, key);
      unreadable = unreadable || (rest && is_no_number(*rest, true));
    }
  }
  std::vector<int>& lines = line.reading.unreadable;
  if (unreadable && (lines.empty() || lines.back() != line.number)) lines.push_back(line.number);
}

/// "2025-10-09" of "[2025-10-09 03:15:02 DP3 TP3]", "01/16/2026" of "[01/16/2026-06:12:02]".
bool starts_with_date(std::string_view text) {
  if (text.size() < 10) return false;
  return (text.starts_with("20") && text[4] == '-' && text[7] == '-') ||
         (text[2] == '/' && text[5] == '/' && text.substr(6, 2) == "20");
}

/// "INFO 02-06 05:12:40 ", as vLLM's lines begin.
bool starts_with_level(std::string_view text) {
  for (const std::string_view level : {"INFO ", "WARNING "}) {
    if (!text.starts_with(level)) continue;
    const std::string_view date = text.substr(level.size());
    return date.size() > 5 && date[2] == '-' && date[5] == ' ';
  }
  return false;
}

/// Where a line of a rank begins inside another: logs lose their line ends on their way into forms and chats.
std::size_t next_line(std::string_view text) {
  constexpr std::string_view kBegins[] = {"(Worker",     "(EngineCore",       "(APIServer",
                                          "(VllmWorker", "(RayWorkerWrapper", "[TensorRT-LLM]"};
  for (std::size_t at = text.find_first_of("([ ", 1); at != std::string_view::npos;
       at = text.find_first_of("([ ", at + 1)) {
    const std::string_view rest = text.substr(at);
    // what follows a process's name is that process's line
    if (rest[0] == ' ' && text[at - 1] != ')' && starts_with_level(rest.substr(1))) return at + 1;
    if (rest[0] == '[' && starts_with_date(rest.substr(1))) return at;
    if (std::ranges::any_of(kBegins, [&](std::string_view begin) { return rest.starts_with(begin); }))
      return at;
  }
  return std::string_view::npos;
}

void read_line(std::string_view text, int number, LogReading& reading) {
  const LogLine line{text, number, reading};
  read_log_settings(line);
  read_failure_line(line);
  read_vllm_line(line);
  read_sglang_line(line);
  read_tensorrt_line(line);
  read_llama_line(line);
  note_unreadable(line);
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
    ++number;
    std::string_view rest = plain;
    for (std::size_t cut = 0; cut != std::string_view::npos && reading.numbers.size() < kMostNumbers;) {
      cut = next_line(rest);
      read_line(rest.substr(0, cut), number, reading);
      if (cut != std::string_view::npos) rest.remove_prefix(cut);
    }
  }
  reading.cut = !text.empty();
  finish_llama_log(reading);
  return reading;
}

}  // namespace mla::capacity
