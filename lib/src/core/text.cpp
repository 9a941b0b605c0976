// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace mla::text {
namespace {

/// Insertions, deletions, substitutions and swaps of neighbours (the commonest typo) count one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);  // two rows above
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substitute, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

/// Bytes of the UTF-8 character that `text` begins with; 0 for control characters and for bytes that are no
/// UTF-8.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead < 0x20 || lead == 0x7F ? 0 : 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  std::uint32_t code = lead & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0xA0, 0x800, 0x10000};  // U+0080..U+009F are controls
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return lead < 0xC0 || code < kSmallest[length] || surrogate || code > 0x10FFFF ? 0 : length;
}

/// The candidates that `word` begins, else those that fewest edits lead to: all of them, since a digit is often all that
/// tells names apart.
std::vector<std::string> near_words(std::string_view word, std::span<const std::string> candidates) {
  // A candidate differs by at most this many edits, so a longer word can be refused before it costs anything.
  constexpr std::size_t kLongest = 256;
  constexpr std::size_t kShortestBeginning = 3;
  if (word.empty() || word.size() > kLongest) return {};
  const std::string lower = to_lower(word);
  std::vector<std::string> found;
  const auto add = [&](const std::string& candidate) {
    if (std::ranges::find(found, candidate) == found.end()) found.push_back(candidate);
  };
  for (const std::string& candidate : candidates) {
    if (lower.size() >= kShortestBeginning && to_lower(candidate).starts_with(lower)) add(candidate);
  }
  if (!found.empty()) return found;
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(lower, to_lower(candidate));
    if (distance > best || (distance == best && found.empty())) continue;
    if (distance < best) found.clear();
    best = distance;
    add(candidate);
  }
  return found;
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::vector<std::string> near = near_words(word, candidates);
  return near.empty() ? std::string() : near.front();
}

std::string join_or(std::span<const std::string> words) {
  if (words.empty()) return {};
  if (words.size() == 1) return words.front();
  return fmt::format("{} or {}", fmt::join(words.first(words.size() - 1), ", "), words.back());
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  if (candidates.empty()) return {};
  constexpr std::size_t kMost = 4;
  std::vector<std::string> near = near_words(word, candidates);
  if (!near.empty()) {
    near.resize(std::min(near.size(), kMost));
    for (std::string& one : near) one = fmt::format("'{}'", one);
    return fmt::format("did you mean {}?", join_or(near));
  }
  return fmt::format("one of: {}", fmt::join(candidates, ", "));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string out = "'";
  std::size_t at = 0;
  while (at < std::min(text.size(), kLongest)) {
    const std::size_t length = printable_length(text.substr(at));
    if (length > 0) {
      out += text.substr(at, length);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    }
    at += std::max<std::size_t>(1, length);
  }
  return out + (at < text.size() ? "...'" : "'");
}

std::string with_thousands(std::int64_t value) {
  const std::string plain = fmt::format("{}", value);
  const std::size_t first = value < 0 ? 1 : 0;
  std::string grouped = plain.substr(0, first);
  for (std::size_t i = first; i < plain.size(); ++i) {
    if (i > first && (plain.size() - i) % 3 == 0) grouped += ',';
    grouped += plain[i];
  }
  return grouped;
}

}  // namespace mla::text
