// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "core/text.hpp"
#include "report/render.hpp"

namespace mla::report {
namespace {

/// Decodes one UTF-8 sequence at `at` and moves past it; a malformed byte counts as one character of its own.
char32_t next_code_point(std::string_view text, std::size_t& at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at++);
  const int extra = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
  char32_t code = extra == 0 ? first : first & (0x3FU >> extra);
  for (int i = 0; i < extra; ++i) {
    if (at >= text.size() || (byte(at) & 0xC0U) != 0x80U) return 0xFFFD;
    code = (code << 6U) | (byte(at++) & 0x3FU);
  }
  return code;
}

struct Range {
  char32_t first, last;
};
// Unicode 15, the blocks that occur in practice: combining marks and joiners; wide scripts, signs and emoji.
constexpr std::array<Range, 6> kZeroWidth{{{0x0300, 0x036F},
                                           {0x0483, 0x0489},
                                           {0x200B, 0x200F},
                                           {0x20D0, 0x20F0},
                                           {0xFE00, 0xFE0F},
                                           {0xFE20, 0xFE2F}}};
constexpr std::array<Range, 9> kWide{{{0x1100, 0x115F},
                                      {0x2E80, 0x303E},
                                      {0x3041, 0xA4CF},
                                      {0xAC00, 0xD7A3},
                                      {0xF900, 0xFAFF},
                                      {0xFE30, 0xFE6F},
                                      {0xFF00, 0xFF60},
                                      {0x1F300, 0x1F9FF},
                                      {0x20000, 0x3FFFD}}};

template <std::size_t N>
bool within(char32_t code, const std::array<Range, N>& ranges) noexcept {
  for (const Range& range : ranges) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

std::size_t width_of(char32_t code) noexcept {
  if (within(code, kZeroWidth)) return 0;
  return within(code, kWide) ? 2 : 1;
}

std::string scaled(double bytes, double step, const std::array<const char*, 6>& units) {
  if (!std::isfinite(bytes)) return fmt::format("{} B", bytes);
  std::size_t unit = 0;
  double value = bytes;
  // 999.5 would print as "1000": the next unit starts where three digits end.
  while (std::abs(value) >= step * 0.9995 && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  const double size = std::abs(value);
  const int digits = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, digits, units[unit]);
}

}  // namespace

std::size_t display_width(std::string_view text) noexcept {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) width += width_of(next_code_point(text, at));
  return width;
}

std::string truncate_to(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::size_t used = 0;
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t step = width_of(next_code_point(text, at));
    if (used + step > width - 1) break;
    used += step;
    end = at;
  }
  return std::string(text.substr(0, end)) + "\u2026";
}

std::string with_thousands(std::int64_t value) {
  return text::with_thousands(value);
}

std::string human_gib(double bytes) {
  return scaled(bytes, 1024.0, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"});
}
std::string human_gb(double bytes) {
  return scaled(bytes, 1000.0, {"B", "kB", "MB", "GB", "TB", "PB"});
}

bool is_number(const Cell& cell) noexcept {
  return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell);
}

std::string show(const Cell& cell, const Column& column) {
  if (const auto* integer = std::get_if<std::int64_t>(&cell); integer != nullptr && column.thousands) {
    return with_thousands(*integer);
  }
  if (const auto* real = std::get_if<double>(&cell); real != nullptr && std::isfinite(*real)) {
    return column.scientific ? fmt::format("{:.{}e}", *real, column.precision)
                             : fmt::format("{:.{}f}", *real, column.precision);
  }
  return show(cell);
}

std::string show(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&cell)) return fmt::format("{:.6g}", *real);
  if (const auto* truth = std::get_if<bool>(&cell)) return *truth ? "yes" : "no";
  return "-";
}

std::string show_exact(const Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return {};
  if (const auto* real = std::get_if<double>(&cell)) return fmt::format("{}", *real);
  if (const auto* truth = std::get_if<bool>(&cell)) return *truth ? "true" : "false";
  return show(cell);
}

}  // namespace mla::report
