// SPDX-License-Identifier: Apache-2.0
// Mutants that see the wrong keys.
#include <algorithm>
#include <limits>

#include "verify/mutant_tools.hpp"
#include "verify/mutants.hpp"

namespace mla::verify {
namespace {

struct DropNewest : MutantKernel {
  std::int64_t num_keys(const Row& row) const override { return row.n - 1; }
};

struct DropNewestOfOne : MutantKernel {
  std::int64_t num_keys(const Row& row) const override {
    return row.request == row.requests - 1 ? row.n - 1 : row.n;
  }
};

struct DropOldest : MutantKernel {
  bool sees(const Row& row, std::int64_t key) const override {
    return key > 0 && MutantKernel::sees(row, key);
  }
};

struct WindowMore : MutantKernel {
  bool sees(const Row& row, std::int64_t key) const override {
    Mask mask = row.shape.mask;
    if (mask.window) ++*mask.window;
    return mask.sees(position(row), row.n, key);
  }
};

struct WindowLess : MutantKernel {
  bool sees(const Row& row, std::int64_t key) const override {
    Mask mask = row.shape.mask;
    if (mask.window) --*mask.window;
    return mask.sees(position(row), row.n, key);
  }
};

struct NoWindow : MutantKernel {
  bool sees(const Row& row, std::int64_t key) const override {
    return Mask{row.shape.mask.causal, {}, 0}.sees(position(row), row.n, key);
  }
};

struct NoSink : MutantKernel {
  bool sees(const Row& row, std::int64_t key) const override {
    return Mask{row.shape.mask.causal, row.shape.mask.window, 0}.sees(position(row), row.n, key);
  }
};

/// The sink is read by whole blocks.
struct SinkByBlock : MutantKernel {
  bool sees(const Row& row, std::int64_t key) const override {
    Mask mask = row.shape.mask;
    const std::int32_t block = row.shape.block_size;
    mask.sink = (mask.sink + block - 1) / block * block;
    return mask.sees(position(row), row.n, key);
  }
};

struct MaskLater : MutantKernel {
  std::int64_t position(const Row& row) const override {
    return MutantKernel::position(row) + (row.q_len > 1 ? 1 : 0);
  }
};

struct MaskEarlier : MutantKernel {
  std::int64_t position(const Row& row) const override {
    return MutantKernel::position(row) - (row.q_len > 1 ? 1 : 0);
  }
};

/// A square mask where the queries do not start at key 0.
struct SquareMask : MutantKernel {
  std::int64_t position(const Row& row) const override { return row.i; }
};

/// Planned for one query a request.
struct OneQueryPlan : MutantKernel {
  std::int64_t position(const Row& row) const override { return row.n - 1; }
};

/// Takes seq_lens as not counting the new tokens.
struct LengthsExclude : MutantKernel {
  std::int64_t position(const Row& row) const override {
    return std::min(row.n - 1, MutantKernel::position(row) + row.q_len);
  }
};

struct MinusOneIsZero : MutantKernel {
  std::int64_t indexed_key(const Row& row, std::int32_t entry) const override {
    return row.n > 0 && entry == -1 ? 0 : MutantKernel::indexed_key(row, entry);
  }
};

/// Entries past the end read the last key.
struct ClampIndex : MutantKernel {
  std::int64_t indexed_key(const Row& row, std::int32_t entry) const override {
    return entry >= row.n && row.n > 0 ? row.n - 1 : MutantKernel::indexed_key(row, entry);
  }
};

/// Only -1 means invalid.
struct OnlyMinusOne : MutantKernel {
  std::int64_t indexed_key(const Row& row, std::int32_t entry) const override {
    return entry < -1 && row.n > 0 ? 0 : MutantKernel::indexed_key(row, entry);
  }
};

/// Every entry behind the first invalid one is left out.
struct StopsAtInvalid : MutantKernel {
  std::vector<std::int64_t> candidates(const Row& row) const override {
    std::vector<std::int64_t> keys = MutantKernel::candidates(row);
    if (row.shape.topk > 0) keys.erase(std::find(keys.begin(), keys.end(), -1), keys.end());
    return keys;
  }
};

/// A key named twice counts once.
struct DuplicatesOnce : MutantKernel {
  std::vector<std::int64_t> candidates(const Row& row) const override {
    std::vector<std::int64_t> keys = MutantKernel::candidates(row);
    for (std::size_t i = 1; i < keys.size(); ++i) {
      if (std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), keys[i]) !=
          keys.begin() + static_cast<std::ptrdiff_t>(i)) {
        keys[i] = -1;
      }
    }
    return keys;
  }
};

/// The sink and a window that reaches it are both counted.
struct SinkTwice : MutantKernel {
  std::vector<std::int64_t> candidates(const Row& row) const override {
    std::vector<std::int64_t> keys = MutantKernel::candidates(row);
    const Mask& mask = row.shape.mask;
    if (row.shape.topk > 0 || !mask.window) return keys;
    for (std::int64_t j = 0; j < std::min<std::int64_t>(mask.sink, position(row) + 1); ++j) {
      if (j > position(row) - *mask.window) keys.push_back(j);
    }
    return keys;
  }
};

/// One key more at the end of a part than it owns: the next part's first tile is counted by both.
struct PartsOverlap : MutantKernel {
  std::pair<std::int64_t, std::int64_t> part_tiles(const Row& row, std::int64_t part,
                                                   std::int64_t tiles) const override {
    const auto [begin, end] = MutantKernel::part_tiles(row, part, tiles);
    return {begin, std::min(end + 1, tiles)};
  }
};

struct LastPartLost : MutantKernel {
  std::pair<std::int64_t, std::int64_t> part_tiles(const Row& row, std::int64_t part,
                                                   std::int64_t tiles) const override {
    const auto [begin, end] = MutantKernel::part_tiles(row, part, tiles);
    return {begin, row.splits > 1 && part == row.splits - 1 ? begin : end};
  }
};

/// Parts of tiles / splits tiles each, the remainder forgotten.
struct RemainderLost : MutantKernel {
  std::pair<std::int64_t, std::int64_t> part_tiles(const Row& row, std::int64_t part,
                                                   std::int64_t tiles) const override {
    const std::int64_t each = std::max<std::int64_t>(1, tiles / row.splits);
    return {std::min(part * each, tiles), std::min((part + 1) * each, tiles)};
  }
};

/// A multiple of the tile plus one: the last tile of one key is skipped.
struct TailTileLost : MutantKernel {
  std::vector<std::int64_t> candidates(const Row& row) const override {
    std::vector<std::int64_t> keys = MutantKernel::candidates(row);
    if (keys.size() % static_cast<std::size_t>(options().tile) == 1) keys.pop_back();
    return keys;
  }
};

constexpr Mutant kMutants[] = {
    {"drop-newest", "the newest key of every request is not seen", "", make_mutant<DropNewest>},
    {"drop-newest-of-one", "the newest key of the last request is not seen", "",
     make_mutant<DropNewestOfOne>},
    {"drop-oldest", "key 0 is not seen", "", make_mutant<DropOldest>},
    {"window-more", "the window is one key too long", "MLA-102", make_mutant<WindowMore>},
    {"window-less", "the window is one key too short", "MLA-102", make_mutant<WindowLess>},
    {"no-window", "the window is not applied", "MLA-104", make_mutant<NoWindow>},
    {"no-sink", "sink tokens are dropped", "", make_mutant<NoSink>},
    {"sink-by-block", "the sink is rounded up to whole blocks", "", make_mutant<SinkByBlock>},
    {"sink-twice", "sink tokens inside the window count twice", "MLA-060", make_mutant<SinkTwice>},
    {"mask-later", "with q_len > 1 every query sees one key too many", "MLA-028", make_mutant<MaskLater>},
    {"mask-earlier", "with q_len > 1 every query sees one key too few", "MLA-028", make_mutant<MaskEarlier>},
    {"square-mask", "query i sees keys 0..i whatever came before", "MLA-030 MLA-033",
     make_mutant<SquareMask>},
    {"one-query-plan", "every query sees what the last one sees", "MLA-028 MLA-031",
     make_mutant<OneQueryPlan>},
    {"lengths-exclude", "seq_lens are taken as without the new tokens", "MLA-013",
     make_mutant<LengthsExclude>},
    {"minus-one-is-zero", "index -1 reads key 0", "MLA-005 MLA-059", make_mutant<MinusOneIsZero>},
    {"clamp-index", "an index past the end reads the last key", "", make_mutant<ClampIndex>},
    {"only-minus-one", "an index below -1 reads key 0", "", make_mutant<OnlyMinusOne>},
    {"stops-at-invalid", "what follows the first invalid index is ignored", "", make_mutant<StopsAtInvalid>},
    {"duplicates-once", "an index that stands twice counts once", "", make_mutant<DuplicatesOnce>},
    {"parts-overlap", "neighbouring splits share a tile", "MLA-044", make_mutant<PartsOverlap>},
    {"last-part-lost", "the last split is empty", "MLA-043", make_mutant<LastPartLost>},
    {"remainder-lost", "tiles that do not divide by the splits are lost", "MLA-110",
     make_mutant<RemainderLost>},
    {"tail-tile-lost", "a last tile of one key is lost", "MLA-099", make_mutant<TailTileLost>}};

}  // namespace

std::span<const Mutant> mask_mutants() {
  return kMutants;
}

}  // namespace mla::verify
