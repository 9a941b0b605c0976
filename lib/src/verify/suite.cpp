// SPDX-License-Identifier: Apache-2.0
#include "verify/suite.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/random.hpp"
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

/// One level of each axis makes a case, or nothing.
std::optional<Case> build(std::span<const Axis> axes, std::span<const int> row, std::uint64_t seed,
                          std::string* why = nullptr) {
  Draft draft;
  draft.c.seed = seed;
  for (std::size_t a = 0; a < axes.size(); ++a) axes[a].levels[static_cast<std::size_t>(row[a])].set(draft);
  return finish(draft, why);
}

/// Cases outside the design: pools whose rows lie on both sides of 2^31 elements and 2^31 or 2^32 bytes,
/// queries and outputs whose tokens do. Only what is used is ever touched.
std::vector<Case> far_cases(std::uint64_t seed) {
  Case base;
  base.seed = seed;
  base.shape.dims = {2, 512, 64, 128, 128};
  base.shape.batch = {{1, 70}, {1, 3}};
  std::vector<Case> cases;
  const auto add = [&](CacheFormat cache, std::int32_t block_size, std::int64_t first_block) {
    Case c = base;
    c.shape.cache = cache;
    c.shape.block_size = block_size;
    c.first_block = first_block;
    c.permuted = false;  // the first keys lie in the first block
    cases.push_back(c);
  };
  // 576 elements a row: slot 3,728,270 begins before element 2^31 and ends behind it. In bf16 that is byte
  // 2^32.
  add(CacheFormat::kBF16, 64, 58'254);
  add(CacheFormat::kBF16, 16, 4 * 58'254);
  // Slot 1,864,135 holds byte 2^31 of a bf16 pool; of fp8 pools these hold it (576 bytes a row) ...
  add(CacheFormat::kBF16, 64, 29'127);
  add(CacheFormat::kFp8, 64, 58'254);
  add(CacheFormat::kFp8, 64, 116'508);  // ... byte 2^32
  // 656 bytes a row: byte 2^31 in slot 3,273,603, byte 2^32 in slot 6,547,206.
  add(CacheFormat::kFp8DsMla, 64, 51'150);
  add(CacheFormat::kFp8DsMla, 64, 102'300);
  for (const QuerySpace space : {QuerySpace::kLatent, QuerySpace::kHead}) {
    Case c = base;
    c.shape.space = space;
    c.shape.batch = {{2, 9}, {1, 3}};
    c.far_rows = true;
    cases.push_back(c);
  }
  return cases;
}

/// Prefill in 16 bits with W_UK and W_UV, which a pairwise design over all types and spaces rarely brings
/// together: the usual widths, causal behind contexts and full, lengths around tiles, empty and short
/// requests between long ones.
std::vector<Case> prefill_cases(bool wide, std::uint64_t seed) {
  constexpr MlaDims kDims[] = {
      {2, 512, 64, 128, 128}, {3, 256, 32, 64, 64}, {1, 512, 64, 192, 256}, {2, 512, 0, 128, 128}};
  std::vector<Case> cases;
  for (const MlaDims& dims : kDims) {
    Case c;
    c.shape.phase = Phase::kPrefill;
    c.shape.space = QuerySpace::kHead;
    c.shape.dims = dims;
    const auto add = [&](std::vector<Request> batch) {
      c.seed = seed + cases.size();
      c.shape.batch = std::move(batch);
      cases.push_back(c);
    };
    add({{33, 97}, {1, 0}, {65, 65}, {1, 130}});
    if (wide) add({{255, 255}, {256, 700}, {257, 257}, {3, 1025}});
    c.shape.mask.causal = false;
    c.shape.q_dtype = c.shape.out_dtype = DType::kF16;
    c.shape.cache = CacheFormat::kF16;
    c.shape.block_size = 16;
    add({{31, 31}, {2, 64}, {128, 129}});
  }
  return cases;
}

/// Requests that share leading blocks: ragged behind the prefix, one that ends with it, groups of one, requests of no
/// group before, between and behind them, several new tokens, few rows and many.
std::vector<Case> prefix_cases(bool wide, std::uint64_t seed) {
  std::vector<Case> cases;
  const auto add = [&](std::int32_t heads, std::vector<Request> batch,
                       std::vector<SharedPrefix> shared) -> Case& {
    Case c;
    c.seed = seed + cases.size();
    c.shape.dims = {heads, 512, 64, 128, 128};
    c.shape.batch = std::move(batch);
    c.shape.shared = std::move(shared);
    c.prefix_reads = PrefixReads::kOnce;
    cases.push_back(c);
    return cases.back();
  };
  add(16, {{1, 128}, {1, 129}, {1, 200}, {1, 700}}, {{128, 0, 4}});
  add(16, {{1, 70}, {1, 300}, {1, 256}, {1, 0}, {1, 90}, {1, 65}, {1, 200}},
      {{256, 1, 2}, {64, 4, 1}, {64, 5, 2}});
  add(3, {{2, 70}, {4, 67}, {1, 64}, {3, 150}}, {{64, 0, 4}});
  Case& head_space = add(4, {{1, 130}, {2, 131}, {1, 9}}, {{128, 0, 2}});
  head_space.shape.space = QuerySpace::kHead;
  head_space.strided = true;
  Case& full = add(40, {{1, 96}, {2, 97}, {1, 112}}, {{96, 0, 3}});
  full.shape.mask.causal = false;
  full.shape.block_size = 16;
  full.shape.q_dtype = DType::kF16;
  full.shape.out_dtype = DType::kF32;
  full.shape.cache = CacheFormat::kF16Split;
  for (const ValueKind values : {ValueKind::kDominant, ValueKind::kExtreme, ValueKind::kNan}) {
    add(16, {{1, 130}, {1, 200}, {1, 70}}, {{128, 0, 2}}).values = values;
  }
  if (!wide) return cases;
  add(128, {{1, 1100}, {2, 1025}, {1, 1030}, {1, 77}}, {{1024, 0, 3}});
  add(64, {{1, 2048}, {1, 2100}, {1, 2049}, {1, 2300}}, {{2048, 0, 4}}).num_splits = 7;
  add(16, std::vector<Request>(16, {1, 4500}), {{4096, 0, 16}});
  Case& narrow = add(24, {{1, 300}, {1, 310}}, {{288, 0, 2}});
  narrow.shape.dims = {24, 256, 32, 64, 64};
  narrow.shape.block_size = 1;
  return cases;
}

const Extent& extent_of(std::string_view name) {
  for (const Extent& extent : kExtents) {
    if (extent.name == name) return extent;
  }
  const std::vector<std::string> names = suite_names();
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no suite '{}'", name),
              text::suggestion(name, names));
}

void sort_by_work(std::vector<Case>& cases) {
  std::stable_sort(cases.begin(), cases.end(),
                   [](const Case& a, const Case& b) { return work_of(a) < work_of(b); });
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

double bytes_of(const Case& c) noexcept {
  const AttentionShape& s = c.shape;
  const bool head = s.space == QuerySpace::kHead;
  double rows = 0, keys = 0;
  for (const Request& r : s.batch) {
    rows += static_cast<double>(r.q_len) * s.dims.num_heads;
    keys += r.kv_len;
  }
  // Numbers in double precision, tensors, what is read back and both forms of the reference.
  double values = rows * (2.0 * query_width(s) + 5.0 * output_width(s)) + 3.0 * keys * s.dims.latent_width();
  if (head) {
    values += 2.0 * rows * s.dims.latent_width() +
              2.0 * s.dims.num_heads * s.dims.kv_lora_rank * (s.dims.qk_nope_head_dim + s.dims.v_head_dim);
  }
  return values * sizeof(double);
}

namespace {

/// What stands against a pair, told of the plainest case that would hold it: all other axes at their first level.
PairLeftOut left_out(std::span<const Axis> axes, const LevelPair& pair, std::uint64_t seed, double largest) {
  const auto text = [&](std::size_t axis, int level) {
    return fmt::format("{} {}", axes[axis].name, axes[axis].levels[static_cast<std::size_t>(level)].name);
  };
  PairLeftOut out{
      .first = text(pair.axis_a, pair.level_a), .second = text(pair.axis_b, pair.level_b), .why = {}};
  std::vector<int> row(axes.size(), 0);
  row[pair.axis_a] = pair.level_a;
  row[pair.axis_b] = pair.level_b;
  if (const std::optional<Case> c = build(axes, row, seed, &out.why)) {
    out.why = work_of(*c) > largest
                  ? fmt::format("too much work: {:.3g} operations, where a case may have {:.3g}", work_of(*c),
                                largest)
                  : "no case with both was found";
  }
  return out;
}

}  // namespace

Suite make_suite(std::string_view name, std::span<const Backend* const> backends, std::uint64_t seed) {
  const Extent& extent = extent_of(name);
  const std::vector<Axis> axes = make_axes(extent.wide, backends);
  std::vector<int> levels;
  for (const Axis& axis : axes) levels.push_back(static_cast<int>(axis.levels.size()));
  const auto allowed = [&](std::span<const int> row) {
    const std::optional<Case> c = build(axes, row, seed);
    return c && work_of(*c) <= extent.largest_case;
  };
  const PairwiseDesign design = pairwise(levels, allowed, seed);
  Suite suite;
  suite.name = name;
  suite.pairs = design.pairs;
  suite.covered = design.covered;
  for (const LevelPair& pair : design.open)
    suite.left_out.push_back(left_out(axes, pair, seed, extent.largest_case));
  suite.cases = far_cases(seed);
  for (Case& c : prefill_cases(extent.wide, seed)) suite.cases.push_back(std::move(c));
  for (Case& c : prefix_cases(extent.wide, seed)) suite.cases.push_back(std::move(c));
  for (std::size_t i = 0; i < design.rows.size(); ++i) {
    if (const std::optional<Case> c = build(axes, design.rows[i], seed + i)) suite.cases.push_back(*c);
  }
  sort_by_work(suite.cases);
  return suite;
}

CaseSource::CaseSource(bool wide, std::span<const Backend* const> backends, double largest)
    : axes_(make_axes(wide, backends)), largest_(largest) {}

void CaseSource::draw(Row& row, std::size_t axis, const CounterRng& rng, std::uint64_t counter) const {
  const auto levels = static_cast<std::int64_t>(axes_[axis].levels.size());
  row[axis] = static_cast<int>(rng.between(counter, 0, levels - 1));
}

std::optional<Case> CaseSource::affordable(const Row& row, std::uint64_t seed) const {
  std::optional<Case> c = build(axes_, row, seed);
  if (c && work_of(*c) > largest_) c.reset();
  return c;
}

Case CaseSource::random_case(std::uint64_t seed) const {
  const CounterRng rng(seed, 90);
  Row row(axes_.size());
  for (std::uint64_t i = 0;; ++i) {
    for (std::size_t a = 0; a < row.size(); ++a) draw(row, a, rng, i * row.size() + a);
    if (std::optional<Case> c = affordable(row, seed)) return *c;
  }
}

std::vector<Case> CaseSource::cases_taken(const std::function<bool(const Case&)>& takes, std::size_t wanted,
                                          std::uint64_t seed) const {
  constexpr std::uint64_t kMostTries = 10'000;
  constexpr std::uint64_t kMostChanges = 3;
  const CounterRng rng(seed, 91);
  std::vector<Case> cases;
  Row last(axes_.size());
  std::uint64_t counter = 0;
  const auto axis = [&] {
    return static_cast<std::size_t>(rng.between(counter++, 0, static_cast<std::int64_t>(axes_.size()) - 1));
  };
  for (std::uint64_t i = 0; cases.size() < wanted && i < kMostTries; ++i) {
    Row row = last;
    if (cases.empty()) {
      // Who serves little serves what is plain, which the first level of most axes is: half of them stay there.
      row.assign(row.size(), 0);
      for (std::size_t a = 0; a < row.size(); ++a) {
        if (rng.between(counter++, 0, 1) == 1) draw(row, a, rng, counter++);
      }
    } else {
      for (std::uint64_t change = 0; change <= i % kMostChanges; ++change) {
        const std::size_t changed = axis();
        draw(row, changed, rng, counter++);
      }
    }
    const std::optional<Case> c = affordable(row, seed + i);
    if (!c || !takes(*c)) continue;
    last = row;
    cases.push_back(*c);
  }
  return cases;
}

void top_up(Suite& suite, const CaseSource& source, std::span<const std::function<bool(const Case&)>> takes,
            std::uint64_t seed) {
  constexpr std::int64_t kFewest = 40;
  for (const auto& one : takes) {
    const auto enough = std::ranges::count_if(suite.cases, one);
    if (enough >= kFewest) continue;
    for (Case& c : source.cases_taken(one, static_cast<std::size_t>(kFewest - enough), seed))
      suite.cases.push_back(std::move(c));
  }
  sort_by_work(suite.cases);
}

CaseSource suite_source(std::string_view name, std::span<const Backend* const> backends) {
  const Extent& extent = extent_of(name);
  return {extent.wide, backends, extent.largest_case};
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
  if (cases.empty())
    throw Error(ErrorCode::kParse, fmt::format("{} holds no case", origin),
                "one a line, as --list-cases prints them");
  return cases;
}

}  // namespace mla::verify
