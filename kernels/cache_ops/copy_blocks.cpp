// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cache_ops/table.hpp"
#include "common/require.hpp"
#include "mla/device_ops.hpp"

namespace mla::device_ops {
namespace {

using kernels::refuse;
namespace cache_ops = kernels::cache_ops;

/// A pool as blocks of rows; split formats have two.
struct PoolView {
  std::byte* data = nullptr;
  std::int64_t block_stride = 0, row_stride = 0, row_bytes = 0;
};
PoolView first_pool(const CacheLayout& layout, const PagedLatentCache& cache) {
  return {cache.data, cache.block_stride_bytes, cache.row_stride_bytes, layout.row_bytes};
}
PoolView second_pool(const CacheLayout& layout, const PagedLatentCache& cache) {
  return {cache.k_pe, cache.k_pe_block_stride_bytes, cache.k_pe_row_stride_bytes, layout.rope_row_bytes};
}

void check_caches(const CacheLayout& layout, const PagedLatentCache& from, const PagedLatentCache& to) {
  for (const PagedLatentCache* cache : {&from, &to}) {
    if (cache->format != layout.format) {
      refuse(fmt::format("a cache is {}, but the layout is of {}", name_of(cache->format),
                         name_of(layout.format)));
    }
    if (cache->data == nullptr || (layout.split() && cache->k_pe == nullptr)) refuse("a cache has no data");
    if (cache->block_size != from.block_size || cache->block_size < 1) {
      refuse(fmt::format("blocks of {} and {} tokens cannot be copied into each other", from.block_size,
                         to.block_size));
    }
  }
}

/// One pool: `from` and `to` are blocks by id, or a workspace with a block for each pair.
struct Copy {
  PoolView from, to;
  bool from_workspace = false, to_workspace = false;
};
void enqueue(const Copy& copy, const PagedLatentCache& source, const PagedLatentCache& target,
             View<const std::int64_t, 2> pairs, Stream stream) {
  cache_ops::CopyParams p;
  p.from = {copy.from.data, copy.from.block_stride, copy.from.row_stride, copy.from_workspace};
  p.to = {copy.to.data, copy.to.block_stride, copy.to.row_stride, copy.to_workspace};
  p.pairs = pairs.data;
  p.pair_row = pairs.stride[0];
  p.pair_column = pairs.stride[1];
  p.count = pairs.extent[0];
  p.from_blocks = source.num_blocks;
  p.to_blocks = target.num_blocks;
  p.row_bytes = copy.from.row_bytes;
  p.block_size = source.block_size;
  p.unit = 1;
  for (const int unit : {16, 4}) {
    if (kernels::aligned(p.from.data, {p.from.block_stride, p.from.row_stride, p.row_bytes}, unit) &&
        kernels::aligned(p.to.data, {p.to.block_stride, p.to.row_stride}, unit)) {
      p.unit = unit;
      break;
    }
  }
  cache_ops::table().copy(p, stream.handle);
}

void check_pairs(View<const std::int64_t, 2> pairs) {
  if (pairs.extent[0] > 0 && (!pairs || pairs.extent[1] != 2)) {
    refuse(fmt::format("pairs is [{}, {}], but must be [count, 2]", pairs.extent[0], pairs.extent[1]));
  }
  constexpr std::int64_t kGrid = 2147483647;
  if (pairs.extent[0] > kGrid)
    refuse(fmt::format("{} pairs are more than a grid holds ({})", pairs.extent[0], kGrid));
}

/// Bytes a packed pool of `count` blocks takes, rounded up so that the next one is aligned.
std::int64_t packed_bytes(std::int64_t row_bytes, int block_size, std::int64_t count) {
  return (row_bytes * block_size * count + 255) / 256 * 256;
}
PoolView packed(std::byte* data, std::int64_t row_bytes, int block_size) {
  return {data, row_bytes * block_size, row_bytes, row_bytes};
}

}  // namespace

void copy_blocks(const CacheLayout& layout, const PagedLatentCache& from, const PagedLatentCache& to,
                 View<const std::int64_t, 2> pairs, Stream stream) {
  check_caches(layout, from, to);
  check_pairs(pairs);
  enqueue({first_pool(layout, from), first_pool(layout, to)}, from, to, pairs, stream);
  if (layout.split()) enqueue({second_pool(layout, from), second_pool(layout, to)}, from, to, pairs, stream);
}

std::size_t permute_workspace_bytes(const CacheLayout& layout, const PagedLatentCache& cache,
                                    std::int64_t count) {
  return static_cast<std::size_t>(packed_bytes(layout.row_bytes, cache.block_size, count) +
                                  packed_bytes(layout.rope_row_bytes, cache.block_size, count));
}

void permute_blocks(const CacheLayout& layout, const PagedLatentCache& cache,
                    View<const std::int64_t, 2> pairs, std::span<std::byte> workspace, Stream stream) {
  check_caches(layout, cache, cache);
  check_pairs(pairs);
  const std::size_t wanted = permute_workspace_bytes(layout, cache, pairs.extent[0]);
  if (workspace.size() < wanted) {
    refuse(fmt::format("the workspace has {} bytes, but {} pairs want {}", workspace.size(), pairs.extent[0],
                       wanted));
  }
  std::byte* const second =
      workspace.data() + packed_bytes(layout.row_bytes, cache.block_size, pairs.extent[0]);
  const PoolView spare[2] = {packed(workspace.data(), layout.row_bytes, cache.block_size),
                             packed(second, layout.rope_row_bytes, cache.block_size)};
  const PoolView pools[2] = {first_pool(layout, cache), second_pool(layout, cache)};
  const int count = layout.split() ? 2 : 1;
  for (int i = 0; i < count; ++i) enqueue({pools[i], spare[i], false, true}, cache, cache, pairs, stream);
  for (int i = 0; i < count; ++i) enqueue({spare[i], pools[i], true, false}, cache, cache, pairs, stream);
}

}  // namespace mla::device_ops
