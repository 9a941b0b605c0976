// SPDX-License-Identifier: Apache-2.0
#include "plan/log_scan.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kMiB = 1024.0 * 1024.0;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// Position of `key` where no longer name contains it, or npos.
std::size_t find_name(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
    const bool starts = at == 0 || !is_word(line[at - 1]);
    const std::size_t end = at + key.size();
    if (starts && (end == line.size() || !is_word(line[end]))) return at;
  }
  return std::string_view::npos;
}

std::string_view skip(std::string_view text, std::string_view characters) {
  const std::size_t at = text.find_first_not_of(characters);
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

/// Behind "key=", "key: ", "'key': ", "--key "; nothing if something else follows.
std::optional<std::string_view> setting(std::string_view line, std::string_view key) {
  const std::size_t at = find_name(line, key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(at + key.size());
  const std::string_view value = skip(rest, " '\"=:");
  if (value.size() == rest.size() || value.empty()) return std::nullopt;
  return value;
}

/// vLLM's short lengths: 128k is 128,000, 128K is 131,072.
std::optional<std::int64_t> with_suffix(std::int64_t number, std::string_view rest) {
  std::int64_t unit = 1;
  if (!rest.empty() && (rest.size() == 1 || !is_word(rest[1]))) {
    if (rest[0] == 'k') unit = 1'000;
    if (rest[0] == 'K') unit = 1'024;
    if (rest[0] == 'm') unit = 1'000'000;
    if (rest[0] == 'M') unit = 1'048'576;
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  if (number > kMost / unit) return std::nullopt;
  return number * unit;
}

}  // namespace

std::string plain_line(std::string_view line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      std::size_t end = i + 1;
      if (end < line.size() && line[end] == '[') {
        ++end;
        while (end < line.size() && (is_digit(line[end]) || line[end] == ';' || line[end] == '?')) ++end;
      }
      i = std::min(end, line.size() - 1);  // the letter that ends the sequence
      continue;
    }
    if (static_cast<unsigned char>(line[i]) >= 0x20 && line[i] != 0x7f) plain += line[i];
  }
  return plain;
}

std::optional<std::string_view> after(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + key.size());
}

std::optional<ScannedNumber> leading_number(std::string_view text) {
  text = skip(text, " =:(\t");
  std::string digits;
  std::size_t i = 0;
  std::size_t decimals = 0;
  bool point = false;
  for (; i < text.size() && digits.size() < 30; ++i) {
    const char c = text[i];
    if (is_digit(c)) {
      digits += c;
      decimals += point ? 1 : 0;
    } else if (c == ',' && !point && !digits.empty() && i + 3 < text.size() && is_digit(text[i + 1]) &&
               is_digit(text[i + 2]) && is_digit(text[i + 3])) {
      continue;  // thousands
    } else if (c == '.' && !point && !digits.empty() && i + 1 < text.size() && is_digit(text[i + 1])) {
      point = true;
      digits += c;
    } else {
      break;
    }
  }
  if (digits.empty()) return std::nullopt;
  ScannedNumber number;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number.value);
  constexpr double kMost = 1e15;  // beyond it nothing an engine logs makes sense
  if (error != std::errc{} || !(number.value < kMost)) return std::nullopt;
  number.half_digit = point ? 0.5 * std::pow(10.0, -static_cast<double>(decimals)) : 0;
  number.rest = text.substr(i);
  return number;
}

std::optional<ScannedNumber> number_after(std::string_view line, std::string_view key) {
  const std::optional<std::string_view> rest = after(line, key);
  return rest ? leading_number(*rest) : std::nullopt;
}

std::optional<std::int64_t> setting_number(std::string_view line, std::string_view key) {
  const std::optional<std::string_view> value = setting(line, key);
  if (!value) return std::nullopt;
  std::string digits;
  std::size_t end = 0;
  for (; end < value->size() && digits.size() < 20; ++end) {
    const char c = (*value)[end];
    const bool between =
        c == '_' && !digits.empty() && end + 1 < value->size() && is_digit((*value)[end + 1]);
    if (!is_digit(c) && !between) break;  // 30_000, as Python writes it
    if (is_digit(c)) digits += c;
  }
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return with_suffix(number, value->substr(end));
}

std::optional<std::string> setting_word(std::string_view line, std::string_view key) {
  const std::optional<std::string_view> value = setting(line, key);
  if (!value) return std::nullopt;
  const std::size_t end = value->find_first_of(" ,;'\")]}");
  std::string_view word = value->substr(0, end);
  while (!word.empty() && word.back() == '.') word.remove_suffix(1);
  if (word.empty() || word == "None" || word.size() > 200) return std::nullopt;
  return std::string(word);
}

double unit_of(std::string_view text) {
  text = skip(text, " ");
  if (text.starts_with("GiB") || text.starts_with("GB")) return kGiB;
  if (text.starts_with("MiB") || text.starts_with("MB")) return kMiB;
  return 0;
}

std::string rank_of(std::string_view line) {
  constexpr std::string_view kMarks[] = {"TP", "PP", "DP", "EP"};
  std::string rank;
  for (std::size_t i = 0; i + 2 < std::min<std::size_t>(line.size(), 160); ++i) {
    for (const std::string_view mark : kMarks) {
      const bool starts = i == 0 || !is_word(line[i - 1]) || line[i - 1] == '_';
      if (!starts || line.substr(i, 2) != mark || !is_digit(line[i + 2])) continue;
      std::size_t end = i + 2;
      while (end < line.size() && is_digit(line[end])) ++end;
      if (end < line.size() && is_word(line[end]) && line[end] != '_') continue;
      if (rank.find(mark) != std::string::npos) continue;  // two lines in one
      if (!rank.empty()) rank += ' ';
      rank += line.substr(i, end - i);
    }
  }
  if (!rank.empty()) return rank;
  if (const std::optional<ScannedNumber> number = number_after(line.substr(0, 160), "rank=")) {
    return "rank " + std::to_string(static_cast<std::int64_t>(number->value));
  }
  return rank;
}

}  // namespace mla::capacity
