// SPDX-License-Identifier: Apache-2.0
// Allocations that failed.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "plan/log_line.hpp"

namespace mla::capacity {
namespace {

/// Bytes behind the first of the keys that a number with a unit follows.
double bytes_behind(std::string_view text, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const std::optional<ScannedNumber> found = number_after(text, key);
    if (found && unit_of(found->rest) > 0) return found->value * unit_of(found->rest);
  }
  return 0;
}

/// The number with a unit before `words`: "312.00 MiB free", "23.58 GiB total capacity".
double bytes_before(std::string_view text, std::string_view words) {
  const std::size_t end = text.find(words);
  if (end == std::string_view::npos) return 0;
  const std::string_view before = text.substr(0, end);
  const std::size_t begin = before.find_last_of(";(");
  const std::optional<ScannedNumber> found =
      leading_number(begin == std::string_view::npos ? before : before.substr(begin + 1));
  return found ? found->value * unit_of(found->rest) : 0;
}

}  // namespace

void read_failure_line(const LogLine& line) {
  constexpr std::size_t kMost = 64;
  constexpr std::array kSigns{"out of memory. Tried to allocate", "cudaMalloc failed: out of memory",
                              "ErrorOutOfDeviceMemory"};
  constexpr std::array kShareSigns{"Not enough memory. Please try to increase",
                                   "No available memory for the cache blocks",
                                   "leave no GPU memory for the KV cache"};
  const auto said = [&](const char* sign) { return line.has(sign); };
  const bool share = std::ranges::any_of(kShareSigns, said);
  if ((!share && std::ranges::none_of(kSigns, said)) || line.reading.failures.size() == kMost) return;
  const std::string_view t = line.text;
  LogFailure failure{.wanted = bytes_behind(t, {"Tried to allocate", "allocating "}),
                     .total = bytes_behind(t, {"total capacity of", "total capacty of"}),
                     .rank = rank_of(t),
                     .line = line.number,
                     .share = share};
  if (failure.total == 0) failure.total = bytes_before(t, " total capacity");
  failure.free = bytes_behind(t, {"of which "});
  if (failure.free == 0) failure.free = bytes_before(t, " free");
  line.reading.failures.push_back(failure);
  if (line.has("ggml_")) line.engine("llama.cpp");
  if (line.has("--mem-fraction-static")) line.engine("sglang");
  if (line.has("for the cache blocks")) line.engine("vllm");
}

}  // namespace mla::capacity
