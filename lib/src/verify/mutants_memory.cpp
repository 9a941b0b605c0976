// SPDX-License-Identifier: Apache-2.0
// Mutants that read or write the wrong place.
#include <algorithm>
#include <cmath>

#include "verify/mutant_tools.hpp"
#include "verify/mutants.hpp"

namespace mla::verify {
namespace {

/// Offset of the slot's row as a kernel with its own idea of strides finds it.
const std::byte* packed_row(const PagedLatentCache& cache, std::int64_t slot, std::int64_t row_bytes) {
  return cache.data + slot * row_bytes;
}

struct TableRowZero : MutantKernel {
  std::int64_t slot(const Row& row, std::int64_t key) const override {
    // Row 0 may be too short for this key: then its last column.
    const std::int64_t needed =
        (row.args.seq_lens(0) + row.args.cache.block_size - 1) / row.args.cache.block_size;
    if (needed == 0) return MutantKernel::slot(row, key);
    const std::int64_t column = std::min<std::int64_t>(key / row.args.cache.block_size, needed - 1);
    return static_cast<std::int64_t>(row.args.cache.block_table(0, column)) * row.args.cache.block_size +
           key % row.args.cache.block_size;
  }
};

/// The first key of a block is looked up in the block before.
struct PageOffByOne : MutantKernel {
  std::int64_t slot(const Row& row, std::int64_t key) const override {
    const std::int64_t size = row.args.cache.block_size;
    const std::int64_t column = key % size == 0 && key > 0 ? key / size - 1 : key / size;
    return static_cast<std::int64_t>(row.args.cache.block_table(row.request, column)) * size + key % size;
  }
};

/// Compiled for blocks of 16, whatever the argument says.
struct FixedPage : MutantKernel {
  std::int64_t slot(const Row& row, std::int64_t key) const override {
    constexpr std::int64_t kPage = 16;
    const std::int64_t size = row.args.cache.block_size;
    if (size <= kPage) return MutantKernel::slot(row, key);
    return static_cast<std::int64_t>(row.args.cache.block_table(row.request, key / size)) * size +
           key % kPage;
  }
};

/// Strides rebuilt from widths.
struct PackedPool : MutantKernel {
  void load(const Row& row, std::int64_t slot, std::span<double> latent) const override {
    const PagedLatentCache& cache = row.args.cache;
    decode_row(row.layout, row.shape.dims, packed_row(cache, slot, row.layout.row_bytes),
               row.layout.split() ? cache.k_pe_row(slot) : nullptr, cache.scale, latent);
  }
};

/// Element offsets in 32 bits: rows past 2^31 elements wrap to the start of the pool.
struct Offset32 : MutantKernel {
  std::int64_t slot(const Row& row, std::int64_t key) const override {
    const std::int64_t slot = MutantKernel::slot(row, key);
    const std::int64_t elements = slot * row.shape.dims.latent_width();
    return elements < std::int64_t{1} << 31
               ? slot
               : row.args.cache.num_blocks * row.args.cache.block_size - 1 - slot % 7;
  }
};

/// Byte offsets in unsigned 32 bits, which twice as much memory needs to show: rows past byte 2^32 wrap.
struct ByteOffset32 : MutantKernel {
  std::int64_t slot(const Row& row, std::int64_t key) const override {
    const std::int64_t slot = MutantKernel::slot(row, key);
    return slot * row.layout.row_bytes < std::int64_t{1} << 32
               ? slot
               : row.args.cache.num_blocks * row.args.cache.block_size - 1 - slot % 7;
  }
};

/// The newest row is read before it is written: what stood in front of it is read twice.
struct StaleNewest : MutantKernel {
  std::int64_t slot(const Row& row, std::int64_t key) const override {
    return MutantKernel::slot(row, key == row.n - 1 && key > 0 ? key - 1 : key);
  }
};

/// Whole blocks are read, what lies past the end included.
struct WholeBlocks : MutantKernel {
  std::vector<std::int64_t> candidates(const Row& row) const override {
    std::vector<std::int64_t> keys = MutantKernel::candidates(row);
    if (row.shape.topk > 0 || row.shape.mask.window) return keys;
    const std::int64_t size = row.shape.block_size;
    for (std::int64_t j = row.n; j % size != 0; ++j) keys.push_back(j);
    return keys;
  }
};

/// Rows past the end get weight 0, but 0 times NaN is NaN.
struct MaskedAfterLoad : MutantKernel {
  void finish_part(const Row& row, Part& part) const override {
    const std::int64_t size = row.shape.block_size;
    std::vector<double> latent(static_cast<std::size_t>(row.shape.dims.latent_width()));
    for (std::int64_t j = row.n; row.n > 0 && row.shape.topk == 0 && j % size != 0; ++j) {
      load(row, slot(row, j), latent);
      for (std::size_t c = 0; c < part.out.size(); ++c) part.out[c] += 0.0 * latent[c];
    }
    MutantKernel::finish_part(row, part);
  }
};

/// Invalid index entries load row 0 of the pool with weight 0.
struct InvalidLoaded : MutantKernel {
  void finish_part(const Row& row, Part& part) const override {
    std::vector<double> latent(static_cast<std::size_t>(row.shape.dims.latent_width()));
    for (std::int64_t i = 0; i < row.shape.topk; ++i) {
      const std::int32_t entry = row.args.token_index(row.token, i);
      if (indexed_key(row, entry) >= 0 || row.n == 0) continue;
      load(row, row.n % row.shape.block_size == 0 ? slot(row, 0) : slot(row, row.n - 1) + 1, latent);
      for (std::size_t c = 0; c < part.out.size(); ++c) part.out[c] += 0.0 * latent[c];
    }
    MutantKernel::finish_part(row, part);
  }
};

/// Index entries are positions, not slots.
struct IndexIsSlot : MutantKernel {
  std::int64_t slot(const Row& row, std::int64_t key) const override {
    if (row.shape.topk == 0) return MutantKernel::slot(row, key);
    const std::int64_t first =
        static_cast<std::int64_t>(row.args.cache.block_table(row.request, 0)) * row.shape.block_size;
    const std::int64_t end = row.args.cache.num_blocks * row.shape.block_size;
    return first + key < end ? first + key : first;
  }
};

struct NoTileScale : MutantKernel {
  void load(const Row& row, std::int64_t slot, std::span<double> latent) const override {
    MutantKernel::load(row, slot, latent);
    if (row.layout.scale_bytes == 0) return;
    for (std::int64_t c = 0; c < row.shape.dims.kv_lora_rank; ++c) {
      latent[static_cast<std::size_t>(c)] /= tile_scale(row, slot, c / kFp8TileWidth);
    }
  }
  static double tile_scale(const Row& row, std::int64_t slot, std::int64_t tile) {
    return load_element(row.args.cache.row(slot) + row.layout.scale_offset, DType::kF32, tile);
  }
};

struct FirstTileScale : NoTileScale {
  void load(const Row& row, std::int64_t slot, std::span<double> latent) const override {
    NoTileScale::load(row, slot, latent);
    if (row.layout.scale_bytes == 0) return;
    for (std::int64_t c = 0; c < row.shape.dims.kv_lora_rank; ++c) {
      latent[static_cast<std::size_t>(c)] *= tile_scale(row, slot, 0);
    }
  }
};

/// The exponent as frexp gives it, whose mantissa is below 1: twice an exact power of two, and all scales
/// are.
struct FrexpTileScale : MutantKernel {
  void load(const Row& row, std::int64_t slot, std::span<double> latent) const override {
    MutantKernel::load(row, slot, latent);
    if (row.layout.scale_bytes == 0) return;
    for (double& x : latent.first(static_cast<std::size_t>(row.shape.dims.kv_lora_rank))) x *= 2;
  }
};

/// A scale of the whole fp8 tensor that a mutant reads in its own way.
struct OtherTensorScale : MutantKernel {
  void load(const Row& row, std::int64_t slot, std::span<double> latent) const override {
    MutantKernel::load(row, slot, latent);
    if (row.shape.cache != CacheFormat::kFp8) return;
    const auto scale = static_cast<double>(row.args.cache.scale);
    for (double& x : latent) x *= read(scale) / scale;
  }
  [[nodiscard]] virtual double read(double scale) const = 0;
};

struct Bf16TensorScale : OtherTensorScale {
  double read(double scale) const override { return round_to(DType::kBF16, scale); }
};

/// An 8-bit exponent, rounded up.
struct ExponentTensorScale : OtherTensorScale {
  double read(double scale) const override { return std::exp2(std::ceil(std::log2(scale))); }
};

struct InvertedTensorScale : OtherTensorScale {
  double read(double scale) const override { return 1 / scale; }
};

/// K is scaled, V is not, though they are the same bytes.
struct NoTensorScale : MutantKernel {
  void load(const Row& row, std::int64_t slot, std::span<double> latent) const override {
    MutantKernel::load(row, slot, latent);
    if (row.shape.cache != CacheFormat::kFp8) return;
    for (double& x : latent) x /= static_cast<double>(row.args.cache.scale);
  }
};

struct EmptyNotWritten : MutantKernel {
  void store(const Row& row, std::span<const double> out, double lse) const override {
    if (row.n > 0) MutantKernel::store(row, out, lse);
  }
};

struct LseNotWritten : MutantKernel {
  void store(const Row& row, std::span<const double> out, double lse) const override {
    if (row.splits > 1 || !row.args.lse) return MutantKernel::store(row, out, lse);
    MutantKernel::store(row, out, load_element(row.args.lse.data, row.args.lse.dtype, 0));
  }
};

/// Rows of a padded tile are computed and written, too.
struct WritesPadding : MutantKernel {
  void store(const Row& row, std::span<const double> out, double lse) const override {
    MutantKernel::store(row, out, lse);
    const TensorRef& o = row.args.out;
    const auto width = static_cast<std::int64_t>(out.size());
    if (o.stride[1] > width) store_element(o.data, o.dtype, o.offset(row.token, row.head, width), 0.0);
  }
};

/// Output rows as wide as the key's part without a position: one head size for both.
struct ValueAtKeyWidth : MutantKernel {
  void store(const Row& row, std::span<const double> out, double lse) const override {
    const MlaDims& d = row.shape.dims;
    if (row.shape.space == QuerySpace::kLatent || d.qk_nope_head_dim == d.v_head_dim)
      return MutantKernel::store(row, out, lse);
    const TensorRef& o = row.args.out;
    for (std::int64_t c = 0; c < d.v_head_dim; ++c) {
      const std::int64_t at = row.head * d.qk_nope_head_dim + c;  // of the token's channels
      if (at >= std::int64_t{d.num_heads} * d.v_head_dim) continue;
      store_element(o.data, o.dtype, o.offset(row.token, at / d.v_head_dim, at % d.v_head_dim),
                    out[static_cast<std::size_t>(c)]);
    }
    const TensorRef& l = row.args.lse;
    if (l) store_element(l.data, l.dtype, l.offset(row.token, row.head), lse);
  }
};

/// A grid too large for the machine fails to launch, and nobody asks.
struct LaunchLost : MutantKernel {
  void store(const Row& row, std::span<const double> out, double lse) const override {
    constexpr std::int64_t kMostHeads = 96;
    if (row.shape.dims.num_heads <= kMostHeads) MutantKernel::store(row, out, lse);
  }
};

/// Query rows assumed packed.
struct PackedQuery : MutantKernel {
  std::vector<double> query(const Row& row) const override {
    AttentionArgs args = row.args;
    args.q.stride[1] = args.q.extent[2];
    args.q.stride[0] = args.q.extent[1] * args.q.extent[2];
    return MutantKernel::query({row.shape, args, row.layout, row.splits, row.request, row.requests, row.token,
                                row.i, row.q_len, row.n, row.head});
  }
};

/// Heads past a multiple of 16 repeat the head before.
struct HeadTile : MutantKernel {
  std::vector<double> query(const Row& row) const override {
    const std::int64_t whole = row.shape.dims.num_heads / 16 * 16;
    const std::int64_t head = row.head >= whole && row.head > 0 ? row.head - 1 : row.head;
    return MutantKernel::query({row.shape, row.args, row.layout, row.splits, row.request, row.requests,
                                row.token, row.i, row.q_len, row.n, head});
  }
};

constexpr Mutant kMutants[] = {
    {"table-row-zero", "every request reads row 0 of the block table", "MLA-055", make_mutant<TableRowZero>},
    {"page-off-by-one", "the first key of a block is looked up in the block before", "",
     make_mutant<PageOffByOne>},
    {"fixed-page", "block arithmetic is compiled for 16 tokens", "MLA-048 MLA-050", make_mutant<FixedPage>},
    {"packed-pool", "row and block strides are rebuilt from widths", "MLA-052", make_mutant<PackedPool>},
    {"offset-32", "element offsets are 32 bits wide", "MLA-018 MLA-020 MLA-021 MLA-023",
     make_mutant<Offset32>},
    {"byte-offset-32", "byte offsets are 32 bits wide", "MLA-018 MLA-020", make_mutant<ByteOffset32>},
    {"stale-newest", "the newest row is read before it is written", "", make_mutant<StaleNewest>},
    {"whole-blocks", "rows past the end of the last block are seen", "", make_mutant<WholeBlocks>},
    {"masked-after-load", "rows past the end get weight 0, but NaN passes", "MLA-001 MLA-003",
     make_mutant<MaskedAfterLoad>},
    {"invalid-loaded", "invalid index entries load a row with weight 0", "MLA-005 MLA-059",
     make_mutant<InvalidLoaded>},
    {"index-is-slot", "index entries are taken as slots", "", make_mutant<IndexIsSlot>},
    {"no-tile-scale", "the fp8 tile scales are not applied", "MLA-062", make_mutant<NoTileScale>},
    {"first-tile-scale", "the first fp8 tile scale serves all tiles", "MLA-062", make_mutant<FirstTileScale>},
    {"frexp-tile-scale", "exact powers of two are taken for twice the scale", "MLA-065",
     make_mutant<FrexpTileScale>},
    {"bf16-tensor-scale", "the fp8 tensor scale is read as bf16", "MLA-062", make_mutant<Bf16TensorScale>},
    {"exponent-tensor-scale", "the fp8 tensor scale is read as an 8-bit exponent", "MLA-062",
     make_mutant<ExponentTensorScale>},
    {"inverted-tensor-scale", "the fp8 tensor scale divides", "MLA-066", make_mutant<InvertedTensorScale>},
    {"no-tensor-scale", "the fp8 tensor scale is not applied", "MLA-066 MLA-068", make_mutant<NoTensorScale>},
    {"empty-not-written", "rows of empty requests keep what stood there", "MLA-007 MLA-008",
     make_mutant<EmptyNotWritten>},
    {"lse-not-written", "the LSE is not stored with one split", "MLA-046", make_mutant<LseNotWritten>},
    {"writes-padding", "it writes behind the last channel of a row", "MLA-096", make_mutant<WritesPadding>},
    {"value-at-key-width", "heads of the output lie as far apart as the key's", "MLA-089",
     make_mutant<ValueAtKeyWidth>},
    {"launch-lost", "with more than 96 heads the launch fails unnoticed", "MLA-016 MLA-026 MLA-027",
     make_mutant<LaunchLost>},
    {"packed-query", "the strides of q are ignored", "", make_mutant<PackedQuery>},
    {"head-tile", "heads past a multiple of 16 repeat the one before", "MLA-094 MLA-107",
     make_mutant<HeadTile>}};

}  // namespace

std::span<const Mutant> memory_mutants() {
  return kMutants;
}

}  // namespace mla::verify
