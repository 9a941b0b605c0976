// SPDX-License-Identifier: Apache-2.0
// compress, decompress, compress_and_cache, and the documents' concat(K, V) form.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "../unit/expect_error.hpp"
#include "mla/index.hpp"
#include "mla/layer.hpp"
#include "textbook.hpp"

namespace {

using namespace mla;
using textbook::normals;
using textbook::relative_error;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

TEST(Compressor, DecompressedKeysAndValuesGiveTheSameAttention) {
  const textbook::MlaData d = textbook::make_mla(textbook::kOddDims, {{3, 12}}, {});
  const auto& [H, L, R, P, V] = d.dims;
  const ExpandedKv kv = decompress(d.dims, d.latent, {d.w_uk, d.w_uv});
  for (std::int64_t h = 0; h < H; ++h) {  // one element by hand, for each head
    double k = 0, v = 0;
    for (std::int64_t l = 0; l < L; ++l) {
      k += d.w_uk[at((h * P + 4) * L + l)] * d.latent[at(7 * (L + R) + l)];
      v += d.w_uv[at((h * V + 10) * L + l)] * d.latent[at(7 * (L + R) + l)];
    }
    EXPECT_NEAR(kv.k[at((7 * H + h) * (P + R) + 4)], k, 1e-14);
    EXPECT_NEAR(kv.v[at((7 * H + h) * V + 10)], v, 1e-14);
    EXPECT_EQ(kv.k[at((7 * H + h) * (P + R) + P + 2)], d.latent[at(7 * (L + R) + L + 2)]);
  }
  const auto want = reference::mla_absorbed(d.problem());
  const auto got = reference::mha({d.batch, H, H, P + R, V, d.q, kv.k, kv.v, {}, d.scale});
  EXPECT_LE(relative_error(got.out, want.out), 1e-12);
  const ExpandedKv single =
      decompress(d.dims, d.latent, {d.w_uk, d.w_uv}, {.arithmetic = reference::Arithmetic::kF32});
  EXPECT_LE(relative_error(single.k, kv.k), 1e-6);
  EXPECT_GT(relative_error(single.k, kv.k), 1e-9);
}

TEST(Compressor, TheDocumentsFormIsAProjectionOfKThenV) {
  const MlaDims dims = textbook::kOddDims;
  const auto& [H, L, R, P, V] = dims;
  const std::int64_t tokens = 4, k_width = H * (P + R), v_width = H * V;
  const auto k = normals(tokens * k_width, 1), v = normals(tokens * v_width, 2);
  const auto w = normals(L * (k_width + v_width), 3);
  const auto got = compress_kv_to_latent(dims, k, v, w);
  ASSERT_EQ(got.size(), at(tokens * L));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t l = 0; l < L; ++l) {
      long double sum = 0;
      for (std::int64_t i = 0; i < k_width; ++i)
        sum += w[at(l * (k_width + v_width) + i)] * k[at(t * k_width + i)];
      for (std::int64_t i = 0; i < v_width; ++i) {
        sum += w[at(l * (k_width + v_width) + k_width + i)] * v[at(t * v_width + i)];
      }
      EXPECT_NEAR(got[at(t * L + l)], static_cast<double>(sum), 1e-12);
    }
  }
}

/// A layer whose cache rows are easy to make, with L a multiple of 128 so that every format can hold it.
struct SmallLayer {
  SmallLayer() {
    config.dims = {
        .num_heads = 1, .kv_lora_rank = 256, .qk_rope_head_dim = 8, .qk_nope_head_dim = 4, .v_head_dim = 4};
    config.hidden_size = 24;
    weights.kv_a_proj = normals(264 * 24, 1, 0.4);
    weights.kv_a_layernorm = normals(256, 2);
    hidden = normals(tokens * 24, 3);
    const std::vector<std::int64_t> positions{5, 6, 7, 8, 9};
    rope = make_rope_table({.dim = 8}, YarnRule::kDeepSeek, positions);
  }
  std::int64_t tokens = 5;
  LayerConfig config;
  LayerWeights weights;
  std::vector<double> hidden;
  RopeTable rope;
};

constexpr std::byte kUntouched{0xA5};

/// A pool with gaps between rows and blocks.
struct Pool {
  Pool(CacheFormat format, const MlaDims& dims, std::int32_t block_size, std::int64_t blocks)
      : layout(cache_layout(format, dims)) {
    cache.format = format;
    cache.block_size = block_size;
    cache.num_blocks = blocks;
    cache.scale = 0.0625F;
    cache.row_stride_bytes = layout.row_bytes + 5;  // rows need no alignment
    cache.block_stride_bytes = block_size * cache.row_stride_bytes + 11;
    bytes.assign(at(blocks * cache.block_stride_bytes), kUntouched);
    cache.data = bytes.data();
    if (!layout.split()) return;
    cache.k_pe_row_stride_bytes = layout.rope_row_bytes + 3;
    cache.k_pe_block_stride_bytes = block_size * cache.k_pe_row_stride_bytes + 7;
    k_pe.assign(at(blocks * cache.k_pe_block_stride_bytes), kUntouched);
    cache.k_pe = k_pe.data();
  }
  CacheLayout layout;
  PagedLatentCache cache;
  std::vector<std::byte> bytes, k_pe;
};

TEST(Compressor, CompressAndCacheWritesTheRowsOfEveryFormat) {
  const SmallLayer layer;
  const MlaDims& dims = layer.config.dims;
  const auto rows = compress(layer.config, layer.weights, layer.hidden, layer.rope);
  const std::vector<std::int64_t> slots{7, kSkipSlot, 0, 11, 4};  // of 4 blocks of 3
  for (const CacheFormat format : all_cache_formats()) {
    SCOPED_TRACE(name_of(format));
    Pool got(format, dims, 3, 4), want(format, dims, 3, 4);
    compress_and_cache(layer.config, layer.weights, layer.hidden, layer.rope, slots, got.cache);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == kSkipSlot) continue;
      const std::span<const double> row(rows.data() + i * 264, 264);
      encode_row(want.layout, dims, row.first(256), row.last(8), want.cache.row(slots[i]),
                 want.layout.split() ? want.cache.k_pe_row(slots[i]) : nullptr, want.cache.scale);
    }
    EXPECT_EQ(got.bytes, want.bytes) << "rows, and not a byte beside them";
    EXPECT_EQ(got.k_pe, want.k_pe);
    EXPECT_NE(got.bytes, Pool(format, dims, 3, 4).bytes);
  }
}

TEST(Compressor, ABadSlotLeavesTheCacheAsItWas) {
  const SmallLayer layer;
  Pool pool(CacheFormat::kBF16, layer.config.dims, 3, 4);
  const auto before = pool.bytes;
  for (const std::int64_t slot :
       {std::int64_t{12}, std::int64_t{-2}, std::numeric_limits<std::int64_t>::max()}) {
    const std::vector<std::int64_t> slots{0, 1, 2, 3, slot};
    expect_error(
        [&] {
          return compress_and_cache(layer.config, layer.weights, layer.hidden, layer.rope, slots, pool.cache),
                 0;
        },
        ErrorCode::kInvalidArgument, {"slot_mapping[4] is " + std::to_string(slot), "4 blocks of 3"});
  }
  EXPECT_EQ(pool.bytes, before);
  expect_error(
      [&] {
        return compress_and_cache(layer.config, layer.weights, layer.hidden, layer.rope, {}, pool.cache), 0;
      },
      ErrorCode::kInvalidArgument, {"slot_mapping has 0 elements"});
  pool.cache.row_stride_bytes = 1;
  const std::vector<std::int64_t> skip(5, kSkipSlot);
  expect_error(
      [&] {
        return compress_and_cache(layer.config, layer.weights, layer.hidden, layer.rope, skip, pool.cache), 0;
      },
      ErrorCode::kInvalidArgument, {"row stride", "is 1", "528"});
}

TEST(Compressor, WhatWasCachedIsGatheredBack) {
  const SmallLayer layer;
  const MlaDims& dims = layer.config.dims;
  const auto rows = compress(layer.config, layer.weights, layer.hidden, layer.rope);
  Pool pool(CacheFormat::kF64, dims, 2, 6);
  const std::vector<std::int32_t> table{5, 0, 3, 1, 2, 4};  // two requests of 3 and 2 tokens
  pool.cache.block_table = {table.data(), {2, 3}};
  std::vector<std::int64_t> slots;
  for (const auto& [request, position] : {std::pair{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}}) {
    slots.push_back(slot_of(pool.cache.block_table, 2, request, position));
  }
  compress_and_cache(layer.config, layer.weights, layer.hidden, layer.rope, slots, pool.cache);
  const std::vector<std::int32_t> lengths{3, 2};
  EXPECT_EQ(reference::gather_latent(pool.cache, dims, lengths), rows);
}

}  // namespace
