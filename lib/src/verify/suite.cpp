// SPDX-License-Identifier: Apache-2.0
#include "verify/suite.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "verify/axes.hpp"
#include "verify/pairwise.hpp"
#include "verify/values.hpp"

namespace mla::verify {
namespace {

/// How far a suite goes.
struct Extent {
  std::string_view name;
  bool wide;            ///< all levels and the long lengths
  double largest_case;  ///< floating-point operations
};
constexpr Extent kExtents[] = {{"quick", false, 1e9}, {"full", true, 4e10}};

const Extent& extent_of(std::string_view name) {
  for (const Extent& extent : kExtents) {
    if (extent.name == name) return extent;
  }
  const std::vector<std::string> names = suite_names();
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no suite '{}'", name),
              text::suggestion(name, names));
}

}  // namespace

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const Extent& extent : kExtents) names.emplace_back(extent.name);
  return names;
}

double work_of(const Case& c) {
  const AttentionShape& s = c.shape;
  const MlaDims& d = s.dims;
  double pairs = 0, keys = 0;
  for (const Request& r : s.batch) {
    const double seen = s.topk > 0 ? s.topk : r.kv_len;
    pairs += static_cast<double>(r.q_len) * seen * d.num_heads;
    keys += r.kv_len;
  }
  const double latent = 2.0 * (d.latent_width() + d.kv_lora_rank);
  constexpr double kStats = 3.5;  // statistics cost about this much beside the result
  if (s.space == QuerySpace::kLatent) return pairs * latent * kStats;
  const double expand = 2.0 * keys * d.num_heads * d.kv_lora_rank * (d.qk_nope_head_dim + d.v_head_dim);
  return 2 * expand + pairs * (latent + 2.0 * (d.head_width() + d.v_head_dim)) * kStats;
}

Suite make_suite(std::string_view name, std::span<const Backend* const> backends, std::uint64_t seed) {
  const Extent& extent = extent_of(name);
  const std::vector<Axis> axes = make_axes(extent.wide, backends);
  std::vector<int> levels;
  for (const Axis& axis : axes) levels.push_back(static_cast<int>(axis.levels.size()));
  const auto build = [&](std::span<const int> row, std::uint64_t case_seed) {
    Draft draft;
    draft.c.seed = case_seed;
    for (std::size_t a = 0; a < axes.size(); ++a) axes[a].levels[static_cast<std::size_t>(row[a])].set(draft);
    return finish(draft);
  };
  const auto allowed = [&](std::span<const int> row) {
    const std::optional<Case> c = build(row, seed);
    return c && work_of(*c) <= extent.largest_case;
  };
  const PairwiseDesign design = pairwise(levels, allowed, seed);
  Suite suite;
  suite.name = name;
  suite.pairs = design.pairs;
  suite.covered = design.covered;
  for (std::size_t i = 0; i < design.rows.size(); ++i) {
    // Lengths that depend on the seed may make a case a little larger than the one that was tried: still allowed.
    if (const std::optional<Case> c = build(design.rows[i], seed + i)) suite.cases.push_back(*c);
  }
  std::stable_sort(suite.cases.begin(), suite.cases.end(),
                   [](const Case& a, const Case& b) { return work_of(a) < work_of(b); });
  return suite;
}

std::vector<Case> parse_cases(std::string_view text, std::string_view origin) {
  std::vector<Case> cases;
  const std::vector<std::string> lines = text::split(text, '\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find_first_not_of(" \t\r") == std::string::npos || lines[i].front() == '#') continue;
    try {
      cases.push_back(parse_case(lines[i]));
      validate(cases.back());
    } catch (const Error& e) {
      throw Error(ErrorCode::kParse, fmt::format("{}:{}: {}", origin, i + 1, e.what()), e.hint());
    }
  }
  return cases;
}

}  // namespace mla::verify
