// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "mla/export.h"
#include "mla/shape.hpp"

namespace mla {

/// Backends chosen by measurement instead of by rank: times of one device at some shapes, written by
/// `mla-bench tune`. A shape belongs to the region of the measured one nearest to it.
class MLA_EXPORT Selector {
 public:
  /// One measured shape, its backends fastest first.
  struct Point {
    AttentionShape shape;
    std::vector<std::pair<std::string, double>> times_us;
  };
  Selector() = default;
  Selector(std::string device, std::vector<Point> points);

  [[nodiscard]] const std::string& device() const noexcept { return device_; }
  [[nodiscard]] const std::vector<Point>& points() const noexcept { return points_; }
  /// The measured shape nearest to `shape`, or null: of the same phase, query space, kind of mask, cache
  /// format and query
  /// type; then the least sum of |log2 ratios| of heads, requests, new tokens, longest sequence and visible keys.
  [[nodiscard]] const Point* nearest(const AttentionShape& shape) const;

 private:
  std::string device_;
  std::vector<Point> points_;
};

/// Reads what `mla-bench tune` writes: {"schema_version": 1, "device", "points": [{"shape", "us": {backend:
/// time}}]}; other keys are left alone. Throws kParse naming origin and key.
[[nodiscard]] MLA_EXPORT Selector parse_selector(std::string_view json_text, std::string_view origin);
/// Throws kIo, too.
[[nodiscard]] MLA_EXPORT Selector load_selector(const std::filesystem::path& file);
/// The table for a device among <config dir>/selectors/*.json, read once; empty if there is none for it. A
/// table is a real device's if it names it as the driver does, a described one's if the files have the same
/// name.
[[nodiscard]] MLA_EXPORT const Selector& selector_for(const Device& device);

/// The fastest backend at the nearest measured shape that supports this one; where nothing measured applies,
/// as choose_backend without a table. choose_backend(shape, device) is this with selector_for(device).
[[nodiscard]] MLA_EXPORT const Backend& choose_backend(const AttentionShape& shape, const Device& device,
                                                       const Selector& selector);

}  // namespace mla
