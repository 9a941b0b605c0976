// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Scanning single log lines. No regular expressions: std::regex recurses once a character and dies on long
/// lines.
namespace mla::capacity {

/// Without ANSI escapes, carriage returns and other control bytes.
[[nodiscard]] std::string plain_line(std::string_view line);

/// What follows `key` in the line, or nothing.
[[nodiscard]] std::optional<std::string_view> after(std::string_view line, std::string_view key);

struct ScannedNumber {
  double value = 0;
  double half_digit = 0;
  std::string_view rest;  ///< behind the number
};
/// The number at the beginning (blanks, '=', ':' and '(' skipped): "46.80", "715,072", "  = 10980.00".
[[nodiscard]] std::optional<ScannedNumber> leading_number(std::string_view text);

/// The number that follows `key`.
[[nodiscard]] std::optional<ScannedNumber> number_after(std::string_view line, std::string_view key);

/// A whole number behind "key=" or "key': " and the like.
[[nodiscard]] std::optional<std::int64_t> setting_number(std::string_view line, std::string_view key);
/// A word behind it, quotes removed.
[[nodiscard]] std::optional<std::string> setting_word(std::string_view line, std::string_view key);

/// Bytes of the unit at the beginning: GiB and (as vLLM and SGLang mean it) GB 2^30, MiB and MB 2^20; 0:
/// none.
[[nodiscard]] double unit_of(std::string_view text);

/// The rank a line names: "TP0", "PP1", "DP3 TP0", "Worker_TP3", "rank=2", "[3]".
[[nodiscard]] std::string rank_of(std::string_view line);

}  // namespace mla::capacity
