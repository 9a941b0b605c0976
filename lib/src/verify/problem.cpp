// SPDX-License-Identifier: Apache-2.0
#include "verify/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/shared_prefix.hpp"
#include "mla/error.hpp"
#include "mla/random.hpp"

namespace mla::verify {
namespace {

constexpr std::uint64_t kBlockStream = 50;
/// Bytes between rows of a strided pool: rows stay 16-byte aligned wherever the packed ones are.
constexpr std::int64_t kPoolGap = 64;
/// Elements between rows of other strided tensors.
constexpr std::int64_t kTensorGap = 16;

std::int64_t blocks_of(const Request& r, std::int64_t block_size) {
  return (r.kv_len + block_size - 1) / block_size;
}

void expect_size(std::size_t have, std::size_t want, const char* what) {
  if (have == want) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} holds {} values, but the case needs {}", what, have, want));
}

/// Type of W_UK and W_UV: that of the query.
HostTensor weight_tensor(DType dtype, const std::vector<double>& values, std::int64_t heads,
                         std::int64_t rows, std::int64_t rank) {
  const std::int64_t extents[] = {heads, rows, rank};
  HostTensor tensor = make_host_tensor(dtype, extents, 0, kNanByte);
  store(tensor, values);
  return tensor;
}

}  // namespace

Problem::Problem(const Case& c) : Problem(c, (validate(c), make_values(c))) {}

Problem::Problem(const Case& c, Values values) : case_(c), values_(std::move(values)) {
  validate(case_);
  layout_ = cache_layout(shape().cache, shape().dims);
  const MlaDims& d = shape().dims;
  const auto heads = static_cast<std::size_t>(d.num_heads);
  const auto tokens = static_cast<std::size_t>(shape().num_tokens());
  const bool head = shape().space == QuerySpace::kHead;
  const std::size_t rank = head ? heads * static_cast<std::size_t>(d.kv_lora_rank) : 0;
  expect_size(values_.q.size(), tokens * heads * static_cast<std::size_t>(query_width(shape())), "q");
  expect_size(values_.latent.size(),
              static_cast<std::size_t>(num_keys(shape())) * static_cast<std::size_t>(d.latent_width()),
              "latent");
  expect_size(values_.w_uk.size(), rank * static_cast<std::size_t>(d.qk_nope_head_dim), "w_uk");
  expect_size(values_.w_uv.size(), rank * static_cast<std::size_t>(d.v_head_dim), "w_uv");
  expect_size(values_.token_index.size(), tokens * static_cast<std::size_t>(shape().topk), "token_index");

  cu_seqlens_q_.push_back(0);
  for (const Request& r : shape().batch) {
    cu_seqlens_q_.push_back(cu_seqlens_q_.back() + r.q_len);
    seq_lens_.push_back(r.kv_len);
  }
  share_prefixes();
  encode_query();
  encode_cache();
}

/// The first keys of a group's members are those of its first member.
void Problem::share_prefixes() {
  const auto width = static_cast<std::ptrdiff_t>(shape().dims.latent_width());
  std::vector<std::ptrdiff_t> start{0};
  for (const Request& r : shape().batch) start.push_back(start.back() + r.kv_len * width);
  for (const SharedPrefix& s : shape().shared) {
    const auto from = values_.latent.begin() + start[static_cast<std::size_t>(s.first)];
    for (std::int32_t b = s.first + 1; b < s.first + s.count; ++b) {
      std::copy_n(from, s.tokens * width, values_.latent.begin() + start[static_cast<std::size_t>(b)]);
    }
  }
}

void Problem::encode_query() {
  const MlaDims& d = shape().dims;
  const std::int64_t gap = case_.strided ? kTensorGap : 0;
  const std::int64_t q_extents[] = {shape().num_tokens(), d.num_heads, query_width(shape())};
  q_ = make_host_tensor(shape().q_dtype, q_extents, gap, kNanByte);
  store(q_, values_.q);
  values_.q = load(q_);
  if (shape().space == QuerySpace::kHead) {
    w_uk_ = weight_tensor(shape().q_dtype, values_.w_uk, d.num_heads, d.qk_nope_head_dim, d.kv_lora_rank);
    w_uv_ = weight_tensor(shape().q_dtype, values_.w_uv, d.num_heads, d.v_head_dim, d.kv_lora_rank);
    values_.w_uk = load(w_uk_);
    values_.w_uv = load(w_uv_);
  }
  if (shape().topk > 0) {
    const std::int64_t index_extents[] = {shape().num_tokens(), shape().topk};
    token_index_ = make_host_tensor(DType::kI32, index_extents, case_.strided ? 3 : 0, std::byte{0});
    store(token_index_, std::vector<double>(values_.token_index.begin(), values_.token_index.end()));
  }
}

/// Physical ids for all logical blocks, request after request; every third block of a permuted pool stays
/// unused.
std::vector<std::int64_t> Problem::assign_blocks() {
  std::int64_t needed = 0;
  for (std::size_t b = 0; b < shape().batch.size(); ++b) {
    needed +=
        blocks_of(shape().batch[b], shape().block_size) - borrowed_keys(shape(), b) / shape().block_size;
  }
  const std::int64_t total = std::max<std::int64_t>(1, case_.permuted ? needed + needed / 2 + 1 : needed);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(total));
  std::iota(ids.begin(), ids.end(), case_.first_block);
  if (case_.permuted) {
    const CounterRng rng(case_.seed, kBlockStream);
    for (std::int64_t i = total - 1; i > 0; --i) {
      std::swap(ids[static_cast<std::size_t>(i)],
                ids[static_cast<std::size_t>(rng.between(static_cast<std::uint64_t>(i), 0, i))]);
    }
  }
  lay_out_pool(pool_, layout_.row_bytes, total);
  if (layout_.split()) lay_out_pool(k_pe_pool_, layout_.rope_row_bytes, total);
  ids.resize(static_cast<std::size_t>(needed));
  return ids;
}

void Problem::lay_out_pool(HostPool& pool, std::int64_t row_bytes, std::int64_t blocks) const {
  pool.first_block = case_.first_block;
  pool.num_blocks = case_.first_block + blocks;
  pool.row_stride = row_bytes + (case_.strided ? kPoolGap : 0);
  pool.block_stride = pool.row_stride * shape().block_size + (case_.strided ? 2 * kPoolGap : 0);
  pool.bytes.assign(static_cast<std::size_t>(blocks * pool.block_stride), std::byte{0});
}

void Problem::poison_pools() {
  const auto fill = [this](HostPool& pool, std::int64_t offset, std::int64_t bytes, DType dtype) {
    const double value = poison_value(case_.poison, dtype);
    const auto count = bytes / static_cast<std::int64_t>(size_of(dtype));
    const auto blocks = static_cast<std::int64_t>(pool.bytes.size()) / pool.block_stride;
    for (std::int64_t row = 0; row < blocks * shape().block_size; ++row) {
      std::byte* at = pool.bytes.data() + (row / shape().block_size) * pool.block_stride +
                      (row % shape().block_size) * pool.row_stride + offset;
      for (std::int64_t i = 0; i < count; ++i) store_element(at, dtype, i, value);
    }
  };
  // The gaps of a strided pool hold what is NaN in most types, whatever the rows hold.
  std::fill(pool_.bytes.begin(), pool_.bytes.end(), kNanByte);
  std::fill(k_pe_pool_.bytes.begin(), k_pe_pool_.bytes.end(), kNanByte);
  fill(pool_, 0, layout_.latent_bytes, layout_.latent_dtype);
  if (layout_.scale_bytes > 0) fill(pool_, layout_.scale_offset, layout_.scale_bytes, DType::kF32);
  if (layout_.rope_bytes > 0) {
    fill(layout_.split() ? k_pe_pool_ : pool_, layout_.rope_offset, layout_.rope_bytes, layout_.rope_dtype);
  }
}

void Problem::encode_cache() {
  const std::vector<std::int64_t> ids = assign_blocks();
  poison_pools();
  const MlaDims& d = shape().dims;
  if (shape().cache == CacheFormat::kFp8 && values_.cache_scale == 0) {
    double amax = 0;
    for (const double x : values_.latent) amax = std::max(amax, std::abs(x));
    values_.cache_scale = amax > 0 ? static_cast<float>(amax / 448) : 1.0F;
  }

  std::int64_t columns = 0;
  for (const Request& r : shape().batch) columns = std::max(columns, blocks_of(r, shape().block_size));
  columns += case_.spare_columns;
  const std::int64_t extents[] = {static_cast<std::int64_t>(shape().batch.size()), columns};
  block_table_ = make_host_tensor(DType::kI32, extents, case_.strided ? 3 : 0, std::byte{0});
  std::vector<double> table(static_cast<std::size_t>(extents[0] * columns));
  for (std::size_t i = 0; i < table.size(); ++i) {  // ids that do not exist, for columns that no key needs
    table[i] = i % 2 == 0 ? std::numeric_limits<std::int32_t>::max() : -1;
  }

  const auto rank = static_cast<std::size_t>(d.kv_lora_rank);
  const auto width = static_cast<std::size_t>(d.latent_width());
  std::size_t used = 0, row = 0;
  std::vector<std::size_t> first_rows;  // of each request
  for (std::size_t b = 0; b < shape().batch.size(); ++b) {
    first_rows.push_back(row);
    double* const entries = table.data() + b * static_cast<std::size_t>(columns);
    const std::int64_t borrowed = borrowed_keys(shape(), b);
    if (borrowed > 0) {  // blocks and rows as they have been read back already
      const auto leader = static_cast<std::size_t>(shared_prefix_of(shape(), b)->first);
      std::copy_n(table.data() + leader * static_cast<std::size_t>(columns), borrowed / shape().block_size,
                  entries);
      std::copy_n(values_.latent.data() + first_rows[leader] * width,
                  static_cast<std::size_t>(borrowed) * width, values_.latent.data() + row * width);
      row += static_cast<std::size_t>(borrowed);
    }
    for (std::int64_t p = borrowed; p < shape().batch[b].kv_len; ++p, ++row) {
      const std::int64_t offset = p % shape().block_size;
      if (offset == 0) entries[p / shape().block_size] = static_cast<double>(ids[used++]);
      const std::int64_t block = ids[used - 1] - case_.first_block;
      std::byte* at = pool_.bytes.data() + block * pool_.block_stride + offset * pool_.row_stride;
      std::byte* k_pe_at = layout_.split() ? k_pe_pool_.bytes.data() + block * k_pe_pool_.block_stride +
                                                 offset * k_pe_pool_.row_stride
                                           : nullptr;
      const std::span<double> latent = std::span(values_.latent).subspan(row * width, width);
      encode_row(layout_, d, latent.first(rank), latent.subspan(rank), at, k_pe_at, values_.cache_scale);
      decode_row(layout_, d, at, k_pe_at, values_.cache_scale, latent);
    }
  }
  store(block_table_, table);
}

HostTensor Problem::make_out() const {
  const std::int64_t extents[] = {shape().num_tokens(), shape().dims.num_heads, output_width(shape())};
  return make_host_tensor(shape().out_dtype, extents, case_.strided ? kTensorGap : 0, kNanByte);
}

HostTensor Problem::make_lse() const {
  const std::int64_t extents[] = {shape().num_tokens(), shape().dims.num_heads};
  const DType dtype = shape().out_dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  return make_host_tensor(dtype, extents, case_.strided ? 5 : 0, kNanByte);
}

reference::MlaProblem Problem::reference_problem() const {
  reference::MlaProblem p;
  p.dims = shape().dims;
  p.batch = shape().batch;
  p.q = values_.q;
  p.latent = values_.latent;
  p.w_uk = values_.w_uk;
  p.w_uv = values_.w_uv;
  p.visible.mask = shape().mask;
  p.visible.token_index = values_.token_index;
  p.visible.topk = shape().topk;
  p.softmax_scale = values_.softmax_scale;
  return p;
}

}  // namespace mla::verify
