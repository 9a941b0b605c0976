// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "report/render.hpp"

namespace mla::report {
namespace {

constexpr std::size_t kGap = 2;            // blanks between columns
constexpr std::size_t kNarrowestText = 8;  // a text column is never cut below this
constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";

/// Status words keep their meaning without colour; colour only helps the eye.
std::string_view color_of(std::string_view word) noexcept {
  constexpr std::array<std::string_view, 5> kGood{"PASS", "FASTER", "SAME", "fits", "yes"};
  constexpr std::array<std::string_view, 4> kBad{"FAIL", "SLOWER", "does not fit", "error"};
  constexpr std::array<std::string_view, 3> kUnsure{"AMBIGUOUS", "SKIP", "no"};
  if (std::ranges::find(kGood, word) != kGood.end()) return "\x1b[32m";
  if (std::ranges::find(kBad, word) != kBad.end()) return "\x1b[31m";
  if (std::ranges::find(kUnsure, word) != kUnsure.end()) return "\x1b[33m";
  return {};
}

std::string bold(std::string_view text, bool color) {
  return color ? fmt::format("{}{}{}", kBold, text, kReset) : std::string(text);
}

/// Characters of colour codes.
std::size_t escapes(std::string_view line) {
  std::size_t count = 0;
  for (std::size_t at = line.find('\x1b'); at != std::string_view::npos; at = line.find('\x1b', at + 1))
    count += line.find('m', at) - at + 1;
  return count;
}

/// One column ready to print.
struct Strip {
  std::string head;
  std::vector<std::string> cells;
  bool right = false;
  std::size_t width = 0;
  bool whole = false;
};

Strip make_strip(const Table& table, std::size_t c) {
  Strip strip{table.columns[c].title, {}, false, display_width(table.columns[c].title)};
  bool numbers = false;
  bool texts = false;
  for (const auto& row : table.rows) {
    strip.cells.push_back(show(row[c], table.columns[c]));
    strip.width = std::max(strip.width, display_width(strip.cells.back()));
    numbers = numbers || is_number(row[c]);
    texts = texts || std::holds_alternative<std::string>(row[c]);
  }
  strip.right = numbers && !texts;
  strip.whole = strip.right || table.columns[c].whole;
  return strip;
}

/// Takes columns from the widest text strip until the line fits; numbers and names are never cut, so it may stay
/// too wide.
void shrink(std::vector<Strip>& strips, std::size_t width) {
  if (strips.empty()) return;
  const auto total = [&] {
    return std::accumulate(strips.begin(), strips.end(), kGap * (strips.size() - 1),
                           [](std::size_t sum, const Strip& s) { return sum + s.width; });
  };
  while (total() > width) {
    Strip* widest = nullptr;
    for (Strip& strip : strips) {
      if (!strip.whole && strip.width > kNarrowestText &&
          (widest == nullptr || strip.width > widest->width)) {
        widest = &strip;
      }
    }
    if (widest == nullptr) return;
    const std::size_t excess = total() - width;
    widest->width -= std::min(excess, widest->width - kNarrowestText);
  }
}

std::string pad(std::string_view text, const Strip& strip, bool last, bool color) {
  const std::string cut = truncate_to(text, strip.width);
  const std::size_t missing = strip.width - display_width(cut);
  const std::string_view paint = color ? color_of(cut) : std::string_view{};
  const std::string painted = paint.empty() ? cut : fmt::format("{}{}{}", paint, cut, kReset);
  if (strip.right) return std::string(missing, ' ') + painted;
  return last ? painted : painted + std::string(missing, ' ');
}

void append_table(std::string& out, const Table& table, const RenderOptions& options) {
  if (!table.title.empty()) out += bold(table.title, options.color) + '\n';
  if (table.rows.empty()) {
    out += "(no rows)\n";
    return;
  }
  const Folded folded = fold(table, options.fold_constant_columns);
  if (const std::string line = folded_line(table, folded); !line.empty()) out += line + '\n';
  std::vector<Strip> strips;
  for (const std::size_t c : folded.kept) strips.push_back(make_strip(table, c));
  if (options.width > 0) shrink(strips, static_cast<std::size_t>(options.width));

  const std::string gap(kGap, ' ');
  std::string head;
  for (std::size_t s = 0; s < strips.size(); ++s) {
    head += (s == 0 ? "" : gap) + pad(strips[s].head, strips[s], s + 1 == strips.size(), false);
  }
  out += bold(head, options.color) + '\n';
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    for (std::size_t s = 0; s < strips.size(); ++s) {
      out += (s == 0 ? "" : gap) + pad(strips[s].cells[r], strips[s], s + 1 == strips.size(), options.color);
    }
    out += '\n';
  }
}

/// Lines of a screen that the text takes, long ones wrapped.
std::size_t screen_lines(std::string_view text, const RenderOptions& options) {
  std::size_t lines = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    const std::size_t width = display_width(line) - (options.color ? escapes(line) : 0);
    lines += options.width == 0 || width == 0 ? 1 : (width - 1) / static_cast<std::size_t>(options.width) + 1;
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::string render_text(const Document& document, const RenderOptions& options) {
  std::string out;
  const auto blank = [&] {
    if (!out.empty()) out += '\n';
  };
  for (const std::string& line : document.headline) out += bold(line, options.color) + '\n';
  if (!document.facts.empty()) {
    blank();
    std::size_t widest = 0;
    for (const auto& [key, value] : document.facts) widest = std::max(widest, display_width(key));
    for (const auto& [key, value] : document.facts) {
      out += key + std::string(widest - display_width(key) + kGap, ' ') + show(value) + '\n';
    }
  }
  for (const Table& table : document.tables) {
    blank();
    append_table(out, table, options);
  }
  if (!document.notes.empty()) blank();
  for (const std::string& note : document.notes) out += note + '\n';
  const auto height = static_cast<std::size_t>(options.height);
  if (height > 0 && !document.headline.empty() && screen_lines(out, options) >= height) {
    blank();
    for (const std::string& line : document.headline) out += bold(line, options.color) + '\n';
  }
  return out.empty() ? "\n" : out;
}

}  // namespace mla::report
