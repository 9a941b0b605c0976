// SPDX-License-Identifier: Apache-2.0
#include "gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "check.hpp"
#include "mla/error.hpp"
#include "parallel.hpp"

namespace mla::reference {
namespace detail {
namespace {

/// Block ids come from outside; each one is looked at before it becomes an address.
void require_blocks(const Batch& batch, const PagedLatentCache& cache) {
  const View<const std::int32_t, 2>& table = cache.block_table;
  if (batch.rows > 0 && !table)
    throw Error(ErrorCode::kInvalidArgument, "the cache has no block table (null)");
  for (const BatchEntry& entry : batch.entries) {
    const std::int64_t b = entry.number;
    const VisibleKeys& visible = entry.visible;
    std::int64_t checked = -1;
    for (std::int64_t column = 0; column < visible.size(); ++column) {
      const std::int64_t page = visible.position(column) / cache.block_size;
      if (page == checked) continue;
      checked = page;
      if (b >= table.extent[0] || page >= table.extent[1]) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("block_table is [{}, {}], but position {} of request {} needs entry ({}, {}) "
                                "(block_size {})",
                                table.extent[0], table.extent[1], visible.position(column), b, b, page,
                                cache.block_size));
      }
      const std::int64_t id = table(b, page);
      if (id < 0 || id >= cache.num_blocks) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("block_table({}, {}) is {}, but the pool has blocks 0..{}", b, page, id,
                                cache.num_blocks - 1));
      }
    }
  }
}

}  // namespace

void require_cache(const PagedLatentCache& cache, const CacheLayout& layout) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); };
  require_at_least("the cache's block_size", cache.block_size, 1);
  require_at_least("the cache's num_blocks", cache.num_blocks, 0);
  // So that block * stride and slot numbers stay far from overflow.
  require_at_least("the cache's row stride in bytes", cache.row_stride_bytes, layout.row_bytes);
  require_at_least("the cache's block stride in bytes", cache.block_stride_bytes,
                   (cache.block_size - std::int64_t{1}) * cache.row_stride_bytes + layout.row_bytes);
  if (cache.num_blocks > 0 && cache.data == nullptr) refuse("the cache's data is null");
  if (!layout.split()) return;
  require_at_least("the cache's k_pe row stride in bytes", cache.k_pe_row_stride_bytes,
                   layout.rope_row_bytes);
  require_at_least(
      "the cache's k_pe block stride in bytes", cache.k_pe_block_stride_bytes,
      (cache.block_size - std::int64_t{1}) * cache.k_pe_row_stride_bytes + layout.rope_row_bytes);
  if (cache.num_blocks > 0 && cache.k_pe == nullptr) {
    refuse(
        fmt::format("cache format {} keeps k_pe in a second pool, but k_pe is null", name_of(cache.format)));
  }
}

void require_readable(const Batch& batch, const PagedLatentCache& cache, const CacheLayout& layout) {
  require_cache(cache, layout);
  require_blocks(batch, cache);
}

template <class Scalar>
Input<Scalar> gather_rows(const Batch& batch, std::span<const double> rows, std::int64_t width) {
  if (batch.rows == batch.keys) return Input<Scalar>(rows);
  std::vector<Scalar> gathered;
  gathered.reserve(static_cast<std::size_t>(batch.rows * width));
  for (const BatchEntry& entry : batch.entries) {
    for (std::int64_t column = 0; column < entry.visible.size(); ++column) {
      const double* row = rows.data() + (entry.first_key + entry.visible.position(column)) * width;
      std::transform(row, row + width, std::back_inserter(gathered),
                     [](double x) { return static_cast<Scalar>(x); });
    }
  }
  return Input<Scalar>(std::move(gathered));
}

template <class Scalar>
Input<Scalar> gather_cache(const Batch& batch, const PagedLatentCache& cache, const MlaDims& dims,
                           int threads) {
  const CacheLayout layout = cache_layout(cache.format, dims);
  constexpr std::int64_t kChunk = 256;  // rows a task
  struct Task {
    const BatchEntry* entry;
    std::int64_t begin, end;
  };
  std::vector<Task> tasks;
  for (const BatchEntry& entry : batch.entries) {
    const std::int64_t size = entry.visible.size();
    for (std::int64_t begin = 0; begin < size; begin += kChunk) {
      tasks.push_back({&entry, begin, std::min(begin + kChunk, size)});
    }
  }
  const std::int64_t width = dims.latent_width();
  std::vector<Scalar> gathered(static_cast<std::size_t>(batch.rows * width));
  parallel_for(static_cast<std::int64_t>(tasks.size()), threads, [&](std::int64_t t) {
    const auto& [entry, begin, end] = tasks[static_cast<std::size_t>(t)];
    std::vector<double> row(static_cast<std::size_t>(width));
    for (std::int64_t column = begin; column < end; ++column) {
      const std::int64_t slot = cache.slot(entry->number, entry->visible.position(column));
      decode_row(layout, dims, cache.row(slot), layout.split() ? cache.k_pe_row(slot) : nullptr, cache.scale,
                 row);
      Scalar* to = gathered.data() + (entry->first_row + column) * width;
      std::transform(row.begin(), row.end(), to, [](double x) { return static_cast<Scalar>(x); });
    }
  });
  return Input<Scalar>(std::move(gathered));
}

template Input<double> gather_rows(const Batch&, std::span<const double>, std::int64_t);
template Input<float> gather_rows(const Batch&, std::span<const double>, std::int64_t);
template Input<double> gather_cache(const Batch&, const PagedLatentCache&, const MlaDims&, int);
template Input<float> gather_cache(const Batch&, const PagedLatentCache&, const MlaDims&, int);

}  // namespace detail

std::vector<double> gather_latent(const PagedLatentCache& cache, const MlaDims& dims,
                                  std::span<const std::int32_t> seq_lens) {
  std::vector<Request> requests;
  for (const std::int32_t length : seq_lens) requests.push_back({1, length});
  // One query a request that sees every key: the gathered rows are all rows.
  const detail::Batch batch = detail::make_batch(requests, {});
  detail::require_readable(batch, cache, cache_layout(cache.format, dims));
  const detail::Input<double> rows = detail::gather_cache<double>(batch, cache, dims, 0);
  return {rows.data(), rows.data() + batch.rows * dims.latent_width()};
}

}  // namespace mla::reference
