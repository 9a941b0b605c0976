// SPDX-License-Identifier: Apache-2.0
#include "verify/pairwise.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "mla/random.hpp"

namespace mla::verify {
namespace {

class Builder {
 public:
  Builder(std::span<const int> levels, const std::function<bool(std::span<const int>)>& allowed,
          std::uint64_t seed)
      : levels_(levels.begin(), levels.end()), allowed_(allowed), rng_(seed, 60) {
    for (const int n : levels_) {
      offsets_.push_back(total_);
      total_ += static_cast<std::size_t>(n);
    }
    open_.assign(total_ * total_, false);
    for (std::size_t a = 0; a < levels_.size(); ++a) {
      for (std::size_t b = a + 1; b < levels_.size(); ++b) {
        for (int i = 0; i < levels_[a]; ++i) {
          for (int j = 0; j < levels_[b]; ++j) {
            open_[cell(a, i, b, j)] = true;
            order_.push_back({.axis_a = a, .axis_b = b, .level_a = i, .level_b = j});
          }
        }
      }
    }
  }

  PairwiseDesign build() {
    PairwiseDesign design;
    design.pairs = static_cast<std::int64_t>(order_.size());
    for (const LevelPair& pair : order_) {
      if (!open_[cell(pair.axis_a, pair.level_a, pair.axis_b, pair.level_b)]) continue;
      const std::optional<std::vector<int>> row = best_row_with(pair);
      if (!row) {  // no allowed row was found that holds this pair
        design.open.push_back(pair);
        continue;
      }
      design.covered += close(*row);
      design.rows.push_back(*row);
    }
    return design;
  }

 private:
  static constexpr int kCandidates = 24;
  static constexpr int kAttempts = 200;

  [[nodiscard]] std::size_t cell(std::size_t a, int i, std::size_t b, int j) const {
    return (offsets_[a] + static_cast<std::size_t>(i)) * total_ + offsets_[b] + static_cast<std::size_t>(j);
  }
  [[nodiscard]] bool is_open(std::size_t a, int i, std::size_t b, int j) const {
    return a < b ? open_[cell(a, i, b, j)] : open_[cell(b, j, a, i)];
  }
  int random(int n) { return static_cast<int>(rng_.between(counter_++, 0, n - 1)); }

  /// The allowed row with most uncovered pairs among some that hold `pair`.
  std::optional<std::vector<int>> best_row_with(const LevelPair& pair) {
    std::optional<std::vector<int>> best;
    int best_gain = 0, found = 0;
    for (int attempt = 0; attempt < kAttempts && found < kCandidates; ++attempt) {
      // Greedy rows first; where those are never allowed, ever more random ones.
      const std::vector<int> row = fill(pair, attempt * 100 / kAttempts);
      if (!allowed_(row)) continue;
      ++found;
      const int gain = gain_of(row);
      if (gain > best_gain) {
        best_gain = gain;
        best = row;
      }
    }
    return best;
  }

  std::vector<int> fill(const LevelPair& pair, int random_percent) {
    std::vector<int> row(levels_.size(), -1);
    row[pair.axis_a] = pair.level_a;
    row[pair.axis_b] = pair.level_b;
    std::vector<std::size_t> axes(levels_.size());
    std::iota(axes.begin(), axes.end(), std::size_t{0});
    for (std::size_t i = axes.size() - 1; i > 0; --i) {
      std::swap(axes[i], axes[static_cast<std::size_t>(random(static_cast<int>(i) + 1))]);
    }
    for (const std::size_t axis : axes) {
      if (row[axis] >= 0) continue;
      const int start = random(levels_[axis]);
      if (random(100) < random_percent) {
        row[axis] = start;
        continue;
      }
      int best_gain = -1;
      for (int k = 0; k < levels_[axis]; ++k) {  // ties go to the first from a random start
        const int level = (start + k) % levels_[axis];
        const int gain = gain_with(row, axis, level);
        if (gain > best_gain) {
          best_gain = gain;
          row[axis] = level;
        }
      }
    }
    return row;
  }

  [[nodiscard]] int gain_with(const std::vector<int>& row, std::size_t axis, int level) const {
    int gain = 0;
    for (std::size_t other = 0; other < row.size(); ++other) {
      if (other != axis && row[other] >= 0 && is_open(axis, level, other, row[other])) ++gain;
    }
    return gain;
  }

  [[nodiscard]] int gain_of(const std::vector<int>& row) const {
    int gain = 0;
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) gain += is_open(a, row[a], b, row[b]) ? 1 : 0;
    }
    return gain;
  }

  int close(const std::vector<int>& row) {
    const int gain = gain_of(row);
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) open_[cell(a, row[a], b, row[b])] = false;
    }
    return gain;
  }

  std::vector<int> levels_;
  const std::function<bool(std::span<const int>)>& allowed_;
  CounterRng rng_;
  std::uint64_t counter_ = 0;
  std::vector<std::size_t> offsets_;
  std::size_t total_ = 0;
  std::vector<bool> open_;
  std::vector<LevelPair> order_;
};

}  // namespace

PairwiseDesign pairwise(std::span<const int> levels, const std::function<bool(std::span<const int>)>& allowed,
                        std::uint64_t seed) {
  return Builder(levels, allowed, seed).build();
}

}  // namespace mla::verify
